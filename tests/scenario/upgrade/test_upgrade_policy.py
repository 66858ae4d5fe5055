"""Upgrades in steps that follow an UpgradePolicy: its steps, pauses, gates and bake, by both services; ADR 28."""

import copy
from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import HTTP_ROUTE, POD, RAY_CLUSTER, RAY_SERVICE, SERVICE, UPGRADE_POLICY
from scenario.service_reconciler.harness import TICK
from scenario.upgrade.harness import BLUE, GREEN, RED, Pair, a_running_pair
from support.builders.ray_service import NAME, NAMESPACE, a_serve_config, a_strategy
from support.builders.upgrade_policy import a_policy
from support.fakes.kube import Request

CANARY: Json = {
    "steps": [{"weight": 10, "hold": "20s"}, {"weight": 50, "hold": "10s"}, {"weight": 100}]
}
GATED: Json = {**CANARY, "gates": [{"metric": "errorRate", "max": "1%", "minRequests": 100}]}
GROWTH: Json = {"metric": "errorRate", "maxIncrease": "30%", "minRequests": 100}
FOLLOWS: Json = {labels.UPGRADE_POLICY: "careful"}
AT = "2026-01-01T12:00:00Z"
WHOLE_SURGE = a_strategy(surge=100, step=100, interval=1)


class Traffic:
    """Clients that send so many requests per second, shared by the weights; a part of those to each cluster fails."""

    def __init__(self, harness: Pair, *, rate: float = 50) -> None:
        self.harness = harness
        self.rate = rate
        self.failing: dict[str, float] = {}
        """By cluster: the fraction of its requests that fails."""
        self.sent: dict[str, float] = {}
        honest = harness.clusters_move_on

        def move_on() -> None:
            honest()
            for cluster, weight in harness.weights.items():
                answered = self.rate * TICK * weight / 100
                head = harness.serve.head(f"{cluster}-head-svc")
                head.answered += answered
                head.failed += answered * self.failing.get(cluster, 0)
                self.sent[cluster] = self.sent.get(cluster, 0) + answered

        harness.clusters_move_on = move_on


async def an_upgrade(
    spec: Json, *, annotations: Json | None = None, strategy: Json = WHOLE_SURGE
) -> tuple[Pair, Traffic]:
    """Return a service with requests just after a change of its spec, and with a policy."""
    harness = await a_running_pair(upgradeStrategy=strategy)
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace=NAMESPACE))
    traffic = Traffic(harness)
    apply(harness, config=GREEN, strategy=strategy, annotations={**FOLLOWS, **(annotations or {})})
    await harness.until(
        lambda: bool(harness.pending) and harness.pending in harness.clusters, seconds=20
    )
    return harness, traffic


def apply(
    harness: Pair, *, config: Json, annotations: Json | None = None, strategy: Json = WHOLE_SURGE
) -> None:
    harness.apply(
        config=config,
        upgradeStrategy=strategy,
        annotations=FOLLOWS if annotations is None else annotations,
    )


def annotate(harness: Pair, **annotations: Any) -> None:
    body = harness.service
    body = {
        **body,
        "metadata": {
            **body["metadata"],
            "annotations": {**body["metadata"]["annotations"], **annotations},
        },
    }
    harness.kube.put(RAY_SERVICE, body)


async def at_weight(harness: Pair, weight: int, *, seconds: float = 60) -> float:
    """Wait until the pending cluster has a weight; return when that was."""
    await harness.until(lambda: harness.weights.get(harness.pending) == weight, seconds=seconds)
    return harness.clock.monotonic()


def moves(harness: Pair) -> list[int | None]:
    """Return the weights that the pending cluster had, in order."""
    seen = [view.weights[1] for _, view in harness.trace]
    return [each for index, each in enumerate(seen) if index == 0 or each != seen[index - 1]]


async def test_traffic_moves_by_the_steps_of_the_policy_and_each_holds_for_its_time() -> None:
    harness, _ = await an_upgrade(CANARY)
    began = await at_weight(harness, 10)
    middle = await at_weight(harness, 50)
    end = await at_weight(harness, 100)
    assert 20 <= middle - began < 24
    assert 10 <= end - middle < 14
    await harness.until(harness.is_complete)


async def test_without_a_policy_nothing_is_recorded_and_the_steps_are_those_of_the_spec() -> None:
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=CANARY, namespace=NAMESPACE))
    apply(harness, config=GREEN, annotations={})
    await harness.until(
        lambda: bool(harness.pending) and harness.pending in harness.clusters, seconds=20
    )
    annotations = harness.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, harness.pending)]["metadata"][
        "annotations"
    ]
    assert labels.UPGRADE_POLICY_RECORD not in annotations
    await harness.until(harness.is_complete)
    assert 10 not in moves(harness)


