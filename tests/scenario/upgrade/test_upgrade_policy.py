"""Upgrades in steps that follow an UpgradePolicy: its steps, pauses, gates and bake, by both services; ADR 28."""

import copy
from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import (
    GATEWAY_CLASS,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    UPGRADE_POLICY,
)
from support.builders.ray_service import NAME, NAMESPACE, a_serve_config, a_strategy
from support.builders.upgrade_policy import a_policy
from support.fakes.gateway import a_gateway_class
from support.fakes.kube import Request
from support.simulator.scripted import TICK
from support.simulator.simulator import BLUE, GREEN, RED, Simulator, a_pair, a_running_pair
from support.tables import cases

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

    def __init__(self, sim: Simulator, *, rate: float = 50) -> None:
        self.sim = sim
        self.rate = rate
        self.failing: dict[str, float] = {}
        """By cluster: the fraction of its requests that fails."""
        self.sent: dict[str, float] = {}
        honest = sim.ray_clusters.move_on

        def move_on() -> None:
            honest()
            for cluster, weight in sim.weights.items():
                answered = self.rate * TICK * weight / 100
                head = sim.serve.head(f"{cluster}-head-svc")
                head.answered += answered
                head.failed += answered * self.failing.get(cluster, 0)
                self.sent[cluster] = self.sent.get(cluster, 0) + answered

        sim.ray_clusters.move_on = move_on


async def an_upgrade(
    spec: Json, *, annotations: Json | None = None, strategy: Json = WHOLE_SURGE
) -> tuple[Simulator, Traffic]:
    """Return a service with requests just after a change of its spec, and with a policy."""
    sim = await a_running_pair(upgradeStrategy=strategy)
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace=NAMESPACE))
    traffic = Traffic(sim)
    apply(sim, config=GREEN, strategy=strategy, annotations={**FOLLOWS, **(annotations or {})})
    await sim.until(lambda: bool(sim.pending) and sim.pending in sim.clusters, seconds=20)
    return sim, traffic


def apply(
    sim: Simulator, *, config: Json, annotations: Json | None = None, strategy: Json = WHOLE_SURGE
) -> None:
    sim.apply(
        config=config,
        upgradeStrategy=strategy,
        annotations=FOLLOWS if annotations is None else annotations,
    )


def annotate(sim: Simulator, **annotations: Any) -> None:
    body = sim.service
    body = {
        **body,
        "metadata": {
            **body["metadata"],
            "annotations": {**body["metadata"]["annotations"], **annotations},
        },
    }
    sim.kube.put(RAY_SERVICE, body)


async def at_weight(sim: Simulator, weight: int, *, seconds: float = 60) -> float:
    """Wait until the pending cluster has a weight; return when that was."""
    await sim.until(lambda: sim.weights.get(sim.pending) == weight, seconds=seconds)
    return sim.clock.monotonic()


def moves(sim: Simulator) -> list[int | None]:
    """Return the weights that the pending cluster had, in order."""
    seen = [view.weights[1] for _, view in sim.observer.trace]
    return [each for index, each in enumerate(seen) if index == 0 or each != seen[index - 1]]


async def test_traffic_moves_by_the_steps_of_the_policy_and_each_holds_for_its_time() -> None:
    sim, _ = await an_upgrade(CANARY)
    began = await at_weight(sim, 10)
    middle = await at_weight(sim, 50)
    end = await at_weight(sim, 100)
    assert 20 <= middle - began < 24
    assert 10 <= end - middle < 14
    await sim.until(sim.is_complete)


async def test_without_a_policy_nothing_is_recorded_and_the_steps_are_those_of_the_spec() -> None:
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=CANARY, namespace=NAMESPACE))
    apply(sim, config=GREEN, annotations={})
    await sim.until(lambda: bool(sim.pending) and sim.pending in sim.clusters, seconds=20)
    annotations = sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, sim.pending)]["metadata"][
        "annotations"
    ]
    assert labels.UPGRADE_POLICY_RECORD not in annotations
    await sim.until(sim.is_complete)
    assert 10 not in moves(sim)


async def test_the_default_of_the_namespace_holds_for_a_service_that_names_none() -> None:
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    default = a_policy(
        spec=CANARY, namespace=NAMESPACE, annotations={labels.DEFAULT_POLICY: "true"}
    )
    sim.kube.put(UPGRADE_POLICY, default)
    apply(sim, config=GREEN, annotations={})
    await at_weight(sim, 10)
    assert sim.weights[sim.pending] == 10


