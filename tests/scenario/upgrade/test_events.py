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
from scenario.upgrade.harness import BLUE, GREEN, RED, Pair
from support.builders.ray_service import NAMESPACE, a_group, a_serve_config, a_strategy
from support.upgrade_events import TRACE

pytestmark = pytest.mark.long

STEPS = a_strategy(surge=50, step=50, interval=1)
BLUE_GREEN: Json = {"type": "NewCluster"}
V2 = a_serve_config(message="v2")
BEGIN = ["started", "cluster-created"]
END = ["promoted", "drain-started", "completed"]
MOVES = {"capacity-changed": "+", "traffic-shifted": ">"}


async def a_service(strategy: Json, **fields: Any) -> Pair:
    """Return a service that serves; its keywords hold for what `ask` asks for too."""
    harness = Pair()
    fields.setdefault("rayClusterDeletionDelaySeconds", 0)
    harness.apply(config=BLUE, upgradeStrategy=strategy, **fields)
    await harness.until(
        lambda: harness.is_complete() and (bool(harness.weights) or strategy is not STEPS)
    )
    await harness.run(2)
    return harness


def ask(
    harness: Pair,
    config: Json,
    strategy: Json = STEPS,
    *,
    annotations: Json | None = None,
    **fields: Any,
) -> None:
    """Change the spec; annotations of ours are given without their prefix."""
    fields.setdefault("rayClusterDeletionDelaySeconds", 0)
    annotations = {f"raybus.io/{name}": value for name, value in (annotations or {}).items()}
    harness.apply(config=config, upgradeStrategy=strategy, annotations=annotations, **fields)


async def until_over(harness: Pair, *, seconds: float = 150) -> None:
    """Let time pass until nothing is left of what was begun just now."""
    await harness.run(0.5)
    await harness.until(
        lambda: harness.is_complete() and len(harness.clusters) == 1, seconds=seconds
    )
    await harness.run(2)


def kinds(harness: Pair) -> list[str]:
    """Return the kinds of events, with a run of steps as one string: `+` for a capacity, `>` for a weight."""
    found: list[str] = []
    for kind in harness.events.kinds():
        mark = MOVES.get(kind)
        if mark and found and set(found[-1]) <= set(MOVES.values()):
            found[-1] += mark
        else:
            found.append(mark or kind)
    return found


def the(harness: Pair, kind: str) -> Any:
    """Return the data of the one event of a kind."""
    (found,) = [each.event.data for each in harness.events.unique() if each.kind == kind]
    return found


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_an_upgrade_from_its_beginning_to_its_end(strategy: Json) -> None:
    harness = await a_service(strategy)
    assert harness.events.attempts == 0, "the first cluster is no upgrade"
    ask(harness, GREEN, strategy)
    await until_over(harness)
    assert kinds(harness) == [*BEGIN, *(["+>++>+"] if strategy is STEPS else []), *END]
    started = the(harness, "started")
    assert isinstance(started, Started)
    assert (started.reason, started.strategy, started.generation) == (
        "SpecChanged",
        strategy["type"],
        2,
    )
    assert the(harness, "cluster-created").cluster == harness.active == started.upgrade.new
    assert the(harness, "completed").receipt.seconds.draining >= 2
    body = harness.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, harness.active)]
    assert labels.UPGRADE_FROM not in body["metadata"]["annotations"]


async def test_each_step_reports_the_value_before_and_after() -> None:
    harness = await a_service(STEPS)
    ask(harness, GREEN)
    await until_over(harness)
    steps = [each.event.data for each in harness.events.unique() if each.kind in MOVES]
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
    harness = await a_service(BLUE_GREEN)
    ask(harness, BLUE, BLUE_GREEN, serve=V2)
    await harness.run(10)
    more = a_group("more", replicas=1, minReplicas=0)
    config = {**BLUE, "workerGroupSpecs": [*BLUE["workerGroupSpecs"], more]}
    ask(harness, config, BLUE_GREEN, serve=V2)
    await harness.run(10)
    ask(harness, GREEN, {"type": "None"}, serve=V2)
    await harness.run(10)
    assert (harness.events.attempts, len(harness.clusters)) == (0, 1)


