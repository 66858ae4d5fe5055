"""Edits of an UpgradePolicy while an upgrade follows it: with `applyEdits: AtOnce` they hold at once, and never take traffic back; ADR 28."""

import base64

import msgspec
import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SECRET, UPGRADE_POLICY
from common.upgrade import webhook
from common.upgrade.policy import recorded
from scenario.upgrade.test_upgrade_policy import (
    CANARY,
    GATED,
    accepted,
    an_upgrade,
    at_weight,
    moves,
    preview_service,
    route,
)
from support.builders.ray_service import NAMESPACE, a_strategy
from support.builders.upgrade_policy import a_policy
from support.fakes.kube import Request
from support.fakes.webhook import replies
from support.simulator.simulator import Simulator

ONCE: Json = {"applyEdits": "AtOnce"}
HOUR: Json = {
    **ONCE,
    "steps": [{"weight": 10, "hold": "1h"}, {"weight": 50, "hold": "10s"}, {"weight": 100}],
}


def edit(sim: Simulator, spec: Json) -> None:
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace=NAMESPACE))


def followed(sim: Simulator, cluster: str | None = None) -> Json:
    """Return the spec that the upgrade follows."""
    body = sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, cluster or sim.pending)]
    return msgspec.json.decode(body["metadata"]["annotations"][labels.UPGRADE_POLICY_RECORD])[
        "spec"
    ]


async def is_followed(sim: Simulator, spec: Json) -> None:
    await sim.until(lambda: followed(sim) == spec, seconds=12)


async def test_an_edit_of_the_steps_holds_at_once_and_a_shorter_hold_ends() -> None:
    sim, _ = await an_upgrade(HOUR)
    await at_weight(sim, 10)
    await sim.run(60)
    edit(sim, {**ONCE, "steps": [{"weight": 10, "hold": "30s"}, {"weight": 20}, {"weight": 100}]})
    await at_weight(sim, 20, seconds=15)
    await sim.until(sim.is_complete, seconds=60)
    assert [each for each in moves(sim) if each][:3] == [10, 20, 100]


@pytest.mark.parametrize(
    "steps", [[{"weight": 5}, {"weight": 100}], [{"weight": 60, "hold": "1h"}, {"weight": 100}]]
)
async def test_no_edit_takes_traffic_back_and_the_gates_must_hold_at_a_weight_that_is_no_step_any_more(
    steps: list[Json],
) -> None:
    sim, traffic = await an_upgrade({**GATED, **ONCE})
    await at_weight(sim, 50)
    traffic.rate = 0.5
    following = {**GATED, **ONCE, "steps": steps}
    edit(sim, following)
    await is_followed(sim, following)
    await sim.run(60)
    assert sim.weights[sim.pending] == 50, "the gates are not decided at the weight that is served"
    traffic.rate = 50
    await at_weight(
        sim, max(steps[0]["weight"], 60) if steps[0]["weight"] > 50 else 100, seconds=60
    )
    weights = [each for each in moves(sim) if each]
    assert weights == sorted(weights)


async def test_a_move_that_capacity_cuts_short_goes_on_to_the_step_it_was_for_after_an_edit() -> (
    None
):
    narrow = {
        "steps": [{"weight": 60, "hold": "30s"}, {"weight": 100}],
        **ONCE,
        "gates": GATED["gates"],
    }
    sim, traffic = await an_upgrade(narrow, strategy=a_strategy(surge=20, step=20, interval=1))
    await sim.until(lambda: 0 < sim.weights.get(sim.pending, 0) < 60, seconds=60)
    traffic.rate = 0.5
    body = sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, sim.pending)]
    following: Json = {"steps": [{"weight": 90}, {"weight": 100}], **ONCE, "gates": GATED["gates"]}
    annotations = {
        **body["metadata"]["annotations"],
        labels.UPGRADE_POLICY_RECORD: recorded("careful", "", 2, following),
    }
    sim.kube.put(
        RAY_CLUSTER, {**body, "metadata": {**body["metadata"], "annotations": annotations}}
    )
    await sim.run(60)
    assert max(each or 0 for each in moves(sim)) == 60, (
        "nothing passes by the step that the move was for"
    )