async def test_among_too_many_policies_no_default_is_searched_and_the_upgrade_waits() -> None:
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    blue = sim.active
    for number in range(101):
        sim.kube.put(UPGRADE_POLICY, a_policy(f"p{number}", CANARY, namespace=NAMESPACE))
    apply(sim, config=GREEN, annotations={})
    await sim.run(10)
    assert sim.clusters == [blue]
    assert "is not searched among more than 100" in sim.message("UpgradePaused")
    await sim.kube.delete(UPGRADE_POLICY, NAMESPACE, "p7")
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)


async def test_an_upgrade_follows_the_policy_that_it_began_with() -> None:
    sim, _ = await an_upgrade(CANARY)
    await at_weight(sim, 10)
    sim.kube.put(
        UPGRADE_POLICY,
        a_policy(spec={"steps": [{"weight": 77}, {"weight": 100}]}, namespace=NAMESPACE),
    )
    await sim.until(sim.is_complete, seconds=120)
    assert [each for each in moves(sim) if each][:3] == [10, 50, 100]


async def test_a_step_pauses_until_its_user_lets_the_upgrade_go_on_even_across_a_restart() -> None:
    sim, _ = await an_upgrade({"steps": [{"weight": 25, "pause": {}}, {"weight": 100}]})
    await at_weight(sim, 25)
    await sim.run(30)
    sim.restart()
    await sim.run(30)
    assert sim.weights[sim.pending] == 25
    assert sim.condition("UpgradePaused") == ("True", "PausedByPolicy")
    assert sim.message("UpgradePaused") == "Paused at 25 percent by UpgradePolicy careful."
    annotate(sim, **{labels.APPROVED_STEP: "another-cluster/100"})
    await sim.run(5)
    assert sim.weights[sim.pending] == 25
    annotate(sim, **{labels.APPROVED_STEP: f"{sim.pending}/25"})
    await sim.until(sim.is_complete)


async def test_a_pause_does_not_count_against_the_deadline() -> None:
    strict = {labels.PROGRESS_DEADLINE: "20s", labels.ON_DEADLINE: "Rollback"}
    sim, _ = await an_upgrade(
        {"steps": [{"weight": 25, "pause": {}}, {"weight": 100}]}, annotations=strict
    )
    await at_weight(sim, 25)
    await sim.run(60)
    assert sim.weights[sim.pending] == 25


async def test_a_good_version_passes_its_gates() -> None:
    sim, traffic = await an_upgrade(GATED)
    await sim.until(sim.is_complete, seconds=200)
    assert [each for each in moves(sim) if each][:3] == [10, 50, 100]
    assert traffic.sent[sim.active] >= 100


async def test_a_step_waits_for_requests_and_the_deadline_reports_it() -> None:
    sim, traffic = await an_upgrade(GATED, annotations={labels.PROGRESS_DEADLINE: "40s"})
    traffic.rate = 0.5
    await at_weight(sim, 10)
    await sim.run(45)
    assert sim.weights[sim.pending] == 10
    assert "the gates errorRate are not decided yet" in sim.message("UpgradeInProgress")
    await sim.run(45)
    assert sim.condition("UpgradeStalled") == ("True", "GateInconclusive")
    traffic.rate = 50
    await sim.until(sim.is_complete, seconds=200)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_bad_version_is_taken_back_at_once_and_is_not_tried_again(
    *, is_killed: bool
) -> None:
    sim, traffic = await an_upgrade(GATED)
    blue, green = sim.active, sim.pending
    traffic.failing[green] = 0.2
    await at_weight(sim, 10)
    await sim.until(lambda: sim.weights.get(green) == 0, seconds=60)
    if is_killed:
        sim.restart()
    await sim.until(lambda: not sim.pending, seconds=60)
    assert "GateFailed" in sim.reasons()
    assert sim.condition("UpgradeAborted") == ("True", "GateFailed")
    assert "errorRate" in sim.message("UpgradeAborted")
    await sim.run(120)
    assert (sim.active, sim.pending) == (blue, "")
    assert sim.weights[blue] == 100
    assert max(each or 0 for each in moves(sim)) == 10
    assert traffic.sent[green] <= 0.05 * traffic.sent[blue]


async def test_a_corrected_version_is_tried_after_a_bad_one() -> None:
    sim, traffic = await an_upgrade(GATED)
    traffic.failing[sim.pending] = 0.2
    await sim.until(lambda: sim.condition("UpgradeAborted")[0] == "True", seconds=100)
    sim.observer.trace.clear()
    apply(sim, config=RED)
    await sim.run(2)
    await sim.until(
        lambda: sim.is_complete() and sim.condition("UpgradeAborted")[0] != "True", seconds=300
    )
    assert [each for each in moves(sim) if each][:3] == [10, 50, 100]


