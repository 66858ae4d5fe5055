"""The published events of upgrades, case by case; the invariants of every case are in the simulation's `event_invariants`."""

from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER
from common.observability import tracing
from common.upgrade.events import (
    Aborted,
    CapacityChanged,
    Failed,
    RolledBack,
    Started,
    TrafficShifted,
)
from support.builders.ray_service import NAMESPACE, a_group, a_serve_config, a_strategy
from support.simulator.simulator import BLUE, GREEN, RED, Simulator, a_pair
from support.upgrade_events import TRACE

pytestmark = pytest.mark.long

STEPS = a_strategy(surge=50, step=50, interval=1)
BLUE_GREEN: Json = {"type": "NewCluster"}
V2 = a_serve_config(message="v2")
BEGIN = ["started", "cluster-created"]
END = ["promoted", "drain-started", "completed"]
MOVES = {"capacity-changed": "+", "traffic-shifted": ">"}


async def a_service(strategy: Json, **fields: Any) -> Simulator:
    """Return a service that serves; its keywords hold for what `ask` asks for too."""
    sim = a_pair()
    fields.setdefault("rayClusterDeletionDelaySeconds", 0)
    sim.apply(config=BLUE, upgradeStrategy=strategy, **fields)
    await sim.until(lambda: sim.is_complete() and (bool(sim.weights) or strategy is not STEPS))
    await sim.run(2)
    return sim


def ask(
    sim: Simulator,
    config: Json,
    strategy: Json = STEPS,
    *,
    annotations: Json | None = None,
    **fields: Any,
) -> None:
    """Change the spec; annotations of ours are given without their prefix."""
    fields.setdefault("rayClusterDeletionDelaySeconds", 0)
    annotations = {f"raybus.io/{name}": value for name, value in (annotations or {}).items()}
    sim.apply(config=config, upgradeStrategy=strategy, annotations=annotations, **fields)


async def until_over(sim: Simulator, *, seconds: float = 150) -> None:
    """Let time pass until nothing is left of what was begun just now."""
    await sim.run(0.5)
    await sim.until(lambda: sim.is_complete() and len(sim.clusters) == 1, seconds=seconds)
    await sim.run(2)


def kinds(sim: Simulator) -> list[str]:
    """Return the kinds of events, with a run of steps as one string: `+` for a capacity, `>` for a weight."""
    found: list[str] = []
    for kind in sim.events.kinds():
        mark = MOVES.get(kind)
        if mark and found and set(found[-1]) <= set(MOVES.values()):
            found[-1] += mark
        else:
            found.append(mark or kind)
    return found


def the(sim: Simulator, kind: str) -> Any:
    """Return the data of the one event of a kind."""
    (found,) = [each.event.data for each in sim.events.unique() if each.kind == kind]
    return found


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_an_upgrade_from_its_beginning_to_its_end(strategy: Json) -> None:
    sim = await a_service(strategy)
    assert sim.events.attempts == 0, "the first cluster is no upgrade"
    ask(sim, GREEN, strategy)
    await until_over(sim)
    assert kinds(sim) == [*BEGIN, *(["+>++>+"] if strategy is STEPS else []), *END]
    started = the(sim, "started")
    assert isinstance(started, Started)
    assert (started.reason, started.strategy, started.generation) == (
        "SpecChanged",
        strategy["type"],
        2,
    )
    assert the(sim, "cluster-created").cluster == sim.active == started.upgrade.new
    assert the(sim, "completed").receipt.seconds.draining >= 2
    body = sim.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, sim.active)]
    assert labels.UPGRADE_FROM not in body["metadata"]["annotations"]


async def test_each_step_reports_the_value_before_and_after() -> None:
    sim = await a_service(STEPS)
    ask(sim, GREEN)
    await until_over(sim)
    steps = [each.event.data for each in sim.events.unique() if each.kind in MOVES]
    parts = [
        (
            each.after.old.capacity_percent,
            each.after.old.traffic_percent,
            each.after.new.capacity_percent,
        )
        for each in steps
        if isinstance(each, CapacityChanged | TrafficShifted)
    ]
    assert parts == [
        (100, 100, 50),
        (100, 50, 50),
        (50, 50, 50),
        (50, 50, 100),
        (50, 0, 100),
        (0, 0, 100),
    ]


