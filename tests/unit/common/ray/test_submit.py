"""Whether a Serve config must be sent, and which one; spec rayservice §12.2, §12.7."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from common.api import ray_cluster, ray_service
from common.ray import deployed_config, submit
from common.ray.serve_status import Application, ServeDetails
from common.ray.view import Put, Reading, Refusal
from service_reconciler.observed import ClusterView
from support.builders.ray_service import a_ray_service
from support.tables import cases

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


@cases(
    ("seen", "frozen", "sent"),
    {
        "nothing recorded": (view(), False, GOAL),
        "the cluster has it": (view(given=GOAL), False, None),
        "it has another": (view(given=OLD), False, GOAL),
        "white space counts": (view(given=GOAL + " "), False, GOAL),
        "its head lost all": (view(given=GOAL, serve=EMPTY), False, GOAL),
        "sent a moment ago": (view(given=GOAL, serve=EMPTY, put_at=NOW), False, None),
        "frozen: it keeps its own": (view(given=OLD), True, None),
        "frozen: it gets its own again": (view(given=OLD, serve=EMPTY), True, OLD),
        "frozen, and nobody knows what it had": (view(serve=EMPTY), True, None),
        "its dashboard does not answer": (view(serve=Reading(problem="500")), False, None),
        "refused a moment ago": (view(refused=refusal(GOAL, seconds=5)), False, None),
        "refused a while ago": (view(refused=refusal(GOAL, seconds=0)), False, GOAL),
        "another one was refused": (view(refused=refusal(OLD, seconds=5)), False, GOAL),
    },
)
def test_what_is_sent(seen: ClusterView, frozen: bool, sent: str | None) -> None:
    assert submit.decide(seen, GOAL, frozen=frozen, now=NOW) == sent


def test_nothing_is_sent_to_a_head_that_is_not_ready() -> None:
    seen = msgspec.structs.replace(view(), cluster=ray_cluster.decode({"metadata": {"name": "c"}}))
    assert submit.decide(seen, GOAL, frozen=False, now=NOW) is None


RUNS_GOAL, RUNS_OLD = (
    Reading(
        details=ServeDetails(
            applications={
                "app": Application(
                    status="RUNNING", deployed_app_config={"name": "app", "import_path": path}
                )
            }
        )
    )
    for path in ("goal:app", "old:app")
)
NEW = "applications: [{name: app, import_path: goal:app}]"


def sent(count: int, *, seconds: float, reported: Reading | None = None) -> dict[str, Any]:
    """Return records that the goal was sent `count` times, the last time `seconds` ago."""
    details = reported.details if reported is not None else None
    fingerprint = deployed_config.fingerprint(details) if details is not None else None
    put = Put(config=NEW, count=count, reported=fingerprint, reported_before=fingerprint)
    return {"put": put, "put_at": NOW - timedelta(seconds=seconds)}


@cases(
    ("seen", "is_sent"),
    {
        "Serve runs what is recorded": (view(given=NEW, serve=RUNS_GOAL), False),
        "Serve runs another config": (view(given=NEW, serve=RUNS_OLD), True),
        "and was sent this one just now": (
            view(given=NEW, serve=RUNS_OLD, **sent(1, seconds=0.5)),
            False,
        ),
        "a second later": (view(given=NEW, serve=RUNS_OLD, **sent(1, seconds=1)), True),
        "the fourth time: after 8 s": (
            view(given=NEW, serve=RUNS_OLD, **sent(4, seconds=7)),
            False,
        ),
        "the fifth PUT": (view(given=NEW, serve=RUNS_OLD, **sent(4, seconds=8)), True),
        "ten minutes at most": (view(given=NEW, serve=RUNS_OLD, **sent(99, seconds=599)), False),
        "and then again": (view(given=NEW, serve=RUNS_OLD, **sent(99, seconds=600)), True),
        "the clock was set back": (view(given=NEW, serve=RUNS_OLD, **sent(9, seconds=-60)), True),
        "Ray shows it like that": (
            view(given=NEW, serve=RUNS_OLD, **sent(2, seconds=9, reported=RUNS_OLD)),
            False,
        ),
        "Ray showed it otherwise": (
            view(given=NEW, serve=RUNS_OLD, **sent(2, seconds=9, reported=RUNS_GOAL)),
            True,
        ),
        "nothing recorded, sent just now": (view(serve=RUNS_OLD, **sent(1, seconds=0.5)), False),
    },
)
def test_a_config_that_serve_does_not_run_is_sent_again_ever_more_seldom(
    seen: ClusterView, is_sent: bool
) -> None:
    assert (submit.decide(seen, NEW, frozen=False, now=NOW) == NEW) == is_sent
    if seen.given is not None:
        assert (submit.decide(seen, "applications: []", frozen=True, now=NOW) == NEW) == is_sent


def test_a_cluster_has_a_config_by_its_record_and_by_what_serve_reports() -> None:
    found = [
        submit.has(view(given=NEW, serve=serve), NEW)
        for serve in (RUNS_GOAL, RUNS_OLD, Reading(problem="500"))
    ]
    assert found == [True, False, True]
    assert not submit.has(view(given=OLD, serve=RUNS_GOAL), NEW)


@pytest.mark.parametrize(
    ("capacity", "recorded"),
    [(100, {"type": "Kept"}), (None, {"type": "NewCluster"})],
    ids=["in steps", "at once"],
)
def test_the_strategy_of_a_record_is_kept_where_traffic_moves_in_steps(
    capacity: int | None, recorded: dict[str, str]
) -> None:
    manifest = a_ray_service(upgradeStrategy={"type": "NewCluster"})
    active = {"rayClusterName": "c"} | ({} if capacity is None else {"targetCapacity": capacity})
    service = ray_service.decode(manifest | {"status": {"activeServiceStatus": active}})
    sent = submit.submission(view(strategy={"type": "Kept"}), service, frozen=False, now=NOW)
    assert sent is not None
    assert sent.given.upgrade_strategy == recorded