async def test_the_default_of_the_namespace_holds_for_a_service_that_names_none() -> None:
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    default = a_policy(
        spec=CANARY, namespace=NAMESPACE, annotations={labels.DEFAULT_POLICY: "true"}
    )
    harness.kube.put(UPGRADE_POLICY, default)
    apply(harness, config=GREEN, annotations={})
    await at_weight(harness, 10)
    assert harness.weights[harness.pending] == 10


async def test_among_too_many_policies_no_default_is_searched_and_the_upgrade_waits() -> None:
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    blue = harness.active
    for number in range(101):
        harness.kube.put(UPGRADE_POLICY, a_policy(f"p{number}", CANARY, namespace=NAMESPACE))
    apply(harness, config=GREEN, annotations={})
    await harness.run(10)
    assert harness.clusters == [blue]
    assert "is not searched among more than 100" in harness.message("UpgradePaused")
    await harness.kube.delete(UPGRADE_POLICY, NAMESPACE, "p7")
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)


async def test_an_upgrade_follows_the_policy_that_it_began_with() -> None:
    harness, _ = await an_upgrade(CANARY)
    await at_weight(harness, 10)
    harness.kube.put(
        UPGRADE_POLICY,
        a_policy(spec={"steps": [{"weight": 77}, {"weight": 100}]}, namespace=NAMESPACE),
    )
    await harness.until(harness.is_complete, seconds=120)
    assert [each for each in moves(harness) if each][:3] == [10, 50, 100]


async def test_a_step_pauses_until_its_user_lets_the_upgrade_go_on_even_across_a_restart() -> None:
    harness, _ = await an_upgrade({"steps": [{"weight": 25, "pause": {}}, {"weight": 100}]})
    await at_weight(harness, 25)
    await harness.run(30)
    harness.restart()
    await harness.run(30)
    assert harness.weights[harness.pending] == 25
    assert harness.condition("UpgradePaused") == ("True", "PausedByPolicy")
    assert harness.message("UpgradePaused") == "Paused at 25 percent by UpgradePolicy careful."
    annotate(harness, **{labels.APPROVED_STEP: "another-cluster/100"})
    await harness.run(5)
    assert harness.weights[harness.pending] == 25
    annotate(harness, **{labels.APPROVED_STEP: f"{harness.pending}/25"})
    await harness.until(harness.is_complete)


async def test_a_pause_does_not_count_against_the_deadline() -> None:
    strict = {labels.PROGRESS_DEADLINE: "20s", labels.ON_DEADLINE: "Rollback"}
    harness, _ = await an_upgrade(
        {"steps": [{"weight": 25, "pause": {}}, {"weight": 100}]}, annotations=strict
    )
    await at_weight(harness, 25)
    await harness.run(60)
    assert harness.weights[harness.pending] == 25


async def test_a_good_version_passes_its_gates() -> None:
    harness, traffic = await an_upgrade(GATED)
    await harness.until(harness.is_complete, seconds=200)
    assert [each for each in moves(harness) if each][:3] == [10, 50, 100]
    assert traffic.sent[harness.active] >= 100


async def test_a_step_waits_for_requests_and_the_deadline_reports_it() -> None:
    harness, traffic = await an_upgrade(GATED, annotations={labels.PROGRESS_DEADLINE: "40s"})
    traffic.rate = 0.5
    await at_weight(harness, 10)
    await harness.run(45)
    assert harness.weights[harness.pending] == 10
    assert "the gates errorRate are not decided yet" in harness.message("UpgradeInProgress")
    await harness.run(45)
    assert harness.condition("UpgradeStalled") == ("True", "GateInconclusive")
    traffic.rate = 50
    await harness.until(harness.is_complete, seconds=200)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_bad_version_is_taken_back_at_once_and_is_not_tried_again(
    *, is_killed: bool
) -> None:
    harness, traffic = await an_upgrade(GATED)
    blue, green = harness.active, harness.pending
    traffic.failing[green] = 0.2
    await at_weight(harness, 10)
    await harness.until(lambda: harness.weights.get(green) == 0, seconds=60)
    if is_killed:
        harness.restart()
    await harness.until(lambda: not harness.pending, seconds=60)
    assert "GateFailed" in harness.reasons()
    assert harness.condition("UpgradeAborted") == ("True", "GateFailed")
    assert "errorRate" in harness.message("UpgradeAborted")
    await harness.run(120)
    assert (harness.active, harness.pending) == (blue, "")
    assert harness.weights[blue] == 100
    assert max(each or 0 for each in moves(harness)) == 10
    assert traffic.sent[green] <= 0.05 * traffic.sent[blue]