async def test_a_gate_that_an_edit_adds_ends_the_upgrade_by_the_requests_of_the_step() -> None:
    sim, traffic = await an_upgrade(HOUR)
    blue, green = sim.active, sim.pending
    traffic.failing[green] = 0.2
    await at_weight(sim, 10)
    await sim.run(60)
    edit(sim, {**HOUR, "gates": GATED["gates"]})
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=60)
    assert sim.weights[blue] == 100


@pytest.mark.parametrize("following", [{}, {"gates": []}, {"onFailure": "Rollback"}])
async def test_an_upgrade_that_failed_a_gate_keeps_the_policy_that_it_failed_by(
    following: Json,
) -> None:
    """Else an edit of `onFailure` would take all traffic back."""
    sim, traffic = await an_upgrade({**GATED, **ONCE, "onFailure": "Pause"})
    green = sim.pending
    await at_weight(sim, 10)
    traffic.failing[green] = 0.2
    await sim.until(lambda: sim.condition("UpgradePaused") == ("True", "GateFailed"), seconds=60)
    edit(sim, {**GATED, **ONCE, **following})
    await sim.run(60)
    assert sim.weights[green] == 10
    assert sim.condition("UpgradePaused") == ("True", "GateFailed")
    assert followed(sim)["onFailure"] == "Pause"


async def test_a_gate_that_waits_for_good_can_be_removed() -> None:
    sim, traffic = await an_upgrade({**GATED, **ONCE})
    traffic.rate = 0
    await at_weight(sim, 10)
    await sim.run(60)
    assert sim.weights[sim.pending] == 10
    edit(sim, {**CANARY, **ONCE})
    await sim.until(sim.is_complete, seconds=60)


async def test_a_pause_that_an_edit_removes_ends_and_one_that_it_adds_holds() -> None:
    sim, _ = await an_upgrade(
        {**ONCE, "steps": [{"weight": 25, "pause": {}}, {"weight": 50}, {"weight": 100}]}
    )
    await at_weight(sim, 25)
    edit(sim, {**ONCE, "steps": [{"weight": 25}, {"weight": 50, "pause": {}}, {"weight": 100}]})
    await at_weight(sim, 50, seconds=15)
    await sim.run(60)
    assert sim.weights[sim.pending] == 50
    edit(
        sim,
        {**ONCE, "steps": [{"weight": 25}, {"weight": 50}, {"weight": 100}], "autoPromote": False},
    )
    await at_weight(sim, 100, seconds=15)
    await sim.until(
        lambda: sim.condition("UpgradePaused") == ("True", "PausedByPolicy"), seconds=20
    )
    edit(sim, ONCE)
    await sim.until(sim.is_complete, seconds=30)


@pytest.mark.parametrize(("length", "lasts"), [("20s", 20), ("5m", 300)])
async def test_a_bake_becomes_shorter_or_longer(length: str, lasts: float) -> None:
    sim, _ = await an_upgrade({**CANARY, **ONCE, "bake": "2m"})
    blue = sim.active
    began = await at_weight(sim, 100, seconds=120)
    await sim.run(5)
    edit(sim, {**CANARY, **ONCE, "bake": length})
    await sim.until(lambda: sim.active != blue, seconds=400)
    assert lasts <= sim.clock.monotonic() - began < lasts + 20


async def test_a_warm_up_that_was_edited_begins_anew() -> None:
    sim, _ = await an_upgrade(
        {**CANARY, **ONCE, "mirror": {"percent": 5, "duration": "1h"}, "warmUp": {"requests": 7}}
    )
    await sim.until(lambda: route(sim, "mirror") is not None, seconds=60)
    edit(sim, {**CANARY, **ONCE, "warmUp": {"requests": 11, "path": "/other"}})
    await at_weight(sim, 10, seconds=30)
    paths = [path for _, path in sim.serve.requests]
    assert (paths.count("/"), paths.count("/other")) == (7, 11)