@pytest.mark.parametrize(
    ("weight", "outcome"),
    [
        pytest.param(50, "RolledBack", id="traffic had moved"),
        pytest.param(0, "Cancelled", id="none had moved"),
    ],
)
async def test_a_spec_that_is_reverted(weight: int, outcome: str) -> None:
    harness = await a_service(STEPS)
    ask(harness, GREEN)
    await harness.until(
        lambda: bool(harness.pending) and harness.view.weights[1] == weight, seconds=60
    )
    blue = harness.active
    ask(harness, BLUE)
    await until_over(harness)
    assert (harness.active, kinds(harness)[-1]) == (blue, "rolled-back")
    event = the(harness, "rolled-back")
    assert isinstance(event, RolledBack)
    assert event.outcome == outcome
    directions = [getattr(each.event.data, "direction", None) for each in harness.events.unique()]
    assert ("back" in directions) is (weight > 0)


async def test_a_spec_that_is_reverted_before_the_switch() -> None:
    harness = await a_service(BLUE_GREEN)
    ask(harness, GREEN, BLUE_GREEN)
    await harness.run(1)
    ask(harness, BLUE, BLUE_GREEN)
    await until_over(harness)
    assert kinds(harness) == [*BEGIN, "rolled-back"]
    assert the(harness, "rolled-back").outcome == "Cancelled"


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_a_third_spec_ends_one_upgrade_and_begins_another(strategy: Json) -> None:
    harness = await a_service(strategy)
    ask(harness, GREEN, strategy)
    await harness.until(
        lambda: bool(harness.pending) and (strategy is BLUE_GREEN or harness.view.weights[1] == 50)
    )
    ask(harness, RED, strategy)
    await until_over(harness)
    found = kinds(harness)
    over = found.index("rolled-back")
    assert found[over + 1 : over + 3] == BEGIN
    assert found[-3:] == END
    assert len({each.event.data.upgrade.id for each in harness.events.unique()}) == 2


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_an_abort(strategy: Json) -> None:
    harness = await a_service(strategy)
    ask(harness, GREEN, strategy)
    await harness.until(
        lambda: bool(harness.pending) and (strategy is BLUE_GREEN or harness.view.weights[1] == 50)
    )
    ask(harness, GREEN, strategy, annotations={"abort": "true"})
    await until_over(harness)
    event = the(harness, "aborted")
    assert isinstance(event, Aborted)
    assert (event.reason, event.over, the(harness, "rolled-back").outcome) == (
        "AbortRequested",
        False,
        "Aborted",
    )
    assert kinds(harness)[-1] == "rolled-back"


async def test_each_pause_and_its_end() -> None:
    harness = await a_service(STEPS)
    ask(harness, GREEN)
    await harness.until(lambda: harness.view.weights[1] == 50, seconds=60)
    for _ in range(3):
        ask(harness, GREEN, annotations={"pause": "true"})
        await harness.run(0.25)
        ask(harness, GREEN)
        await harness.run(0.25)
    await until_over(harness)
    assert [each for each in harness.events.kinds() if each in {"paused", "resumed"}] == [
        "paused",
        "resumed",
    ] * 3
    assert kinds(harness)[-3:] == END


async def test_a_stall_and_the_pause_at_the_deadline() -> None:
    harness = await a_service(BLUE_GREEN)
    missing = a_serve_config(import_path="missing:app", message="v2")
    deadline = {"progress-deadline": "20", "on-deadline": "Pause"}
    ask(harness, GREEN, BLUE_GREEN, serve=missing, annotations=deadline)
    await harness.run(40)
    assert kinds(harness) == [*BEGIN, "stalled", "paused"]
    assert (the(harness, "stalled").reason, the(harness, "paused").reason) == (
        "ApplicationNotReady",
        "ProgressDeadlineExceeded",
    )
    ask(harness, GREEN, BLUE_GREEN, serve=V2, annotations=deadline | {"on-deadline": "Wait"})
    await until_over(harness)
    assert kinds(harness)[-3:] == END


