"""What users see of the gates of an upgrade: a condition, Events, upgrade events and the receipt; and what that costs in writes."""

from typing import Any

import msgspec

from common import labels
from common.api.opaque import Json
from common.kube.resources import HTTP_ROUTE, RAY_SERVICE
from common.upgrade.events import Aborted, GateEvaluated, TrafficShifted
from common.upgrade.receipt import Receipt
from scenario.upgrade.test_upgrade_policy import CANARY, GATED, an_upgrade, at_weight
from support.builders.ray_service import NAME, NAMESPACE
from support.simulator.simulator import Simulator

CONDITION = "UpgradeGatesPassed"


def evaluated(sim: Simulator) -> list[GateEvaluated]:
    return [
        each.event.data
        for each in sim.events.unique()
        if isinstance(each.event.data, GateEvaluated)
    ]


def receipt(sim: Simulator) -> Receipt:
    text = sim.service["metadata"]["annotations"][labels.UPGRADE_RECEIPT]
    return msgspec.json.decode(text, type=Receipt)


def repetitions_differ(sim: Simulator) -> list[str]:
    """Return the ids of events that were published twice with different content."""
    first: dict[str, Any] = {}
    for each in sim.events.sent:
        body: Json = {
            key: value
            for key, value in msgspec.json.decode(each.payload).items()
            if key != "traceparent"
        }
        first.setdefault(each.event.id, body)
        if first[each.event.id] != body:
            return [each.event.id]
    return []


def writes(sim: Simulator, kind: str) -> int:
    return len(
        [
            each
            for each in sim.kube.requests
            if each.kind == kind and each.verb in {"patch", "replace"}
        ]
    )


async def ended(sim: Simulator) -> None:
    await sim.until(lambda: sim.is_complete() and len(sim.clusters) == 1, seconds=400)
    await sim.run(2)


async def test_a_condition_has_the_figures_of_the_present_step() -> None:
    slow: Json = {"steps": [{"weight": 10, "hold": "2m"}, {"weight": 100}]}
    sim, traffic = await an_upgrade({**GATED, **slow})
    traffic.rate = 20  # 2 requests a second for the new cluster: 100 after 50 s
    await at_weight(sim, 10)
    await sim.run(16)
    assert sim.condition(CONDITION) == ("Unknown", "GateInconclusive")
    assert sim.message(CONDITION).startswith("At 10 percent since ")
    assert " of 100 requests observed" in sim.message(CONDITION)
    await sim.until(lambda: sim.condition(CONDITION) == ("True", "GatesPassed"), seconds=60)
    assert "Pass: errorRate: 0 of 1" in sim.message(CONDITION)
    await ended(sim)
    assert sim.condition(CONDITION) == ("", "")


async def test_each_verdict_is_an_upgrade_event_an_event_and_a_line_of_the_receipt() -> None:
    sim, _ = await an_upgrade(GATED)
    blue, green = sim.active, sim.pending
    await at_weight(sim, 50)
    sim.restart()
    await ended(sim)
    found = evaluated(sim)
    assert [(each.traffic_percent, each.gate, each.outcome) for each in found] == [
        (weight, "errorRate", "Pass") for weight in (10, 50, 100)
    ]
    assert all(each.requests >= 100 and each.value == 0 and each.limit == 0.01 for each in found)
    assert repetitions_differ(sim) == []
    notes = [note for _, reason, note in sim.kube.events() if reason == "GatePassed"]
    assert [note.partition(":")[0] for note in notes] == [
        f"Gate passed at {each} percent" for each in (10, 50, 100)
    ]
    held = receipt(sim)
    assert (held.old, held.new) == (blue, green)
    assert [(each.weight, [gate.outcome for gate in each.gates]) for each in held.gated_steps] == [
        (weight, ["Pass"]) for weight in (10, 50, 100)
    ]
    assert [each.gates[0].text for each in held.gated_steps] == [each.message for each in found]