@pytest.mark.parametrize("later", [0, 1, 2, 30])
async def test_a_serve_config_that_corrects_a_bad_version_is_tried_in_a_new_cluster(
    later: float,
) -> None:
    sim, traffic = await an_upgrade(GATED)
    green = sim.pending
    traffic.failing[green] = 0.2
    await sim.until(lambda: sim.condition("UpgradeAborted")[0] == "True", seconds=100)
    await sim.run(later)
    serve = a_serve_config(message="corrected")
    sim.apply(config=GREEN, serveConfigV2=serve, upgradeStrategy=WHOLE_SURGE, annotations=FOLLOWS)
    await sim.until(lambda: bool(sim.pending) and sim.pending != green, seconds=60)
    assert sim.weights.get(green, 0) == 0
    sim.observer.trace.clear()
    await sim.until(sim.is_complete, seconds=200)
    assert [each for each in moves(sim) if each][:3] == [10, 50, 100]


async def test_what_a_pod_answers_to_a_warm_up_is_recorded_within_the_bounds_of_the_record() -> (
    None
):
    sim, traffic = await an_upgrade({**CANARY, "warmUp": {"requests": 5}})
    green = sim.pending
    sim.serve.refuses_after, sim.serve.refusal = 0, "500 \x1b[31m" + "x" * 3000
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=60)
    assert traffic.sent.get(green, 0) == 0
    assert "\x1b" not in sim.message("UpgradeAborted")
    assert len(sim.message("UpgradeAborted")) < 1200


async def test_a_corrected_version_follows_the_policy_after_a_failed_warm_up() -> None:
    sim, _ = await an_upgrade({**CANARY, "warmUp": {"requests": 10}})
    sim.serve.refuses_after = 0
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=60)
    await sim.run(30)
    sim.serve.refuses_after = None
    sim.observer.trace.clear()
    apply(sim, config=RED)
    await sim.run(2)
    await sim.until(sim.is_complete, seconds=200)
    assert [each for each in moves(sim) if each][:3] == [10, 50, 100]


async def test_an_upgrade_that_is_retried_follows_its_policy() -> None:
    sim, _ = await an_upgrade(CANARY)
    await at_weight(sim, 10)
    annotate(sim, **{labels.ABORT: "true"})
    await sim.until(lambda: not sim.pending, seconds=60)
    sim.observer.trace.clear()
    annotate(sim, **{labels.ABORT: "false"})
    await sim.run(2)
    await sim.until(sim.is_complete, seconds=200)
    assert [each for each in moves(sim) if each][:3] == [10, 50, 100]


@pytest.mark.parametrize("weight", [0, 10, 50])
async def test_a_third_spec_follows_the_policy_too(weight: int) -> None:
    sim, _ = await an_upgrade(CANARY)
    green = sim.pending
    if weight:
        await at_weight(sim, weight)
    apply(sim, config=RED)
    await sim.until(lambda: bool(sim.pending) and sim.pending != green, seconds=60)
    sim.observer.trace.clear()
    await sim.until(sim.is_complete, seconds=200)
    assert [each for each in moves(sim) if each][:3] == [10, 50, 100]


async def test_a_failed_gate_pauses_where_the_policy_wants_that_and_an_abort_takes_the_version_back() -> (
    None
):
    sim, traffic = await an_upgrade({**GATED, "onFailure": "Pause"})
    blue, green = sim.active, sim.pending
    traffic.failing[green] = 0.2
    await at_weight(sim, 10)
    await sim.until(lambda: sim.condition("UpgradePaused") == ("True", "GateFailed"), seconds=60)
    sim.restart()
    await sim.run(30)
    assert sim.weights == {blue: 90, green: 10}
    annotate(sim, **{labels.ABORT: "true"})
    await sim.until(lambda: sim.weights.get(blue) == 100, seconds=30)


async def test_promote_ignores_the_gates() -> None:
    sim, traffic = await an_upgrade({**GATED, "onFailure": "Pause"})
    green = sim.pending
    traffic.failing[green] = 0.2
    await sim.until(lambda: sim.condition("UpgradePaused") == ("True", "GateFailed"), seconds=100)
    annotate(sim, **{labels.PROMOTE: "true"})
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=60)


