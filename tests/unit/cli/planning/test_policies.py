"""The part of a plan about the UpgradePolicy: the policy that applies, and its effect."""

from typing import Final

import msgspec
import pytest

from common import errors
from common.api import ray_service
from common.api.opaque import Json
from common.kube.resources import UPGRADE_POLICY, Resource
from common.upgrade.policy import Stored
from raybus_cli.planning import cli, policies
from raybus_cli.planning.policies import PolicyPlan, StepPlan
from support.builders import snapshots
from support.builders.upgrade_policy import CAREFUL, GATE, PROMETHEUS, WEBHOOK, a_policy

DEFAULT = {"raybus.io/default": "true"}


def stored(
    name: str = "careful", spec: Json | None = None, *, annotations: dict[str, str] | None = None
) -> Stored:
    return msgspec.convert(
        a_policy(name, spec, annotations=annotations or {}, namespace="default"), type=Stored
    )


def test_a_policy_is_shown_with_steps_gates_and_the_shortest_duration() -> None:
    found = policies.describe_policy(stored())
    assert found.steps[:3] == [
        StepPlan(weight=1, hold_seconds=120, is_pause=False),
        StepPlan(weight=10, hold_seconds=300, is_pause=False),
        StepPlan(weight=25, hold_seconds=0, is_pause=True),
    ]
    assert found.shortest_seconds == 9 * 60
    assert policies.format_plan(found) == [
        "UpgradePolicy careful: steps of 1, 10, 25, 100 %; gates errorRate, latencyP95, timeToFirstTokenP95, prometheus, "
        "webhook; at least 9 min and 1 pause",
        "  errorRate: at most 1 %, from 100 requests; else rollback",
        "  latencyP95: at most 30 % above the active cluster, from 100 requests; else rollback",
        "  timeToFirstTokenP95: at most 30 % above the active cluster, from 100 requests; else rollback",
        "  prometheus: at least 0.9 by a query of prometheus.monitoring:9090 at each step; else rollback",
        "  webhook: checks.example.com answers Pass, before the first traffic and at each step; else rollback",
    ]


def test_where_all_traffic_moves_at_once_the_plan_names_what_does_not_apply() -> None:
    found = policies.describe_policy(stored(), in_steps=False)
    assert policies.format_plan(found)[-1] == (
        "  does not apply, all traffic moves at once: steps, mirror, preview.header"
    )
    unused = stored(spec={"gates": [{"metric": "errorRate", "max": "1%"}]})
    assert policies.describe_policy(unused, in_steps=False).unused == [
        "gate errorRate (no request reaches the new cluster before; add warmUp or preview.service)"
    ]
    assert (
        policies.describe_policy(
            stored(spec={**unused.spec, "warmUp": {"requests": 5}}), in_steps=False
        ).unused
        == []
    )
    asking = stored(
        spec={"gates": [WEBHOOK, PROMETHEUS], "bake": "5m", "preview": {"service": True}}
    )
    assert policies.describe_policy(asking, in_steps=False).unused == []
    invalid = stored(spec={"bake": "soon"})
    assert policies.describe_policy(invalid, in_steps=False) == policies.describe_policy(invalid)


SUMMARIES: Final[list[tuple[Json, str]]] = [
    ({}, "steps of clusterUpgradeOptions; no gates; at least 0 s"),
    (
        {"mirror": {"percent": 5, "duration": "61s"}},
        "steps of clusterUpgradeOptions; no gates; at least 1 min 1 s",
    ),
    (
        {"applyEdits": "AtOnce"},
        "steps of clusterUpgradeOptions; no gates; at least 0 s; edits apply at once",
    ),
    ({"autoPromote": False}, "steps of clusterUpgradeOptions; no gates; at least 0 s and 1 pause"),
    (
        {
            "autoPromote": False,
            "steps": [{"weight": 9, "pause": {}}, {"weight": 100, "hold": "5s"}],
        },
        "steps of 9, 100 %; no gates; at least 5 s and 2 pauses",
    ),
    (
        {"autoPromote": False, "steps": [{"weight": 100, "pause": {}}]},
        "steps of 100 %; no gates; at least 0 s and 1 pause",
    ),
]


