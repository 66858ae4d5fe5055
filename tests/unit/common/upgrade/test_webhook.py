"""The request to a webhook, and the meaning of its answer."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from common import errors
from common.api.core import Service
from common.api.meta import ObjectMeta, OwnerReference
from common.api.ray_service import RayService
from common.upgrade import policy as upgrade_policy
from common.upgrade import webhook
from common.upgrade.candidate import Candidate
from common.upgrade.gate_types import WebhookGate
from common.upgrade.gates import GateOutcome
from common.upgrade.webhook import Answer, Checkpoint, Reply, Strategy
from support.builders.ray_cluster import a_ray_cluster
from support.builders.ray_service import NAME, NAMESPACE, a_ray_service

GATE = WebhookGate(title="webhook", url="https://checks.example.com:8443/upgrade?token=s3cret")
SINCE = datetime(2026, 1, 1, 12, tzinfo=UTC)
STEP = Checkpoint(
    namespace="team",
    service="demo",
    policy="careful",
    candidate=Candidate(cluster_uid="u-2", config="c"),
    old="demo-a",
    new="demo-b",
    weight=10,
    since=SINCE,
    step=2,
    steps=4,
    addresses={"pending": "demo-b-serve-svc.team.svc:8000"},
)


def answered(body: Any, status: int = 200, retry_after: str = "") -> Answer:
    text = body if isinstance(body, bytes) else msgspec.json.encode(body)
    return Answer(status=status, body=text, retry_after=retry_after)


def test_the_question_names_the_upgrade_the_step_and_where_to_send_requests() -> None:
    assert msgspec.json.decode(webhook.question(STEP, GATE)) == {
        "version": 1,
        "id": webhook.identity(STEP, GATE),
        "namespace": "team",
        "service": "demo",
        "policy": "careful",
        "gate": "webhook",
        "strategy": "Steps",
        "activeCluster": "demo-a",
        "pendingCluster": "demo-b",
        "weight": 10,
        "step": 2,
        "steps": 4,
        "addresses": {"pending": "demo-b-serve-svc.team.svc:8000"},
    }


@pytest.mark.parametrize(
    "other",
    [
        {"weight": 25},
        {"candidate": Candidate(cluster_uid="u-3", config="c")},
        {"candidate": Candidate(cluster_uid="u-2", config="another")},
        {"since": SINCE.replace(minute=1)},
    ],
)
def test_another_step_has_another_id_and_the_same_one_the_same(other: Any) -> None:
    assert webhook.identity(STEP, GATE) == webhook.identity(msgspec.structs.replace(STEP), GATE)
    assert webhook.identity(msgspec.structs.replace(STEP, **other), GATE) != webhook.identity(
        STEP, GATE
    )


def test_another_gate_has_another_id() -> None:
    other = msgspec.structs.replace(GATE, title="webhook[2]")
    assert webhook.identity(STEP, other) != webhook.identity(STEP, GATE)


@pytest.mark.parametrize(
    ("strategy", "backend"), [(Strategy.STEPS, "serve-svc"), (Strategy.BLUE_GREEN, "head-svc")]
)
def test_a_step_has_the_services_of_both_clusters_and_of_the_preview(
    strategy: Strategy, backend: str
) -> None:
    policy = upgrade_policy.read(
        "careful", {"steps": [{"weight": 10}, {"weight": 100}], "preview": {"service": True}}
    )
    old, new = (a_ray_cluster(name) for name in ("demo-a", "demo-b"))
    service = msgspec.json.decode(msgspec.json.encode(a_ray_service()), type=RayService)
    owners = [OwnerReference(kind="RayService", name=NAME, uid=service.metadata.uid)]
    step = webhook.build_checkpoint(
        service,
        policy,
        old,
        new,
        candidate=STEP.candidate,
        strategy=strategy,
        weight=0,
        since=SINCE,
        preview=Service(metadata=ObjectMeta(name=f"{NAME}-preview-svc", owner_references=owners)),
    )
    assert step.addresses == {
        "active": f"demo-a-{backend}.{NAMESPACE}.svc:8000",
        "pending": f"demo-b-{backend}.{NAMESPACE}.svc:8000",
        "preview": f"{NAME}-preview-svc.{NAMESPACE}.svc:8000",
    }
    assert (step.step, step.steps, step.since) == (0, 2, None)


@pytest.mark.parametrize(
    ("result", "outcome"),
    [("Pass", GateOutcome.PASS), ("Fail", GateOutcome.FAIL), ("Wait", GateOutcome.INCONCLUSIVE)],
)
def test_an_answer_decides_the_gate(result: str, outcome: GateOutcome) -> None:
    reply = webhook.read(answered({"result": result, "text": "it is worse"}))
    assert reply.outcome is outcome
    found = webhook.result(GATE, reply, None)
    assert found.outcome is outcome
    assert found.text == f"webhook: checks.example.com:8443 answered {result}: it is worse"


def test_without_an_answer_the_gate_is_inconclusive_and_names_the_server_without_its_path() -> None:
    assert webhook.result(GATE, None, None).text == "webhook: checks.example.com:8443 is asked"
    found = webhook.result(GATE, None, "answered status 503")
    assert (found.outcome, found.text) == (
        GateOutcome.INCONCLUSIVE,
        "webhook: checks.example.com:8443 answered status 503",
    )


@pytest.mark.parametrize("status", [201, 204, 302, 400, 401, 404, 500, 503])
def test_another_status_is_no_answer_whatever_its_body(status: int) -> None:
    with pytest.raises(errors.Unavailable, match=f"answered status {status}"):
        webhook.read(answered({"result": "Pass"}, status))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"ok",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'"Pass"',
        {},
        {"result": "pass"},
        {"result": "PASS\n"},
        {"result": None},
        {"result": True},
        {"result": "Pass", "text": 5},
        {"text": "Pass"},
        b'{"result": "Pass"} trailing',
        b"[" * 10_000,
        b'{"result": "Pass", "x": ' + b"[" * 9_000 + b"]" * 9_000 + b"}",
    ],
)
def test_what_is_no_answer_is_reported_without_repeating_it(body: Any) -> None:
    with pytest.raises(errors.Unavailable, match="did not answer"):
        webhook.read(answered(body))


def test_a_text_is_bounded_to_one_line_without_control_characters() -> None:
    reply = webhook.read(answered({"result": "Fail", "text": "\x1b[2J a\nb\u202e" + "c" * 5000}))
    assert len(reply.text) <= webhook.MAX_TEXT_LENGTH
    assert reply.text.isprintable()


def test_an_unknown_field_of_an_answer_is_left_alone() -> None:
    assert webhook.read(answered({"result": "Pass", "build": 5})) == Reply(result="Pass")


def test_a_server_without_answers_is_asked_ever_later() -> None:
    assert [webhook.pause(times) for times in (1, 2, 3, 6, 7, 10_000)] == [1, 2, 4, 32, 60, 60]


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        ("", 30),
        ("60", 60),
        ("0", 5),
        ("99999", 600),
        ("9" * 40, 30),
        ("-1", 30),
        ("soon", 30),
        ("٣", 30),
    ],
)
def test_wait_lasts_as_long_as_the_answer_asks_for_within_bounds(
    retry_after: str, seconds: float
) -> None:
    assert webhook.wait(answered({"result": "Wait"}, retry_after=retry_after)) == seconds