async def test_a_corrected_version_is_tried_after_a_bad_one() -> None:
    harness, traffic = await an_upgrade(GATED)
    traffic.failing[harness.pending] = 0.2
    await harness.until(lambda: harness.condition("UpgradeAborted")[0] == "True", seconds=100)
    harness.trace.clear()
    apply(harness, config=RED)
    await harness.run(2)
    await harness.until(
        lambda: harness.is_complete() and harness.condition("UpgradeAborted")[0] != "True",
        seconds=300,
    )
    assert [each for each in moves(harness) if each][:3] == [10, 50, 100]


@pytest.mark.parametrize("later", [0, 1, 2, 30])
async def test_a_serve_config_that_corrects_a_bad_version_is_tried_in_a_new_cluster(
    later: float,
) -> None:
    harness, traffic = await an_upgrade(GATED)
    green = harness.pending
    traffic.failing[green] = 0.2
    await harness.until(lambda: harness.condition("UpgradeAborted")[0] == "True", seconds=100)
    await harness.run(later)
    serve = a_serve_config(message="corrected")
    harness.apply(
        config=GREEN, serveConfigV2=serve, upgradeStrategy=WHOLE_SURGE, annotations=FOLLOWS
    )
    await harness.until(lambda: bool(harness.pending) and harness.pending != green, seconds=60)
    assert harness.weights.get(green, 0) == 0
    harness.trace.clear()
    await harness.until(harness.is_complete, seconds=200)
    assert [each for each in moves(harness) if each][:3] == [10, 50, 100]


async def test_what_a_pod_answers_to_a_warm_up_is_recorded_within_the_bounds_of_the_record() -> (
    None
):
    harness, traffic = await an_upgrade({**CANARY, "warmUp": {"requests": 5}})
    green = harness.pending
    harness.serve.refuses_after, harness.serve.refusal = 0, "500 \x1b[31m" + "x" * 3000
    await harness.until(
        lambda: harness.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=60
    )
    assert traffic.sent.get(green, 0) == 0
    assert "\x1b" not in harness.message("UpgradeAborted")
    assert len(harness.message("UpgradeAborted")) < 1200


async def test_a_corrected_version_follows_the_policy_after_a_failed_warm_up() -> None:
    harness, _ = await an_upgrade({**CANARY, "warmUp": {"requests": 10}})
    harness.serve.refuses_after = 0
    await harness.until(
        lambda: harness.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=60
    )
    await harness.run(30)
    harness.serve.refuses_after = None
    harness.trace.clear()
    apply(harness, config=RED)
    await harness.run(2)
    await harness.until(harness.is_complete, seconds=200)
    assert [each for each in moves(harness) if each][:3] == [10, 50, 100]


async def test_an_upgrade_that_is_retried_follows_its_policy() -> None:
    harness, _ = await an_upgrade(CANARY)
    await at_weight(harness, 10)
    annotate(harness, **{labels.ABORT: "true"})
    await harness.until(lambda: not harness.pending, seconds=60)
    harness.trace.clear()
    annotate(harness, **{labels.ABORT: "false"})
    await harness.run(2)
    await harness.until(harness.is_complete, seconds=200)
    assert [each for each in moves(harness) if each][:3] == [10, 50, 100]


@pytest.mark.parametrize("weight", [0, 10, 50])
async def test_a_third_spec_follows_the_policy_too(weight: int) -> None:
    harness, _ = await an_upgrade(CANARY)
    green = harness.pending
    if weight:
        await at_weight(harness, weight)
    apply(harness, config=RED)
    await harness.until(lambda: bool(harness.pending) and harness.pending != green, seconds=60)
    harness.trace.clear()
    await harness.until(harness.is_complete, seconds=200)
    assert [each for each in moves(harness) if each][:3] == [10, 50, 100]


async def test_a_failed_gate_pauses_where_the_policy_wants_that_and_an_abort_takes_the_version_back() -> (
    None
):
    harness, traffic = await an_upgrade({**GATED, "onFailure": "Pause"})
    blue, green = harness.active, harness.pending
    traffic.failing[green] = 0.2
    await at_weight(harness, 10)
    await harness.until(
        lambda: harness.condition("UpgradePaused") == ("True", "GateFailed"), seconds=60
    )
    harness.restart()
    await harness.run(30)
    assert harness.weights == {blue: 90, green: 10}
    annotate(harness, **{labels.ABORT: "true"})
    await harness.until(lambda: harness.weights.get(blue) == 100, seconds=30)