async def test_the_old_cluster_keeps_its_capacity_during_the_bake_and_a_revert_moves_all_traffic_in_one_write() -> (
    None
):
    sim, _ = await an_upgrade({**CANARY, "bake": "60s"})
    blue, green = sim.active, sim.pending
    baked = await at_weight(sim, 100)
    await sim.run(40)
    assert sim.view.capacities == (100, 100)
    assert (sim.active, sim.pending) == (blue, green)
    sim.observer.trace.clear()
    apply(sim, config=BLUE)
    await sim.until(lambda: sim.weights.get(blue) == 100, seconds=5)
    assert sim.clock.monotonic() - baked < 50
    assert [
        view.weights for _, view in sim.observer.trace if view.weights[1] not in {0, 100, None}
    ] == []
    await sim.until(sim.is_complete)
    assert sim.active == blue


async def test_an_upgrade_is_promoted_after_its_bake() -> None:
    sim, _ = await an_upgrade({**CANARY, "bake": "60s"})
    green = sim.pending
    began = await at_weight(sim, 100)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=100)
    assert 60 <= sim.clock.monotonic() - began < 75


async def test_errors_that_begin_during_the_bake_roll_back() -> None:
    sim, traffic = await an_upgrade({**GATED, "bake": "300s"})
    blue, green = sim.active, sim.pending
    await at_weight(sim, 100, seconds=200)
    await sim.run(30)
    traffic.failing[green] = 0.3
    await sim.until(lambda: sim.weights.get(blue) == 100, seconds=30)
    await sim.until(lambda: sim.is_complete() and sim.active == blue, seconds=60)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_gate_by_growth_holds_without_traffic_of_the_active_cluster_and_lets_a_good_version_be_promoted(
    *, is_killed: bool
) -> None:
    sim, _ = await an_upgrade({**CANARY, "gates": [GROWTH], "bake": "60s"})
    green = sim.pending
    await at_weight(sim, 100, seconds=200)
    if is_killed:
        sim.restart()
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=100)


@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_gate_by_growth_takes_a_version_back_that_fails_during_the_bake(
    *, is_killed: bool
) -> None:
    sim, traffic = await an_upgrade({**CANARY, "gates": [GROWTH], "bake": "300s"})
    blue, green = sim.active, sim.pending
    await at_weight(sim, 100, seconds=200)
    if is_killed:
        sim.restart()
        await sim.run(20)
    traffic.failing[green] = 0.3
    await sim.until(lambda: sim.weights.get(blue) == 100, seconds=40)


async def test_errors_that_begin_late_in_a_long_bake_are_not_hidden_by_the_requests_before_them() -> (
    None
):
    sim, traffic = await an_upgrade({**GATED, "bake": "2h"})
    blue, green = sim.active, sim.pending
    traffic.rate = 1000
    await at_weight(sim, 100, seconds=200)
    await sim.run(400)
    traffic.failing[green] = 0.05
    began = sim.clock.monotonic()
    await sim.until(lambda: sim.weights.get(blue) == 100, seconds=60)
    assert sim.clock.monotonic() - began < 30, "with the whole bake as one window it takes 100 s"


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
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    if body is not None:
        sim.kube.put(UPGRADE_POLICY, body)
    blue = sim.active
    apply(sim, config=GREEN)
    await sim.run(10)
    assert sim.clusters == [blue]
    assert sim.condition("UpgradePaused") == ("True", "InvalidUpgradePolicy")
    assert text in sim.message("UpgradePaused")
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=CANARY, namespace=NAMESPACE))
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)


def accepted(sim: Simulator) -> Json | None:
    """Return the condition Accepted of the policy."""
    found = (
        sim.kube.objects[(UPGRADE_POLICY.kind, NAMESPACE, "careful")]
        .get("status", {})
        .get("conditions", [])
    )
    return next((each for each in found if each["type"] == "Accepted"), None)


async def test_a_policy_reports_whether_an_upgrade_can_follow_it() -> None:
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    sim.kube.put(
        UPGRADE_POLICY,
        a_policy(spec={"steps": [{"weight": 10}]}, namespace=NAMESPACE, generation=3),
    )
    assert accepted(sim) is None
    apply(sim, config=GREEN)
    await sim.run(20)
    found = accepted(sim)
    assert found is not None
    assert (found["status"], found["reason"], found["observedGeneration"]) == (
        "False",
        "Invalid",
        3,
    )
    assert "spec.steps[0].weight" in found["message"]
    written = [each for each in sim.kube.writes() if "UpgradePolicy" in each]
    assert len(written) == 1, written
    body = a_policy(spec=CANARY, namespace=NAMESPACE, generation=4)
    body["status"] = {"conditions": [found, {**found, "type": "Else", "message": "another's"}]}
    sim.kube.put(UPGRADE_POLICY, body)
    await sim.until(lambda: bool(sim.pending) and sim.pending in sim.clusters, seconds=20)
    held = accepted(sim)
    assert held is not None
    assert (held["status"], held["reason"], held["observedGeneration"]) == ("True", "Accepted", 4)
    assert (
        len(sim.kube.objects[(UPGRADE_POLICY.kind, NAMESPACE, "careful")]["status"]["conditions"])
        == 2
    )