async def test_what_changes_in_place_is_no_upgrade() -> None:
    sim = await a_service(BLUE_GREEN)
    ask(sim, BLUE, BLUE_GREEN, serve=V2)
    await sim.run(10)
    more = a_group("more", replicas=1, minReplicas=0)
    config = {**BLUE, "workerGroupSpecs": [*BLUE["workerGroupSpecs"], more]}
    ask(sim, config, BLUE_GREEN, serve=V2)
    await sim.run(10)
    ask(sim, GREEN, {"type": "None"}, serve=V2)
    await sim.run(10)
    assert (sim.events.attempts, len(sim.clusters)) == (0, 1)


@pytest.mark.parametrize(
    ("weight", "outcome"),
    [
        pytest.param(50, "RolledBack", id="traffic had moved"),
        pytest.param(0, "Cancelled", id="none had moved"),
    ],
)
async def test_a_spec_that_is_reverted(weight: int, outcome: str) -> None:
    sim = await a_service(STEPS)
    ask(sim, GREEN)
    await sim.until(lambda: bool(sim.pending) and sim.view.weights[1] == weight, seconds=60)
    blue = sim.active
    ask(sim, BLUE)
    await until_over(sim)
    assert (sim.active, kinds(sim)[-1]) == (blue, "rolled-back")
    event = the(sim, "rolled-back")
    assert isinstance(event, RolledBack)
    assert event.outcome == outcome
    directions = [getattr(each.event.data, "direction", None) for each in sim.events.unique()]
    assert ("back" in directions) is (weight > 0)


async def test_a_spec_that_is_reverted_before_the_switch() -> None:
    sim = await a_service(BLUE_GREEN)
    ask(sim, GREEN, BLUE_GREEN)
    await sim.run(1)
    ask(sim, BLUE, BLUE_GREEN)
    await until_over(sim)
    assert kinds(sim) == [*BEGIN, "rolled-back"]
    assert the(sim, "rolled-back").outcome == "Cancelled"


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_a_third_spec_ends_one_upgrade_and_begins_another(strategy: Json) -> None:
    sim = await a_service(strategy)
    ask(sim, GREEN, strategy)
    await sim.until(
        lambda: bool(sim.pending) and (strategy is BLUE_GREEN or sim.view.weights[1] == 50)
    )
    ask(sim, RED, strategy)
    await until_over(sim)
    found = kinds(sim)
    over = found.index("rolled-back")
    assert found[over + 1 : over + 3] == BEGIN
    assert found[-3:] == END
    assert len({each.event.data.upgrade.id for each in sim.events.unique()}) == 2


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_an_abort(strategy: Json) -> None:
    sim = await a_service(strategy)
    ask(sim, GREEN, strategy)
    await sim.until(
        lambda: bool(sim.pending) and (strategy is BLUE_GREEN or sim.view.weights[1] == 50)
    )
    ask(sim, GREEN, strategy, annotations={"abort": "true"})
    await until_over(sim)
    event = the(sim, "aborted")
    assert isinstance(event, Aborted)
    assert (event.reason, event.over, the(sim, "rolled-back").outcome) == (
        "AbortRequested",
        False,
        "Aborted",
    )
    assert kinds(sim)[-1] == "rolled-back"


async def test_each_pause_and_its_end() -> None:
    sim = await a_service(STEPS)
    ask(sim, GREEN)
    await sim.until(lambda: sim.view.weights[1] == 50, seconds=60)
    for _ in range(3):
        ask(sim, GREEN, annotations={"pause": "true"})
        await sim.run(0.25)
        ask(sim, GREEN)
        await sim.run(0.25)
    await until_over(sim)
    assert [each for each in sim.events.kinds() if each in {"paused", "resumed"}] == [
        "paused",
        "resumed",
    ] * 3
    assert kinds(sim)[-3:] == END


async def test_a_stall_and_the_pause_at_the_deadline() -> None:
    sim = await a_service(BLUE_GREEN)
    missing = a_serve_config(import_path="missing:app", message="v2")
    deadline = {"progress-deadline": "20", "on-deadline": "Pause"}
    ask(sim, GREEN, BLUE_GREEN, serve=missing, annotations=deadline)
    await sim.run(40)
    assert kinds(sim) == [*BEGIN, "stalled", "paused"]
    assert (the(sim, "stalled").reason, the(sim, "paused").reason) == (
        "ApplicationNotReady",
        "ProgressDeadlineExceeded",
    )
    ask(sim, GREEN, BLUE_GREEN, serve=V2, annotations=deadline | {"on-deadline": "Wait"})
    await until_over(sim)
    assert kinds(sim)[-3:] == END