async def test_promote_ignores_the_gates() -> None:
    harness, traffic = await an_upgrade({**GATED, "onFailure": "Pause"})
    green = harness.pending
    traffic.failing[green] = 0.2
    await harness.until(
        lambda: harness.condition("UpgradePaused") == ("True", "GateFailed"), seconds=100
    )
    annotate(harness, **{labels.PROMOTE: "true"})
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=60)


async def test_the_old_cluster_keeps_its_capacity_during_the_bake_and_a_revert_moves_all_traffic_in_one_write() -> (
    None
):
    harness, _ = await an_upgrade({**CANARY, "bake": "60s"})
    blue, green = harness.active, harness.pending
    baked = await at_weight(harness, 100)
    await harness.run(40)
    assert harness.view.capacities == (100, 100)
    assert (harness.active, harness.pending) == (blue, green)
    harness.trace.clear()
    apply(harness, config=BLUE)
    await harness.until(lambda: harness.weights.get(blue) == 100, seconds=5)
    assert harness.clock.monotonic() - baked < 50
    assert [
        view.weights for _, view in harness.trace if view.weights[1] not in {0, 100, None}
    ] == []
    await harness.until(harness.is_complete)
    assert harness.active == blue


async def test_an_upgrade_is_promoted_after_its_bake() -> None:
    harness, _ = await an_upgrade({**CANARY, "bake": "60s"})
    green = harness.pending
    began = await at_weight(harness, 100)
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=100)
    assert 60 <= harness.clock.monotonic() - began < 75


async def test_errors_that_begin_during_the_bake_roll_back() -> None:
    harness, traffic = await an_upgrade({**GATED, "bake": "300s"})
    blue, green = harness.active, harness.pending
    await at_weight(harness, 100, seconds=200)
    await harness.run(30)
    traffic.failing[green] = 0.3
    await harness.until(lambda: harness.weights.get(blue) == 100, seconds=30)
    await harness.until(lambda: harness.is_complete() and harness.active == blue, seconds=60)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_gate_by_growth_holds_without_traffic_of_the_active_cluster_and_lets_a_good_version_be_promoted(
    *, is_killed: bool
) -> None:
    harness, _ = await an_upgrade({**CANARY, "gates": [GROWTH], "bake": "60s"})
    green = harness.pending
    await at_weight(harness, 100, seconds=200)
    if is_killed:
        harness.restart()
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=100)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_gate_by_growth_takes_a_version_back_that_fails_during_the_bake(
    *, is_killed: bool
) -> None:
    harness, traffic = await an_upgrade({**CANARY, "gates": [GROWTH], "bake": "300s"})
    blue, green = harness.active, harness.pending
    await at_weight(harness, 100, seconds=200)
    if is_killed:
        harness.restart()
        await harness.run(20)
    traffic.failing[green] = 0.3
    await harness.until(lambda: harness.weights.get(blue) == 100, seconds=40)


async def test_errors_that_begin_late_in_a_long_bake_are_not_hidden_by_the_requests_before_them() -> (
    None
):
    harness, traffic = await an_upgrade({**GATED, "bake": "2h"})
    blue, green = harness.active, harness.pending
    traffic.rate = 1000
    await at_weight(harness, 100, seconds=200)
    await harness.run(400)
    traffic.failing[green] = 0.05
    began = harness.clock.monotonic()
    await harness.until(lambda: harness.weights.get(blue) == 100, seconds=60)
    assert harness.clock.monotonic() - began < 30, (
        "with the whole bake as one window it takes 100 s"
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (None, "UpgradePolicy careful does not exist in namespace default"),
        (a_policy(spec={"steps": [{"weight": 10}]}, namespace=NAMESPACE), "spec.steps[0].weight"),
    ],
)
async def test_an_upgrade_waits_for_the_policy_that_it_is_to_follow(
    body: Json | None, text: str
) -> None:
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    if body is not None:
        harness.kube.put(UPGRADE_POLICY, body)
    blue = harness.active
    apply(harness, config=GREEN)
    await harness.run(10)
    assert harness.clusters == [blue]
    assert harness.condition("UpgradePaused") == ("True", "InvalidUpgradePolicy")
    assert text in harness.message("UpgradePaused")
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=CANARY, namespace=NAMESPACE))
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)