async def test_an_upgrade_does_not_wait_for_the_status_of_its_policy() -> None:
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=CANARY, namespace=NAMESPACE))

    def refuse(request: Request) -> errors.RaybusError | None:
        is_status = request.kind == UPGRADE_POLICY.kind and request.verb not in {"get", "list"}
        return errors.Forbidden("no right") if is_status else None

    sim.kube.faults.append(refuse)
    apply(sim, config=GREEN)
    await sim.until(lambda: bool(sim.pending) and sim.pending in sim.clusters, seconds=20)
    assert accepted(sim) is None


async def test_a_forged_record_on_a_cluster_or_in_the_annotations_of_a_service_is_no_policy() -> (
    None
):
    forged = {
        labels.UPGRADE_POLICY_RECORD: '{"name":"x","spec":{"steps":[{"weight":100,"hold":"168h"}]}}'
    }
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE, annotations=forged)
    apply(sim, config=GREEN, annotations=forged)
    await sim.until(lambda: bool(sim.pending) and sim.pending in sim.clusters, seconds=20)
    await sim.until(sim.is_complete, seconds=60)
    body = sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, sim.active)]
    assert labels.UPGRADE_POLICY_RECORD not in body["metadata"]["annotations"]
    assert NAME in body["metadata"]["name"]


async def test_the_pending_cluster_is_warmed_up_before_its_first_traffic() -> None:
    sim, _ = await an_upgrade(
        {**CANARY, "warmUp": {"requests": 30, "path": "/warm", "concurrency": 4}}
    )
    green = sim.pending
    await at_weight(sim, 10)
    assert len(sim.serve.requests) == 30
    assert {path for _, path in sim.serve.requests} == {"/warm"}
    assert {pod for pod, _ in sim.serve.requests} == {f"{green}-head", f"{green}-worker"}
    await sim.until(sim.is_complete, seconds=200)
    assert len(sim.serve.requests) == 30


async def test_a_failed_warm_up_ends_the_upgrade_before_any_traffic() -> None:
    sim, traffic = await an_upgrade({**CANARY, "warmUp": {"requests": 30}})
    blue, green = sim.active, sim.pending
    sim.serve.refuses_after = 10
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=60)
    await sim.run(60)
    assert (sim.active, sim.pending) == (blue, "")
    assert traffic.sent.get(green, 0) == 0
    assert "request 11 of the warm-up was not answered" in sim.message("UpgradeAborted")


@pytest.mark.parametrize("weight", [0, 10, 50])
async def test_a_silent_dashboard_of_the_active_cluster_skips_no_step(weight: int) -> None:
    sim, traffic = await an_upgrade(GATED)
    blue, green = sim.active, sim.pending
    if weight:
        await at_weight(sim, weight)
    sim.serve.head(f"{blue}-head-svc").behaviour = "silent"
    await sim.until(lambda: sim.weights.get(green) == 100, seconds=120)
    assert [each for each in moves(sim) if each][:3] == [10, 50, 100]
    assert traffic.sent[green] > 200


async def test_a_bad_version_is_taken_back_to_an_active_cluster_with_a_silent_dashboard() -> None:
    sim, traffic = await an_upgrade(GATED)
    blue, green = sim.active, sim.pending
    await at_weight(sim, 10)
    sim.serve.head(f"{blue}-head-svc").behaviour = "silent"
    await sim.run(5)
    traffic.failing[green] = 0.2
    await sim.until(lambda: sim.weights.get(blue) == 100, seconds=60)
    await sim.run(30)
    assert sim.weights[blue] == 100, (
        "a failed version gets no traffic for the silence of a dashboard"
    )
    assert max(each or 0 for each in moves(sim)) == 10


async def test_an_active_cluster_without_ready_endpoints_leaves_all_traffic_whatever_the_steps() -> (
    None
):
    sim, _ = await an_upgrade(GATED)
    blue, green = sim.active, sim.pending
    await at_weight(sim, 10)
    sim.kube.set_status(POD, NAMESPACE, f"{blue}-worker", {"phase": "Failed"})
    await sim.until(lambda: sim.weights.get(green) == 100, seconds=5)