async def test_a_first_cluster_that_does_not_become_ready_in_time() -> None:
    sim = a_pair()
    sim.ray_clusters.holds_pods = True
    sim.apply(
        config=BLUE, upgradeStrategy=BLUE_GREEN, annotations={"ray.io/initializing-timeout": "5s"}
    )
    await sim.run(8)
    assert kinds(sim) == ["failed"]
    event = the(sim, "failed")
    assert isinstance(event, Failed)
    assert (event.upgrade.old, event.reason) == ("", "InitializingTimeout")


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_a_suspend_ends_an_upgrade_and_its_end_begins_none(strategy: Json) -> None:
    sim = await a_service(strategy)
    ask(sim, GREEN, strategy)
    await sim.run(1)
    ask(sim, GREEN, strategy, suspend=True)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True")
    event = the(sim, "aborted")
    assert (event.reason, event.over, kinds(sim)[-1]) == ("ServiceSuspended", True, "aborted")
    before = len(sim.events.unique())
    ask(sim, GREEN, strategy)
    await until_over(sim)
    assert len(sim.events.unique()) == before


async def test_a_suspend_while_the_old_cluster_drains() -> None:
    sim = await a_service(BLUE_GREEN)
    ask(sim, GREEN, BLUE_GREEN, rayClusterDeletionDelaySeconds=60)
    await sim.until(lambda: "drain-started" in sim.events.kinds())
    ask(sim, GREEN, BLUE_GREEN, suspend=True, rayClusterDeletionDelaySeconds=60)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True")
    assert kinds(sim) == [*BEGIN, *END]


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_at_rest_nothing_is_reported_not_even_by_a_new_process(strategy: Json) -> None:
    sim = await a_service(strategy)
    ask(sim, GREEN, strategy)
    await until_over(sim)
    attempts, writes = sim.events.attempts, len(sim.kube.writes())
    await sim.run(60)
    sim.restart()
    await sim.run(60)
    assert (sim.events.attempts, len(sim.kube.writes())) == (attempts, writes)


async def test_an_event_carries_the_trace_of_the_reconcile() -> None:
    sim = await a_service(BLUE_GREEN)
    ask(sim, GREEN, BLUE_GREEN)
    token = tracing.CURRENT.set(TRACE)
    await sim.run(1)
    tracing.CURRENT.reset(token)
    (first, *_) = sim.events.stored
    assert (first.event.traceparent, first.headers["traceparent"]) == (TRACE, TRACE)


async def test_refusals_lose_events_and_stop_no_upgrade() -> None:
    sim = await a_service(BLUE_GREEN)

    def refuse(side: str) -> None:
        raise errors.Rejected(f"maximum message size exceeded {side}")

    sim.events.on_publish.append(refuse)
    ask(sim, GREEN, BLUE_GREEN)
    await until_over(sim)
    lost = [
        note
        for kind, reason, note in sim.kube.events()
        if (kind, reason) == ("Warning", "UpgradeEventLost")
    ]
    assert len(lost) == len([*BEGIN, *END])
    assert all("maximum message size exceeded" in each for each in lost)


async def test_a_stream_that_is_gone_holds_an_upgrade_for_a_while() -> None:
    sim = await a_service(BLUE_GREEN)

    def nobody(side: str) -> None:
        raise errors.Unavailable(f"nobody answers {side}: the stream is missing")

    sim.events.on_publish.append(nobody)
    ask(sim, GREEN, BLUE_GREEN)
    await sim.run(25)
    assert len(sim.clusters) == 1
    await until_over(sim)
    assert sim.reasons().count("UpgradeEventLost") == len([*BEGIN, *END])


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_without_nats_an_upgrade_waits_and_loses_nothing(strategy: Json) -> None:
    sim = await a_service(strategy)

    def away(side: str) -> None:
        if sim.events.problem is not None:
            raise errors.Unavailable(f"{sim.events.problem} {side}")

    sim.events.on_publish.insert(0, away)
    ask(sim, GREEN, strategy)
    for _ in range(6):
        sim.events.problem = "NATS is not reachable"
        await sim.run(40)
        sim.events.problem = None
        await sim.run(1)
    await until_over(sim)
    assert kinds(sim) == [*BEGIN, *(["+>++>+"] if strategy is STEPS else []), *END]
    assert "UpgradeEventLost" not in sim.reasons()