def accepted(harness: Pair) -> Json | None:
    """Return the condition Accepted of the policy."""
    found = (
        harness.kube.objects[(UPGRADE_POLICY.kind, NAMESPACE, "careful")]
        .get("status", {})
        .get("conditions", [])
    )
    return next((each for each in found if each["type"] == "Accepted"), None)


async def test_a_policy_reports_whether_an_upgrade_can_follow_it() -> None:
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    harness.kube.put(
        UPGRADE_POLICY,
        a_policy(spec={"steps": [{"weight": 10}]}, namespace=NAMESPACE, generation=3),
    )
    assert accepted(harness) is None
    apply(harness, config=GREEN)
    await harness.run(20)
    found = accepted(harness)
    assert found is not None
    assert (found["status"], found["reason"], found["observedGeneration"]) == (
        "False",
        "Invalid",
        3,
    )
    assert "spec.steps[0].weight" in found["message"]
    written = [each for each in harness.kube.writes() if "UpgradePolicy" in each]
    assert len(written) == 1, written
    body = a_policy(spec=CANARY, namespace=NAMESPACE, generation=4)
    body["status"] = {"conditions": [found, {**found, "type": "Else", "message": "another's"}]}
    harness.kube.put(UPGRADE_POLICY, body)
    await harness.until(
        lambda: bool(harness.pending) and harness.pending in harness.clusters, seconds=20
    )
    held = accepted(harness)
    assert held is not None
    assert (held["status"], held["reason"], held["observedGeneration"]) == ("True", "Accepted", 4)
    assert (
        len(
            harness.kube.objects[(UPGRADE_POLICY.kind, NAMESPACE, "careful")]["status"][
                "conditions"
            ]
        )
        == 2
    )


async def test_an_upgrade_does_not_wait_for_the_status_of_its_policy() -> None:
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=CANARY, namespace=NAMESPACE))

    def refuse(request: Request) -> errors.RaybusError | None:
        is_status = request.kind == UPGRADE_POLICY.kind and request.verb not in {"get", "list"}
        return errors.Forbidden("no right") if is_status else None

    harness.kube.faults.append(refuse)
    apply(harness, config=GREEN)
    await harness.until(
        lambda: bool(harness.pending) and harness.pending in harness.clusters, seconds=20
    )
    assert accepted(harness) is None


async def test_a_forged_record_on_a_cluster_or_in_the_annotations_of_a_service_is_no_policy() -> (
    None
):
    forged = {
        labels.UPGRADE_POLICY_RECORD: '{"name":"x","spec":{"steps":[{"weight":100,"hold":"168h"}]}}'
    }
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE, annotations=forged)
    apply(harness, config=GREEN, annotations=forged)
    await harness.until(
        lambda: bool(harness.pending) and harness.pending in harness.clusters, seconds=20
    )
    await harness.until(harness.is_complete, seconds=60)
    body = harness.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, harness.active)]
    assert labels.UPGRADE_POLICY_RECORD not in body["metadata"]["annotations"]
    assert NAME in body["metadata"]["name"]


async def test_the_pending_cluster_is_warmed_up_before_its_first_traffic() -> None:
    harness, _ = await an_upgrade(
        {**CANARY, "warmUp": {"requests": 30, "path": "/warm", "concurrency": 4}}
    )
    green = harness.pending
    await at_weight(harness, 10)
    assert len(harness.serve.requests) == 30
    assert {path for _, path in harness.serve.requests} == {"/warm"}
    assert {pod for pod, _ in harness.serve.requests} == {f"{green}-head", f"{green}-worker"}
    await harness.until(harness.is_complete, seconds=200)
    assert len(harness.serve.requests) == 30


async def test_a_failed_warm_up_ends_the_upgrade_before_any_traffic() -> None:
    harness, traffic = await an_upgrade({**CANARY, "warmUp": {"requests": 30}})
    blue, green = harness.active, harness.pending
    harness.serve.refuses_after = 10
    await harness.until(
        lambda: harness.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=60
    )
    await harness.run(60)
    assert (harness.active, harness.pending) == (blue, "")
    assert traffic.sent.get(green, 0) == 0
    assert "request 11 of the warm-up was not answered" in harness.message("UpgradeAborted")


@pytest.mark.parametrize("weight", [0, 10, 50])
async def test_a_silent_dashboard_of_the_active_cluster_skips_no_step(weight: int) -> None:
    harness, traffic = await an_upgrade(GATED)
    blue, green = harness.active, harness.pending
    if weight:
        await at_weight(harness, weight)
    harness.serve.head(f"{blue}-head-svc").behaviour = "silent"
    await harness.until(lambda: harness.weights.get(green) == 100, seconds=120)
    assert [each for each in moves(harness) if each][:3] == [10, 50, 100]
    assert traffic.sent[green] > 200


