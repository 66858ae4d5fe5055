"""Must a Serve config be sent, and which one; spec rayservice §12.2, §12.7."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from common.api import ray_cluster
from common.ray import submit
from common.ray.serve_status import Application, ServeDetails
from common.ray.view import Reading, Refusal
from service_reconciler.observed import ClusterView

NOW = datetime(2026, 1, 1, tzinfo=UTC)
READY = {
    "type": "HeadPodReady",
    "status": "True",
    "reason": "x",
    "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}
RUNS = Reading(details=ServeDetails(applications={"a": Application(status="RUNNING")}))
EMPTY = Reading(details=ServeDetails())
GOAL = "applications: [new]"
OLD = "applications: [old]"


def view(**fields: Any) -> ClusterView:
    cluster = ray_cluster.decode({"metadata": {"name": "c"}, "status": {"conditions": [READY]}})
    return msgspec.structs.replace(ClusterView(cluster=cluster, serve=RUNS), **fields)


def refusal(config: str, *, seconds: float) -> Refusal:
    return Refusal(config=config, text="400", retry_at=NOW + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("seen", "frozen", "sent"),
    [
        pytest.param(view(), False, GOAL, id="nothing recorded"),
        pytest.param(view(given=GOAL), False, None, id="the cluster has it"),
        pytest.param(view(given=OLD), False, GOAL, id="it has another"),
        pytest.param(view(given=GOAL + " "), False, GOAL, id="white space counts"),
        pytest.param(view(given=GOAL, serve=EMPTY), False, GOAL, id="its head lost all"),
        pytest.param(view(given=GOAL, serve=EMPTY, put_at=NOW), False, None, id="sent a moment ago"),
        pytest.param(view(given=OLD), True, None, id="frozen: it keeps its own"),
        pytest.param(view(given=OLD, serve=EMPTY), True, OLD, id="frozen: it gets its own again"),
        pytest.param(view(serve=EMPTY), True, None, id="frozen, and nobody knows what it had"),
        pytest.param(view(serve=Reading(problem="500")), False, None, id="its dashboard does not answer"),
        pytest.param(view(refused=refusal(GOAL, seconds=5)), False, None, id="refused a moment ago"),
        pytest.param(view(refused=refusal(GOAL, seconds=0)), False, GOAL, id="refused a while ago"),
        pytest.param(view(refused=refusal(OLD, seconds=5)), False, GOAL, id="another one was refused"),
    ],
)
def test_what_is_sent(seen: ClusterView, frozen: bool, sent: str | None) -> None:
    assert submit.decide(seen, GOAL, frozen=frozen, now=NOW).config == sent


def test_nothing_is_sent_to_a_head_that_is_not_ready() -> None:
    seen = msgspec.structs.replace(view(), cluster=ray_cluster.decode({"metadata": {"name": "c"}}))
    assert submit.decide(seen, GOAL, frozen=False, now=NOW).note == "the head pod is not ready"