async def test_a_verdict_comes_before_the_move_that_follows_it() -> None:
    sim, _ = await an_upgrade(GATED)
    await ended(sim)
    data = [each.event.data for each in sim.events.unique()]
    for weight in (10, 50):
        (verdict,) = [
            index
            for index, each in enumerate(data)
            if isinstance(each, GateEvaluated) and each.traffic_percent == weight
        ]
        after = [
            index
            for index, each in enumerate(data)
            if isinstance(each, TrafficShifted) and each.before.new.traffic_percent == weight
        ]
        before = [
            index
            for index, each in enumerate(data)
            if isinstance(each, TrafficShifted) and each.after.new.traffic_percent == weight
        ]
        assert before[0] < verdict < after[0]


async def test_a_step_that_waits_for_requests_reports_that_once() -> None:
    sim, traffic = await an_upgrade(GATED)
    traffic.rate = 0.5
    await at_weight(sim, 10)
    await sim.run(15)
    assert evaluated(sim) == [], "the hold of the step is not over"
    await sim.run(600)
    sim.restart()
    await sim.run(60)
    assert [(each.outcome, each.traffic_percent) for each in evaluated(sim)] == [
        ("Inconclusive", 10)
    ]
    assert sim.reasons().count("GateInconclusive") == 1
    assert sim.condition(CONDITION) == ("Unknown", "GateInconclusive")
    assert repetitions_differ(sim) == []


async def test_a_failure_is_published_before_the_traffic_that_it_moves() -> None:
    sim, traffic = await an_upgrade(GATED)
    green = sim.pending
    traffic.failing[green] = 0.2
    await at_weight(sim, 10)
    await sim.until(lambda: sim.weights.get(green) == 0, seconds=60)
    sim.restart()
    await ended(sim)
    data = [each.event.data for each in sim.events.unique()]
    (failed,) = evaluated(sim)
    assert (failed.outcome, failed.traffic_percent, failed.gate) == ("Fail", 10, "errorRate")
    assert failed.value is not None
    assert failed.value > 0.1
    moved = [
        each
        for each in data
        if isinstance(each, TrafficShifted) and each.after.new.traffic_percent == 0
    ]
    aborted = [each for each in data if isinstance(each, Aborted)]
    assert data.index(failed) < data.index(moved[0]) < data.index(aborted[0])
    (step,) = receipt(sim).gated_steps
    assert (step.weight, step.gates[0].outcome, step.gates[0].text) == (10, "Fail", failed.message)
    assert repetitions_differ(sim) == []


async def test_the_condition_of_a_failed_gate_holds_until_the_upgrade_is_over() -> None:
    sim, traffic = await an_upgrade({**GATED, "onFailure": "Pause"})
    traffic.failing[sim.pending] = 0.2
    await sim.until(lambda: sim.condition(CONDITION) == ("False", "GateFailed"), seconds=100)
    assert "errorRate: " in sim.message(CONDITION)
    await sim.run(30)
    assert sim.condition(CONDITION) == ("False", "GateFailed")


async def counted(spec: Json, **traffic_rate: float) -> tuple[int, int, float]:
    """Return the writes of the route and of the status in an upgrade, and how long it took."""
    sim, traffic = await an_upgrade(spec)
    traffic.rate = traffic_rate.get("rate", 50)
    before = writes(sim, HTTP_ROUTE.kind), writes(sim, RAY_SERVICE.kind)
    began = sim.clock.monotonic()
    await ended(sim)
    spent = sim.clock.monotonic() - began
    return (
        writes(sim, HTTP_ROUTE.kind) - before[0],
        writes(sim, RAY_SERVICE.kind) - before[1],
        spent,
    )


async def test_gates_that_pass_within_their_steps_cost_one_write_of_the_route_for_each_outcome() -> (
    None
):
    plain, gated = await counted(CANARY), await counted(GATED)
    steps, first = 3, 1
    assert gated[0] - plain[0] <= steps + first + 1


async def test_gates_that_are_waited_for_cost_figures_and_outcomes_but_no_more() -> None:
    plain, waited = await counted(CANARY), await counted(GATED, rate=8)
    assert waited[0] - plain[0] <= waited[2] / 15 + 2 * 3 + 2


async def test_a_step_without_requests_writes_nothing() -> None:
    sim, traffic = await an_upgrade(GATED)
    traffic.rate = 0
    await at_weight(sim, 10)
    await sim.run(40)
    held = sim.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute")]["metadata"][
        "resourceVersion"
    ]
    await sim.run(300)
    route = sim.kube.objects[(HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute")]
    assert route["metadata"]["resourceVersion"] == held