async def test_a_bad_version_is_taken_back_to_an_active_cluster_with_a_silent_dashboard() -> None:
    harness, traffic = await an_upgrade(GATED)
    blue, green = harness.active, harness.pending
    await at_weight(harness, 10)
    harness.serve.head(f"{blue}-head-svc").behaviour = "silent"
    await harness.run(5)
    traffic.failing[green] = 0.2
    await harness.until(lambda: harness.weights.get(blue) == 100, seconds=60)
    await harness.run(30)
    assert harness.weights[blue] == 100, (
        "a failed version gets no traffic for the silence of a dashboard"
    )
    assert max(each or 0 for each in moves(harness)) == 10


async def test_an_active_cluster_without_ready_endpoints_leaves_all_traffic_whatever_the_steps() -> (
    None
):
    harness, _ = await an_upgrade(GATED)
    blue, green = harness.active, harness.pending
    await at_weight(harness, 10)
    harness.kube.set_status(POD, NAMESPACE, f"{blue}-worker", {"phase": "Failed"})
    await harness.until(lambda: harness.weights.get(green) == 100, seconds=5)


PREVIEW: Json = {
    "preview": {"service": True, "header": {"name": "x-raybus-version", "value": "next"}}
}
MIRROR: Json = {"mirror": {"percent": 10, "duration": "30s"}}


def route(harness: Pair, role: str) -> Json | None:
    return harness.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute-{role}"))


def preview_service(harness: Pair) -> Json | None:
    return harness.kube.objects.get((SERVICE.kind, NAMESPACE, f"{NAME}-preview-svc"))


async def test_a_preview_reaches_the_pending_cluster_until_the_promotion() -> None:
    harness, _ = await an_upgrade(
        {**PREVIEW, "steps": [{"weight": 25, "pause": {}}, {"weight": 100}]}
    )
    green = harness.pending
    await at_weight(harness, 25)
    found, service = route(harness, "preview"), preview_service(harness)
    assert found is not None
    assert service is not None
    assert service["spec"]["selector"] == {labels.CLUSTER: green, labels.SERVE: "true"}
    (rule,) = found["spec"]["rules"]
    assert rule["matches"] == [
        {
            "path": {"type": "PathPrefix", "value": "/"},
            "headers": [{"type": "Exact", "name": "x-raybus-version", "value": "next"}],
        }
    ]
    assert [each["name"] for each in rule["backendRefs"]] == [f"{green}-serve-svc"]
    annotate(harness, **{labels.APPROVED_STEP: f"{green}/25"})
    await harness.until(harness.is_complete)
    await harness.run(5)
    assert (route(harness, "preview"), preview_service(harness)) == (None, None)


@pytest.mark.parametrize("end", [{labels.ABORT: "true"}, None])
async def test_a_preview_ends_with_an_abort_and_with_a_suspend(end: Json | None) -> None:
    harness, _ = await an_upgrade(
        {**PREVIEW, "steps": [{"weight": 25, "pause": {}}, {"weight": 100}]}
    )
    await at_weight(harness, 25)
    assert route(harness, "preview") is not None
    if end is not None:
        annotate(harness, **end)
    else:
        harness.apply(config=GREEN, upgradeStrategy=WHOLE_SURGE, annotations=FOLLOWS, suspend=True)
    await harness.until(
        lambda: route(harness, "preview") is None and preview_service(harness) is None, seconds=60
    )


async def test_requests_are_mirrored_before_the_first_traffic_and_for_the_duration_of_the_policy() -> (
    None
):
    harness, traffic = await an_upgrade({**CANARY, **MIRROR})
    blue, green = harness.active, harness.pending
    await harness.until(lambda: route(harness, "mirror") is not None)
    began = harness.clock.monotonic()
    found = route(harness, "mirror")
    assert found is not None
    (rule,) = found["spec"]["rules"]
    assert [each["method"] for each in rule["matches"]] == ["GET"]
    assert [each["name"] for each in rule["backendRefs"]] == [f"{blue}-serve-svc"]
    assert rule["filters"][0]["requestMirror"]["percent"] == 10
    assert rule["filters"][0]["requestMirror"]["backendRef"]["name"] == f"{green}-serve-svc"
    await harness.run(20)
    harness.restart()
    assert traffic.sent.get(green, 0) == 0
    await at_weight(harness, 10)
    assert 29 <= harness.clock.monotonic() - began < 40
    assert route(harness, "mirror") is None
    await harness.until(harness.is_complete, seconds=100)
    created = [
        each
        for each in harness.kube.requests
        if str(each) == f"create HTTPRoute {NAME}-httproute-mirror"
    ]
    assert len(created) == 1