async def test_a_mirror_gets_another_percentage_and_other_methods_and_keeps_its_beginning() -> None:
    spec: Json = {**CANARY, **ONCE, "mirror": {"percent": 10, "duration": "60s"}}
    sim, _ = await an_upgrade(spec)
    await sim.until(lambda: route(sim, "mirror") is not None, seconds=60)
    began = sim.clock.monotonic()
    await sim.run(20)
    edit(sim, {**spec, "mirror": {"percent": 3, "duration": "40s", "methods": ["GET", "POST"]}})
    await sim.run(12)
    found = route(sim, "mirror")
    assert found is not None
    (rule,) = found["spec"]["rules"]
    assert [each["method"] for each in rule["matches"]] == ["GET", "POST"]
    assert rule["filters"][0]["requestMirror"]["percent"] == 3
    await at_weight(sim, 10)
    assert 39 <= sim.clock.monotonic() - began < 50
    assert route(sim, "mirror") is None


async def test_a_preview_comes_and_goes_with_an_edit() -> None:
    sim, _ = await an_upgrade(HOUR)
    await at_weight(sim, 10)
    edit(sim, {**HOUR, "preview": {"service": True}})
    await sim.until(lambda: preview_service(sim) is not None, seconds=15)
    edit(sim, HOUR)
    await sim.until(lambda: preview_service(sim) is None, seconds=15)


async def test_an_invalid_edit_changes_nothing_and_is_reported_until_it_is_corrected() -> None:
    sim, _ = await an_upgrade(HOUR)
    await at_weight(sim, 10)
    edit(sim, {**ONCE, "steps": [{"weight": 30}]})
    await sim.run(40)
    assert followed(sim) == HOUR
    found = accepted(sim)
    assert found is not None
    assert (found["status"], found["observedGeneration"]) == ("False", 2)
    assert "spec.steps[0].weight" in found["message"]
    assert "upgrades in progress keep what they follow" in found["message"]
    written = [each for each in sim.kube.writes() if "UpgradePolicy" in each]
    assert len(written) == 2, written
    edit(sim, {**ONCE, "steps": [{"weight": 30}, {"weight": 100}]})
    await sim.until(sim.is_complete, seconds=60)
    held = accepted(sim)
    assert held is not None
    assert (held["status"], held["observedGeneration"]) == ("True", 3)


async def test_a_policy_that_was_deleted_or_made_anew_leaves_the_upgrade_alone() -> None:
    sim, _ = await an_upgrade(HOUR)
    await at_weight(sim, 10)
    await sim.kube.delete(UPGRADE_POLICY, NAMESPACE, "careful")
    await sim.run(30)
    body = a_policy(
        spec={**ONCE, "steps": [{"weight": 100}]}, namespace=NAMESPACE, uid="another", generation=9
    )
    sim.kube.put(UPGRADE_POLICY, body)
    await sim.run(30)
    assert followed(sim) == HOUR
    assert sim.weights[sim.pending] == 10


async def test_the_policy_that_the_upgrade_follows_decides_whether_an_edit_holds() -> None:
    sim, _ = await an_upgrade({**HOUR, "applyEdits": "NextUpgrade"})
    await at_weight(sim, 10)
    reads = len([each for each in sim.kube.requests if str(each).startswith("get UpgradePolicy")])
    edit(sim, {**ONCE, "steps": [{"weight": 100}]})
    await sim.run(60)
    assert sim.weights[sim.pending] == 10
    assert (
        len([each for each in sim.kube.requests if str(each).startswith("get UpgradePolicy")])
        == reads
    )


async def test_an_edit_that_ends_edits_at_once_is_the_last_one() -> None:
    sim, _ = await an_upgrade(HOUR)
    await at_weight(sim, 10)
    last = {**HOUR, "applyEdits": "NextUpgrade", "bake": "1s"}
    edit(sim, last)
    await is_followed(sim, last)
    edit(sim, {**ONCE, "steps": [{"weight": 100}]})
    await sim.run(60)
    assert followed(sim) == last