@pytest.mark.parametrize(("spec", "waits"), SUMMARIES)
def test_a_summary_counts_what_an_upgrade_waits_for(spec: Json, waits: str) -> None:
    assert policies.describe_policy(stored(spec=spec)).summary == waits


def test_a_limit_in_seconds_and_a_pause_on_failure() -> None:
    spec = {
        "gates": [{"metric": "latencyP99", "max": "250ms", "minRequests": 7}],
        "onFailure": "Pause",
    }
    assert policies.describe_policy(stored(spec=spec)).gates == [
        "latencyP99: at most 0.25 s, from 7 requests; else pause"
    ]


@pytest.mark.parametrize(
    ("name", "held", "expected"),
    [
        ("", [], None),
        ("", [stored("a")], None),
        ("", [stored("a"), stored("b", annotations=DEFAULT)], "b"),
        ("", [stored("a", annotations={"raybus.io/default": "yes"})], None),
        ("a", [stored("a"), stored("b", annotations=DEFAULT)], "a"),
    ],
)
def test_the_policy_of_a_service_is_the_one_it_names_else_the_default(
    name: str, held: list[Stored], expected: str | None
) -> None:
    found = policies.choose_policy(name, held)
    assert (None if found is None else found.name) == expected
    assert found is None or found.problem is None


@pytest.mark.parametrize(
    ("name", "held", "line"),
    [
        (
            "gone",
            [stored("b", annotations=DEFAULT)],
            "UpgradePolicy gone: the upgrade waits: it does not exist; create it, or remove the annotation",
        ),
        (
            "",
            [stored("b", annotations=DEFAULT), stored("a", annotations=DEFAULT)],
            "UpgradePolicy a, b: the upgrade waits: leave raybus.io/default on one of them",
        ),
        (
            "a",
            [stored("a", {**CAREFUL, "gates": [{**GATE, "max": "1 %"}]})],
            'UpgradePolicy a: the upgrade waits: spec.gates[0].max: "1 %" is not a percentage such as 1% or 0.5%, at most 100%',
        ),
    ],
)
def test_a_policy_that_an_upgrade_cannot_begin_with_is_named(
    name: str, held: list[Stored], line: str
) -> None:
    found = policies.choose_policy(name, held)
    assert found is not None
    assert policies.format_plan(found) == [line]


class Denying:
    """An API server that fails each list of UpgradePolicies."""

    def __init__(self, problem: Exception) -> None:
        self._problem = problem

    async def list(self, resource: Resource, namespace: str | None = None, **_: object) -> bytes:
        assert resource is UPGRADE_POLICY
        assert namespace == "default"
        raise self._problem


@pytest.mark.parametrize(
    ("problem", "named", "expected"),
    [
        (errors.NotFound("x"), "", None),
        (errors.Forbidden("x"), "", None),
        (
            errors.Forbidden("no right"),
            "a",
            PolicyPlan(name="a", problem="it cannot be read: no right"),
        ),
        (
            errors.NotFound("x"),
            "a",
            PolicyPlan(name="a", problem="it does not exist; create it, or remove the annotation"),
        ),
    ],
)
async def test_without_the_kind_or_the_right_only_a_named_policy_matters(
    problem: Exception, named: str, expected: PolicyPlan | None
) -> None:
    marks = {"raybus.io/upgrade-policy": named} if named else {}
    service = ray_service.decode(snapshots.a_service(annotations=marks))
    kube: object = Denying(problem)
    assert await cli.read_policy_plan(kube, service) == expected  # pyright: ignore[reportArgumentType] - lists alone


async def test_a_text_that_is_no_name_is_named() -> None:
    service = ray_service.decode(
        snapshots.a_service(annotations={"raybus.io/upgrade-policy": "../x"})
    )
    kube: object = Denying(AssertionError())
    found = await cli.read_policy_plan(kube, service)  # pyright: ignore[reportArgumentType] - it is not asked
    assert found is not None
    assert "is not the name of an UpgradePolicy" in str(found.problem)