async def test_a_mirror_never_keeps_requests_at_a_cluster_that_died() -> None:
    harness, _ = await an_upgrade({**CANARY, **MIRROR})
    blue = harness.active
    await harness.until(lambda: route(harness, "mirror") is not None)
    await harness.run(2)
    lost = {
        "type": "HeadPodReady",
        "status": "False",
        "reason": "HeadPodNotFound",
        "message": "",
        "lastTransitionTime": AT,
    }
    harness.kube.set_status(RAY_CLUSTER, NAMESPACE, blue, {"state": "", "conditions": [lost]})
    await harness.until(lambda: harness.weights.get(blue) == 0, seconds=20)
    await harness.run(0.5)
    assert route(harness, "mirror") is None


async def test_a_mirror_route_under_its_former_name_is_found_and_ends_in_time() -> None:
    harness, _ = await an_upgrade({**CANARY, **MIRROR, **PREVIEW})
    await harness.until(lambda: route(harness, "mirror") is not None)
    began = harness.clock.monotonic()
    await harness.run(2)
    for role in ("mirror", "preview"):
        present = route(harness, role)
        assert present is not None
        former = {
            **present,
            "metadata": {**present["metadata"], "name": f"{NAME}-{role}-httproute"},
        }
        del former["metadata"]["uid"]
        await harness.kube.delete(HTTP_ROUTE, NAMESPACE, present["metadata"]["name"])
        harness.kube.put(HTTP_ROUTE, former)
    harness.restart()
    await at_weight(harness, 10)
    assert harness.clock.monotonic() - began < 40
    await harness.until(harness.is_complete, seconds=100)
    await harness.run(2)
    left = [each["metadata"]["name"] for each in harness.kube.all(HTTP_ROUTE)]
    assert left == [f"{NAME}-httproute"]


async def test_the_weighted_route_of_a_service_called_mirror_is_no_mirror_route_of_ours() -> None:
    theirs: Json = {
        "metadata": {
            "name": f"{NAME}-mirror-httproute",
            "creationTimestamp": "2026-01-01T11:00:00Z",
            "ownerReferences": [
                {
                    "apiVersion": "ray.io/v1",
                    "kind": "RayService",
                    "name": f"{NAME}-mirror",
                    "uid": "of-the-other",
                    "controller": True,
                }
            ],
        },
        "spec": {"rules": []},
    }
    harness, _ = await an_upgrade({**CANARY, **MIRROR})
    harness.kube.put(HTTP_ROUTE, copy.deepcopy(theirs))
    await harness.until(lambda: route(harness, "mirror") is not None)
    await harness.until(harness.is_complete, seconds=150)
    held = harness.kube.objects[HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-mirror-httproute"]
    assert held["spec"] == theirs["spec"]


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_a_taken_name_of_a_mirror_route_is_reported_and_no_traffic_moves(
    *, is_sharded: bool
) -> None:
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    harness.is_sharded = is_sharded
    harness.kube.put(UPGRADE_POLICY, a_policy(spec={**CANARY, **MIRROR}, namespace=NAMESPACE))
    name = f"{NAME}-httproute-mirror"
    theirs: Json = {"metadata": {"name": name}, "spec": {"rules": []}}
    harness.kube.put(HTTP_ROUTE, copy.deepcopy(theirs))
    apply(harness, config=GREEN, strategy=WHOLE_SURGE, annotations=FOLLOWS)
    await harness.run(30)
    text = f"HTTPRoute {NAMESPACE}/{name} exists and is not owned by RayService {NAME}: delete it"
    assert text in harness.message("UpgradeInProgress")
    assert harness.weights == {harness.active: 100, harness.pending: 0}
    before = len(harness.kube.writes())
    await harness.run(60)
    assert len(harness.kube.writes()) == before
    await harness.kube.delete(HTTP_ROUTE, NAMESPACE, name)
    await harness.until(harness.is_complete, seconds=150)


@pytest.mark.parametrize("is_labelled", [True, False])
@pytest.mark.parametrize("is_sharded", [True, False])
@pytest.mark.parametrize("strategy", [WHOLE_SURGE, {"type": "NewCluster"}])
async def test_a_taken_name_of_the_preview_service_is_reported_and_stops_no_upgrade(
    strategy: Json, *, is_sharded: bool, is_labelled: bool
) -> None:
    harness = Pair()
    harness.apply(config=BLUE, upgradeStrategy=strategy)
    await harness.until(harness.is_complete)
    harness.is_sharded = is_sharded
    policy = {"preview": {"service": True}, "autoPromote": False}
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=policy, namespace=NAMESPACE))
    owner = [{"kind": "Job", "name": "other", "uid": "u", "controller": True}]
    marks = {labels.ORIGIN_NAME: NAME, labels.ORIGIN_KIND: "RayService"} if is_labelled else {}
    name = f"{NAME}-preview-svc"
    theirs: Json = {
        "metadata": {"name": name, "labels": marks, "ownerReferences": owner},
        "spec": {"selector": {"app": "elsewhere"}, "ports": [{"name": "serve", "port": 8000}]},
    }
    harness.kube.put(SERVICE, copy.deepcopy(theirs))
    apply(harness, config=GREEN, strategy=strategy)
    text = (
        f"Service {NAMESPACE}/{name} exists and is not owned by RayService {NAME}: delete it, or "
        "give the RayService another name"
    )
    await harness.until(lambda: text in harness.message("UpgradeInProgress"))
    await harness.until(lambda: harness.condition("UpgradePaused")[0] == "True")
    green, held = harness.pending, preview_service(harness)
    assert harness.kube.events().count(("Warning", "ServiceNotOwned", text)) == 1
    assert held is not None
    assert held["spec"]["selector"] == {"app": "elsewhere"}
    before = len(harness.kube.writes())
    await harness.run(60)
    assert len(harness.kube.writes()) == before
    await harness.kube.delete(SERVICE, NAMESPACE, name)
    await harness.until(lambda: preview_service(harness) is not None, seconds=40)
    annotate(harness, **{labels.APPROVED_STEP: f"{green}/100"})
    await harness.until(lambda: harness.is_complete() and harness.active == green)
    await harness.until(lambda: preview_service(harness) is None, seconds=5)