PREVIEW: Json = {
    "preview": {"service": True, "header": {"name": "x-raybus-version", "value": "next"}}
}
MIRROR: Json = {"mirror": {"percent": 10, "duration": "30s"}}


def route(sim: Simulator, role: str) -> Json | None:
    return sim.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute-{role}"))


def preview_service(sim: Simulator) -> Json | None:
    return sim.kube.objects.get((SERVICE.kind, NAMESPACE, f"{NAME}-preview-svc"))


async def test_a_preview_reaches_the_pending_cluster_until_the_promotion() -> None:
    sim, _ = await an_upgrade({**PREVIEW, "steps": [{"weight": 25, "pause": {}}, {"weight": 100}]})
    green = sim.pending
    await at_weight(sim, 25)
    found, service = route(sim, "preview"), preview_service(sim)
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
    annotate(sim, **{labels.APPROVED_STEP: f"{green}/25"})
    await sim.until(sim.is_complete)
    await sim.run(5)
    assert (route(sim, "preview"), preview_service(sim)) == (None, None)


@pytest.mark.parametrize("end", [{labels.ABORT: "true"}, None])
async def test_a_preview_ends_with_an_abort_and_with_a_suspend(end: Json | None) -> None:
    sim, _ = await an_upgrade({**PREVIEW, "steps": [{"weight": 25, "pause": {}}, {"weight": 100}]})
    await at_weight(sim, 25)
    assert route(sim, "preview") is not None
    if end is not None:
        annotate(sim, **end)
    else:
        sim.apply(config=GREEN, upgradeStrategy=WHOLE_SURGE, annotations=FOLLOWS, suspend=True)
    await sim.until(
        lambda: route(sim, "preview") is None and preview_service(sim) is None, seconds=60
    )


async def test_requests_are_mirrored_before_the_first_traffic_and_for_the_duration_of_the_policy() -> (
    None
):
    sim, traffic = await an_upgrade({**CANARY, **MIRROR})
    blue, green = sim.active, sim.pending
    await sim.until(lambda: route(sim, "mirror") is not None)
    began = sim.clock.monotonic()
    found = route(sim, "mirror")
    assert found is not None
    (rule,) = found["spec"]["rules"]
    assert [each["method"] for each in rule["matches"]] == ["GET"]
    assert [each["name"] for each in rule["backendRefs"]] == [f"{blue}-serve-svc"]
    assert rule["filters"][0]["requestMirror"]["percent"] == 10
    assert rule["filters"][0]["requestMirror"]["backendRef"]["name"] == f"{green}-serve-svc"
    await sim.run(20)
    sim.restart()
    assert traffic.sent.get(green, 0) == 0
    await at_weight(sim, 10)
    assert 29 <= sim.clock.monotonic() - began < 40
    assert route(sim, "mirror") is None
    await sim.until(sim.is_complete, seconds=100)
    created = [
        each
        for each in sim.kube.requests
        if str(each) == f"create HTTPRoute {NAME}-httproute-mirror"
    ]
    assert len(created) == 1


@cases(
    ("features", "controller", "why"),
    {
        "a controller without the feature": (
            ("HTTPRouteRequestMirror",),
            "example.org/gw",
            "the controller of GatewayClass fast does not support HTTPRouteRequestPercentageMirror",
        ),
        "a controller that is known to copy all": (
            (),
            "projectcontour.io/gateway-controller",
            "controller projectcontour.io/gateway-controller ignores the percentage and would copy "
            "all of them",
        ),
    },
)
async def test_where_a_percentage_is_not_supported_nothing_is_mirrored_and_the_upgrade_goes_on(
    features: tuple[str, ...], controller: str, why: str
) -> None:
    sim = a_pair()
    sim.gateway.name = controller
    sim.kube.put(GATEWAY_CLASS, a_gateway_class(*features))
    sim.apply(config=BLUE, upgradeStrategy=WHOLE_SURGE)
    await sim.until(sim.is_complete)
    sim.kube.put(UPGRADE_POLICY, a_policy(spec={**CANARY, **MIRROR}, namespace=NAMESPACE))
    Traffic(sim)
    apply(sim, config=GREEN, annotations=FOLLOWS)
    await at_weight(sim, 10, seconds=25)
    sim.restart()
    await sim.until(sim.is_complete, seconds=100)
    assert f"create HTTPRoute {NAME}-httproute-mirror" not in map(str, sim.kube.requests)
    text = f"Requests are not mirrored: {why}"
    reported = [note for _, reason, note in sim.kube.events() if reason == "MirrorUnsupported"]
    assert reported == [text]