async def test_a_first_cluster_that_does_not_become_ready_in_time() -> None:
    harness = Pair()
    harness.holds_pods = True
    harness.apply(
        config=BLUE, upgradeStrategy=BLUE_GREEN, annotations={"ray.io/initializing-timeout": "5s"}
    )
    await harness.run(8)
    assert kinds(harness) == ["failed"]
    event = the(harness, "failed")
    assert isinstance(event, Failed)
    assert (event.upgrade.old, event.reason) == ("", "InitializingTimeout")


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_a_suspend_ends_an_upgrade_and_its_end_begins_none(strategy: Json) -> None:
    harness = await a_service(strategy)
    ask(harness, GREEN, strategy)
    await harness.run(1)
    ask(harness, GREEN, strategy, suspend=True)
    await harness.until(lambda: harness.condition("Suspended")[0] == "True")
    event = the(harness, "aborted")
    assert (event.reason, event.over, kinds(harness)[-1]) == ("ServiceSuspended", True, "aborted")
    before = len(harness.events.unique())
    ask(harness, GREEN, strategy)
    await until_over(harness)
    assert len(harness.events.unique()) == before


async def test_a_suspend_while_the_old_cluster_drains() -> None:
    harness = await a_service(BLUE_GREEN)
    ask(harness, GREEN, BLUE_GREEN, rayClusterDeletionDelaySeconds=60)
    await harness.until(lambda: "drain-started" in harness.events.kinds())
    ask(harness, GREEN, BLUE_GREEN, suspend=True, rayClusterDeletionDelaySeconds=60)
    await harness.until(lambda: harness.condition("Suspended")[0] == "True")
    assert kinds(harness) == [*BEGIN, *END]


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_at_rest_nothing_is_reported_not_even_by_a_new_process(strategy: Json) -> None:
    harness = await a_service(strategy)
    ask(harness, GREEN, strategy)
    await until_over(harness)
    attempts, writes = harness.events.attempts, len(harness.kube.writes())
    await harness.run(60)
    harness.restart()
    await harness.run(60)
    assert (harness.events.attempts, len(harness.kube.writes())) == (attempts, writes)


async def test_an_event_carries_the_trace_of_the_reconcile() -> None:
    harness = await a_service(BLUE_GREEN)
    ask(harness, GREEN, BLUE_GREEN)
    token = tracing.CURRENT.set(TRACE)
    await harness.run(1)
    tracing.CURRENT.reset(token)
    (first, *_) = harness.events.stored
    assert (first.event.traceparent, first.headers["traceparent"]) == (TRACE, TRACE)


async def test_refusals_lose_events_and_stop_no_upgrade() -> None:
    harness = await a_service(BLUE_GREEN)

    def refuse(side: str) -> None:
        raise errors.Rejected(f"maximum message size exceeded {side}")

    harness.events.on_publish.append(refuse)
    ask(harness, GREEN, BLUE_GREEN)
    await until_over(harness)
    lost = [
        note
        for kind, reason, note in harness.kube.events()
        if (kind, reason) == ("Warning", "UpgradeEventLost")
    ]
    assert len(lost) == len([*BEGIN, *END])
    assert all("maximum message size exceeded" in each for each in lost)


async def test_a_stream_that_is_gone_holds_an_upgrade_for_a_while() -> None:
    harness = await a_service(BLUE_GREEN)

    def nobody(side: str) -> None:
        raise errors.Unavailable(f"nobody answers {side}: the stream is missing")

    harness.events.on_publish.append(nobody)
    ask(harness, GREEN, BLUE_GREEN)
    await harness.run(25)
    assert len(harness.clusters) == 1
    await until_over(harness)
    assert harness.reasons().count("UpgradeEventLost") == len([*BEGIN, *END])


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_without_nats_an_upgrade_waits_and_loses_nothing(strategy: Json) -> None:
    harness = await a_service(strategy)

    def away(side: str) -> None:
        if harness.events.problem is not None:
            raise errors.Unavailable(f"{harness.events.problem} {side}")

    harness.events.on_publish.insert(0, away)
    ask(harness, GREEN, strategy)
    for _ in range(6):
        harness.events.problem = "NATS is not reachable"
        await harness.run(40)
        harness.events.problem = None
        await harness.run(1)
    await until_over(harness)
    assert kinds(harness) == [*BEGIN, *(["+>++>+"] if strategy is STEPS else []), *END]
    assert "UpgradeEventLost" not in harness.reasons()