@pytest.mark.parametrize("state", ["the bus is silent", "the spec is invalid"])
async def test_no_side_route_sends_requests_to_a_deleted_active_cluster(state: str) -> None:
    harness, _ = await an_upgrade({**CANARY, **MIRROR, **PREVIEW})
    blue, green = harness.active, harness.pending
    await harness.until(lambda: route(harness, "mirror") is not None)
    await harness.run(5)
    if state == "the bus is silent":
        harness.is_bus_silent = True
    else:
        invalid = a_strategy(surge=5, step=25)
        harness.apply(config=GREEN, upgradeStrategy=invalid, annotations=FOLLOWS)
        await harness.run(2)
    await harness.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    await harness.run(10)
    assert harness.weights == {green: 100}
    assert route(harness, "mirror") is None
    assert route(harness, "preview") is None
    deleted = [
        str(each)
        for each in harness.kube.requests
        if each.verb == "delete" and each.kind == HTTP_ROUTE.kind
    ]
    assert len(deleted) == 2


async def test_a_mirror_route_that_could_not_be_deleted_while_the_bus_is_silent_is_deleted_later() -> (
    None
):
    harness, _ = await an_upgrade({**CANARY, **MIRROR})
    await harness.until(lambda: route(harness, "mirror") is not None)
    await harness.run(2)
    harness.is_bus_silent = True
    refused = [2]

    def refuse(request: Request) -> errors.RaybusError | None:
        if request.verb == "delete" and request.kind == HTTP_ROUTE.kind and refused[0] > 0:
            refused[0] -= 1
            return errors.Unavailable("try again")
        return None

    harness.kube.faults.append(refuse)
    lost = {
        "type": "HeadPodReady",
        "status": "False",
        "reason": "HeadPodNotFound",
        "message": "",
        "lastTransitionTime": AT,
    }
    blue = harness.active
    harness.kube.set_status(RAY_CLUSTER, NAMESPACE, blue, {"state": "", "conditions": [lost]})
    await harness.until(lambda: harness.weights.get(blue) == 0, seconds=20)
    await harness.run(5)
    assert refused == [0]
    assert route(harness, "mirror") is None


async def test_a_version_that_fails_on_mirrored_requests_gets_no_traffic() -> None:
    harness, traffic = await an_upgrade({**GATED, **MIRROR})
    green = harness.pending
    await harness.until(lambda: route(harness, "mirror") is not None)
    head = harness.serve.head(f"{green}-head-svc")
    for _ in range(20):
        head.answered, head.failed = head.answered + 20, head.failed + 10
        await harness.run(2)
    assert harness.condition("UpgradeAborted") == ("True", "GateFailed")
    assert traffic.sent.get(green, 0) == 0