@pytest.mark.parametrize("is_readable", [True, False])
async def test_requests_are_mirrored_where_no_features_are_listed(*, is_readable: bool) -> None:
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    if is_readable:
        sim.kube.put(GATEWAY_CLASS, a_gateway_class())
    else:
        del sim.kube.objects[GATEWAY_CLASS.kind, "", "fast"]
    sim.kube.put(UPGRADE_POLICY, a_policy(spec={**CANARY, **MIRROR}, namespace=NAMESPACE))
    apply(sim, config=GREEN, annotations=FOLLOWS)
    await sim.until(lambda: route(sim, "mirror") is not None)


async def test_a_mirror_never_keeps_requests_at_a_cluster_that_died() -> None:
    sim, _ = await an_upgrade({**CANARY, **MIRROR})
    blue = sim.active
    await sim.until(lambda: route(sim, "mirror") is not None)
    await sim.run(2)
    lost = {
        "type": "HeadPodReady",
        "status": "False",
        "reason": "HeadPodNotFound",
        "message": "",
        "lastTransitionTime": AT,
    }
    sim.kube.set_status(RAY_CLUSTER, NAMESPACE, blue, {"state": "", "conditions": [lost]})
    await sim.until(lambda: sim.weights.get(blue) == 0, seconds=20)
    await sim.run(0.5)
    assert route(sim, "mirror") is None


async def test_a_mirror_route_under_its_former_name_is_found_and_ends_in_time() -> None:
    sim, _ = await an_upgrade({**CANARY, **MIRROR, **PREVIEW})
    await sim.until(lambda: route(sim, "mirror") is not None)
    began = sim.clock.monotonic()
    await sim.run(2)
    for role in ("mirror", "preview"):
        present = route(sim, role)
        assert present is not None
        former = {
            **present,
            "metadata": {**present["metadata"], "name": f"{NAME}-{role}-httproute"},
        }
        del former["metadata"]["uid"]
        await sim.kube.delete(HTTP_ROUTE, NAMESPACE, present["metadata"]["name"])
        sim.kube.put(HTTP_ROUTE, former)
    sim.restart()
    await at_weight(sim, 10)
    assert sim.clock.monotonic() - began < 40
    await sim.until(sim.is_complete, seconds=100)
    await sim.run(2)
    left = [each["metadata"]["name"] for each in sim.kube.all(HTTP_ROUTE)]
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
    sim, _ = await an_upgrade({**CANARY, **MIRROR})
    sim.kube.put(HTTP_ROUTE, copy.deepcopy(theirs))
    await sim.until(lambda: route(sim, "mirror") is not None)
    await sim.until(sim.is_complete, seconds=150)
    held = sim.kube.objects[HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-mirror-httproute"]
    assert held["spec"] == theirs["spec"]


@pytest.mark.parametrize("is_sharded", [True, False])
async def test_a_taken_name_of_a_mirror_route_is_reported_and_no_traffic_moves(
    *, is_sharded: bool
) -> None:
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    sim.bus.is_sharded = is_sharded
    sim.kube.put(UPGRADE_POLICY, a_policy(spec={**CANARY, **MIRROR}, namespace=NAMESPACE))
    name = f"{NAME}-httproute-mirror"
    theirs: Json = {"metadata": {"name": name}, "spec": {"rules": []}}
    sim.kube.put(HTTP_ROUTE, copy.deepcopy(theirs))
    apply(sim, config=GREEN, strategy=WHOLE_SURGE, annotations=FOLLOWS)
    await sim.run(30)
    text = f"HTTPRoute {NAMESPACE}/{name} exists and is not owned by RayService {NAME}: delete it"
    assert text in sim.message("UpgradeInProgress")
    assert sim.weights == {sim.active: 100, sim.pending: 0}
    before = len(sim.kube.writes())
    await sim.run(60)
    assert len(sim.kube.writes()) == before
    await sim.kube.delete(HTTP_ROUTE, NAMESPACE, name)
    await sim.until(sim.is_complete, seconds=150)


@pytest.mark.parametrize("is_labelled", [True, False])
@pytest.mark.parametrize("is_sharded", [True, False])
@pytest.mark.parametrize("strategy", [WHOLE_SURGE, {"type": "NewCluster"}])
async def test_a_taken_name_of_the_preview_service_is_reported_and_stops_no_upgrade(
    strategy: Json, *, is_sharded: bool, is_labelled: bool
) -> None:
    sim = a_pair()
    sim.apply(config=BLUE, upgradeStrategy=strategy)
    await sim.until(sim.is_complete)
    sim.bus.is_sharded = is_sharded
    policy = {"preview": {"service": True}, "autoPromote": False}
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=policy, namespace=NAMESPACE))
    owner = [{"kind": "Job", "name": "other", "uid": "u", "controller": True}]
    marks = {labels.ORIGIN_NAME: NAME, labels.ORIGIN_KIND: "RayService"} if is_labelled else {}
    name = f"{NAME}-preview-svc"
    theirs: Json = {
        "metadata": {"name": name, "labels": marks, "ownerReferences": owner},
        "spec": {"selector": {"app": "elsewhere"}, "ports": [{"name": "serve", "port": 8000}]},
    }
    sim.kube.put(SERVICE, copy.deepcopy(theirs))
    apply(sim, config=GREEN, strategy=strategy)
    text = (
        f"Service {NAMESPACE}/{name} exists and is not owned by RayService {NAME}: delete it, or "
        "give the RayService another name"
    )
    await sim.until(lambda: text in sim.message("UpgradeInProgress"))
    await sim.until(lambda: sim.condition("UpgradePaused")[0] == "True")
    green, held = sim.pending, preview_service(sim)
    assert sim.kube.events().count(("Warning", "ServiceNotOwned", text)) == 1
    assert held is not None
    assert held["spec"]["selector"] == {"app": "elsewhere"}
    before = len(sim.kube.writes())
    await sim.run(60)
    assert len(sim.kube.writes()) == before
    await sim.kube.delete(SERVICE, NAMESPACE, name)
    await sim.until(lambda: preview_service(sim) is not None, seconds=40)
    annotate(sim, **{labels.APPROVED_STEP: f"{green}/100"})
    await sim.until(lambda: sim.is_complete() and sim.active == green)
    await sim.until(lambda: preview_service(sim) is None, seconds=5)