async def test_reads_of_the_policy_are_few_and_a_read_that_fails_changes_nothing() -> None:
    sim, _ = await an_upgrade(HOUR)
    await at_weight(sim, 10)
    before = len(sim.kube.requests)
    await sim.run(100)
    reads = [
        each for each in sim.kube.requests[before:] if str(each).startswith("get UpgradePolicy")
    ]
    assert 8 <= len(reads) <= 11
    is_refused = True

    def refuse(request: Request) -> errors.RaybusError | None:
        return (
            errors.Unavailable("no answer")
            if request.kind == UPGRADE_POLICY.kind and is_refused
            else None
        )

    sim.kube.faults.append(refuse)
    edit(sim, {**ONCE, "steps": [{"weight": 20}, {"weight": 100}]})
    await sim.run(30)
    assert (sim.weights[sim.pending], sim.failed) == (10, [])
    is_refused = False
    await at_weight(sim, 20, seconds=15)


async def test_a_refused_write_of_the_edit_is_made_again_and_a_restart_loses_none() -> None:
    sim, _ = await an_upgrade(HOUR)
    await at_weight(sim, 10)
    refused: list[str] = []

    def refuse(request: Request) -> errors.RaybusError | None:
        is_edit = request.kind == RAY_CLUSTER.kind and request.verb == "patch" and len(refused) < 2
        if is_edit and labels.UPGRADE_POLICY_RECORD in str(request.body):
            refused.append(request.name)
            return errors.Conflict("changed")
        return None

    sim.kube.faults.append(refuse)
    edit(sim, {**ONCE, "steps": [{"weight": 10, "hold": "1h"}, {"weight": 20}, {"weight": 100}]})
    await sim.until(lambda: bool(refused), seconds=15)
    sim.restart()
    await sim.run(12)
    assert len(refused) == 2
    edit(sim, {**ONCE, "steps": [{"weight": 20}, {"weight": 100}]})
    sim.restart()
    await at_weight(sim, 20, seconds=15)


async def test_an_edited_webhook_is_asked_and_one_that_stays_is_not_asked_again() -> None:
    key = base64.b64encode(f"whsec_{base64.b64encode(b'k' * 32).decode()}".encode()).decode()
    first, second = ({"webhook": {"url": f"https://checks.example.com/{each}"}} for each in "ab")
    sim, _ = await an_upgrade({**HOUR, "gates": [first]})
    sim.kube.put(
        SECRET,
        {"metadata": {"name": webhook.SECRET_NAME, "namespace": NAMESPACE}, "data": {"key": key}},
    )
    sim.servers.answer = lambda _: replies("Pass")
    await at_weight(sim, 10)
    await sim.run(10)
    asked = len(sim.servers.asked)
    edit(sim, {**HOUR, "gates": [first], "bake": "3s"})
    await sim.run(15)
    assert len(sim.servers.asked) == asked
    edit(sim, {**HOUR, "gates": [second]})
    await sim.run(15)
    assert [each.url[-1] for each in sim.servers.asked[asked:]] == ["b"]


async def test_an_edit_in_a_rollback_changes_nothing() -> None:
    sim, _ = await an_upgrade(HOUR)
    green = sim.pending
    await at_weight(sim, 10)
    body = sim.service
    annotations = {**body["metadata"]["annotations"], labels.ABORT: "true"}
    sim.kube.put(
        RAY_SERVICE, {**body, "metadata": {**body["metadata"], "annotations": annotations}}
    )
    edit(sim, {**ONCE, "steps": [{"weight": 100}]})
    await sim.run(15)
    cluster = sim.kube.objects.get((RAY_CLUSTER.kind, NAMESPACE, green))
    assert cluster is None or followed(sim, green) == HOUR
    assert max(each or 0 for each in moves(sim)) == 10


async def test_a_weight_that_is_no_step_any_more_has_the_hold_of_the_last_step_below_it() -> None:
    sim, _ = await an_upgrade({**ONCE, "steps": [{"weight": 50, "hold": "1h"}, {"weight": 100}]})
    began = await at_weight(sim, 50)
    edit(sim, {**ONCE, "steps": [{"weight": 5, "hold": "40s"}, {"weight": 100}]})
    end = await at_weight(sim, 100)
    assert 40 <= end - began < 52