@pytest.mark.parametrize("state", ["the bus is silent", "the spec is invalid"])
async def test_no_side_route_sends_requests_to_a_deleted_active_cluster(state: str) -> None:
    sim, _ = await an_upgrade({**CANARY, **MIRROR, **PREVIEW})
    blue, green = sim.active, sim.pending
    await sim.until(lambda: route(sim, "mirror") is not None)
    await sim.run(5)
    if state == "the bus is silent":
        sim.bus.is_silent = True
    else:
        invalid = a_strategy(surge=5, step=25)
        sim.apply(config=GREEN, upgradeStrategy=invalid, annotations=FOLLOWS)
        await sim.run(2)
    await sim.kube.delete(RAY_CLUSTER, NAMESPACE, blue)
    await sim.run(10)
    assert sim.weights == {green: 100}
    assert route(sim, "mirror") is None
    assert route(sim, "preview") is None
    deleted = [
        str(each)
        for each in sim.kube.requests
        if each.verb == "delete" and each.kind == HTTP_ROUTE.kind
    ]
    assert len(deleted) == 2


async def test_a_mirror_route_that_could_not_be_deleted_while_the_bus_is_silent_is_deleted_later() -> (
    None
):
    sim, _ = await an_upgrade({**CANARY, **MIRROR})
    await sim.until(lambda: route(sim, "mirror") is not None)
    await sim.run(2)
    sim.bus.is_silent = True
    refused = [2]

    def refuse(request: Request) -> errors.RaybusError | None:
        if request.verb == "delete" and request.kind == HTTP_ROUTE.kind and refused[0] > 0:
            refused[0] -= 1
            return errors.Unavailable("try again")
        return None

    sim.kube.faults.append(refuse)
    lost = {
        "type": "HeadPodReady",
        "status": "False",
        "reason": "HeadPodNotFound",
        "message": "",
        "lastTransitionTime": AT,
    }
    blue = sim.active
    sim.kube.set_status(RAY_CLUSTER, NAMESPACE, blue, {"state": "", "conditions": [lost]})
    await sim.until(lambda: sim.weights.get(blue) == 0, seconds=20)
    await sim.run(5)
    assert refused == [0]
    assert route(sim, "mirror") is None


async def test_a_version_that_fails_on_mirrored_requests_gets_no_traffic() -> None:
    sim, traffic = await an_upgrade({**GATED, **MIRROR})
    green = sim.pending
    await sim.until(lambda: route(sim, "mirror") is not None)
    head = sim.serve.head(f"{green}-head-svc")
    for _ in range(20):
        head.answered, head.failed = head.answered + 20, head.failed + 10
        await sim.run(2)
    assert sim.condition("UpgradeAborted") == ("True", "GateFailed")
    assert traffic.sent.get(green, 0) == 0
