"""What outsiders are told of upgrades, story by story; what holds of every story stands in the simulation's `chronicle`."""

from typing import Any

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER
from common.runtime import trace
from common.upgrade_events import Aborted, CapacityChanged, Failed, RolledBack, Started, TrafficShifted
from scenario.upgrade.world import BLUE, GREEN, RED, Pair
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
    world = Pair()
    fields.setdefault("rayClusterDeletionDelaySeconds", 0)
    world.apply(config=BLUE, upgradeStrategy=strategy, **fields)
    await world.until(lambda: world.is_settled() and (bool(world.weights) or strategy is not STEPS))
    await world.run(2)
    return world


def ask(world: Pair, config: Json, strategy: Json = STEPS, *, says: Json | None = None, **fields: Any) -> None:
    """Change the spec; annotations of ours are given without their prefix."""
    fields.setdefault("rayClusterDeletionDelaySeconds", 0)
    annotations = {f"raybus.io/{name}": value for name, value in (says or {}).items()}
    world.apply(config=config, upgradeStrategy=strategy, annotations=annotations, **fields)


async def until_over(world: Pair, *, seconds: float = 150) -> None:
    """Let time pass until nothing is left of what was begun just now."""
    await world.run(0.5)
    await world.until(lambda: world.is_settled() and len(world.clusters) == 1, seconds=seconds)
    await world.run(2)


def story(world: Pair) -> list[str]:
    """Return the kinds of events, with a run of steps as one word: `+` for a capacity, `>` for a weight."""
    words: list[str] = []
    for kind in world.events.kinds():
        mark = MOVES.get(kind)
        if mark and words and set(words[-1]) <= set(MOVES.values()):
            words[-1] += mark
        else:
            words.append(mark or kind)
    return words


def the(world: Pair, kind: str) -> Any:
    """Return what the one event of a kind says."""
    (found,) = [each.event.data for each in world.events.unique() if each.kind == kind]
    return found


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_an_upgrade_from_its_beginning_to_its_end(strategy: Json) -> None:
    world = await a_service(strategy)
    assert world.events.attempts == 0, "the first cluster is no upgrade"
    ask(world, GREEN, strategy)
    await until_over(world)
    assert story(world) == [*BEGIN, *(["+>++>+"] if strategy is STEPS else []), *END]
    started = the(world, "started")
    assert isinstance(started, Started)
    assert (started.reason, started.strategy, started.generation) == ("SpecChanged", strategy["type"], 2)
    assert the(world, "cluster-created").cluster == world.active == started.upgrade.new
    assert the(world, "completed").receipt.seconds.draining >= 2
    body = world.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, world.active)]
    assert labels.UPGRADE_FROM not in body["metadata"]["annotations"]


async def test_each_step_says_what_was_and_what_is() -> None:
    world = await a_service(STEPS)
    ask(world, GREEN)
    await until_over(world)
    steps = [each.event.data for each in world.events.unique() if each.kind in MOVES]
    parts = [
        (each.after.old.capacity_percent, each.after.old.traffic_percent, each.after.new.capacity_percent)
        for each in steps
        if isinstance(each, CapacityChanged | TrafficShifted)
    ]
    assert parts == [(100, 100, 50), (100, 50, 50), (50, 50, 50), (50, 50, 100), (50, 0, 100), (0, 0, 100)]


async def test_what_changes_in_place_is_no_upgrade() -> None:
    world = await a_service(BLUE_GREEN)
    ask(world, BLUE, BLUE_GREEN, serve=V2)
    await world.run(10)
    more = a_group("more", replicas=1, minReplicas=0)
    config = {**BLUE, "workerGroupSpecs": [*BLUE["workerGroupSpecs"], more]}
    ask(world, config, BLUE_GREEN, serve=V2)
    await world.run(10)
    ask(world, GREEN, {"type": "None"}, serve=V2)
    await world.run(10)
    assert (world.events.attempts, len(world.clusters)) == (0, 1)


@pytest.mark.parametrize(
    ("weight", "outcome"),
    [pytest.param(50, "RolledBack", id="traffic had moved"), pytest.param(0, "Cancelled", id="none had moved")],
)
async def test_a_spec_that_is_reverted(weight: int, outcome: str) -> None:
    world = await a_service(STEPS)
    ask(world, GREEN)
    await world.until(lambda: bool(world.pending) and world.view.weights[1] == weight, seconds=60)
    blue = world.active
    ask(world, BLUE)
    await until_over(world)
    assert (world.active, story(world)[-1]) == (blue, "rolled-back")
    told = the(world, "rolled-back")
    assert isinstance(told, RolledBack)
    assert told.outcome == outcome
    directions = [getattr(each.event.data, "direction", None) for each in world.events.unique()]
    assert ("back" in directions) is (weight > 0)


async def test_a_spec_that_is_reverted_before_the_switch() -> None:
    world = await a_service(BLUE_GREEN)
    ask(world, GREEN, BLUE_GREEN)
    await world.run(1)
    ask(world, BLUE, BLUE_GREEN)
    await until_over(world)
    assert story(world) == [*BEGIN, "rolled-back"]
    assert the(world, "rolled-back").outcome == "Cancelled"


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_a_third_spec_ends_one_upgrade_and_begins_another(strategy: Json) -> None:
    world = await a_service(strategy)
    ask(world, GREEN, strategy)
    await world.until(lambda: bool(world.pending) and (strategy is BLUE_GREEN or world.view.weights[1] == 50))
    ask(world, RED, strategy)
    await until_over(world)
    told = story(world)
    over = told.index("rolled-back")
    assert told[over + 1 : over + 3] == BEGIN
    assert told[-3:] == END
    assert len({each.event.data.upgrade.id for each in world.events.unique()}) == 2


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_an_abort(strategy: Json) -> None:
    world = await a_service(strategy)
    ask(world, GREEN, strategy)
    await world.until(lambda: bool(world.pending) and (strategy is BLUE_GREEN or world.view.weights[1] == 50))
    ask(world, GREEN, strategy, says={"abort": "true"})
    await until_over(world)
    told = the(world, "aborted")
    assert isinstance(told, Aborted)
    assert (told.reason, told.over, the(world, "rolled-back").outcome) == ("AbortRequested", False, "Aborted")
    assert story(world)[-1] == "rolled-back"


async def test_each_pause_and_its_end() -> None:
    world = await a_service(STEPS)
    ask(world, GREEN)
    await world.until(lambda: world.view.weights[1] == 50, seconds=60)
    for _ in range(3):
        ask(world, GREEN, says={"pause": "true"})
        await world.run(0.25)
        ask(world, GREEN)
        await world.run(0.25)
    await until_over(world)
    assert [each for each in world.events.kinds() if each in {"paused", "resumed"}] == ["paused", "resumed"] * 3
    assert story(world)[-3:] == END


async def test_a_stall_and_the_pause_at_the_deadline() -> None:
    world = await a_service(BLUE_GREEN)
    missing = a_serve_config(import_path="missing:app", message="v2")
    deadline = {"progress-deadline": "20", "on-deadline": "Pause"}
    ask(world, GREEN, BLUE_GREEN, serve=missing, says=deadline)
    await world.run(40)
    assert story(world) == [*BEGIN, "stalled", "paused"]
    assert (the(world, "stalled").reason, the(world, "paused").reason) == (
        "ApplicationNotReady",
        "ProgressDeadlineExceeded",
    )
    ask(world, GREEN, BLUE_GREEN, serve=V2, says=deadline | {"on-deadline": "Wait"})
    await until_over(world)
    assert story(world)[-3:] == END


async def test_a_first_cluster_that_does_not_become_ready_in_time() -> None:
    world = Pair()
    world.holds_pods = True
    world.apply(config=BLUE, upgradeStrategy=BLUE_GREEN, annotations={"ray.io/initializing-timeout": "5s"})
    await world.run(8)
    assert story(world) == ["failed"]
    told = the(world, "failed")
    assert isinstance(told, Failed)
    assert (told.upgrade.old, told.reason) == ("", "InitializingTimeout")


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_a_suspend_ends_an_upgrade_and_its_end_begins_none(strategy: Json) -> None:
    world = await a_service(strategy)
    ask(world, GREEN, strategy)
    await world.run(1)
    ask(world, GREEN, strategy, suspend=True)
    await world.until(lambda: world.condition("Suspended")[0] == "True")
    told = the(world, "aborted")
    assert (told.reason, told.over, story(world)[-1]) == ("ServiceSuspended", True, "aborted")
    before = len(world.events.unique())
    ask(world, GREEN, strategy)
    await until_over(world)
    assert len(world.events.unique()) == before


async def test_a_suspend_while_the_old_cluster_drains() -> None:
    world = await a_service(BLUE_GREEN)
    ask(world, GREEN, BLUE_GREEN, rayClusterDeletionDelaySeconds=60)
    await world.until(lambda: "drain-started" in world.events.kinds())
    ask(world, GREEN, BLUE_GREEN, suspend=True, rayClusterDeletionDelaySeconds=60)
    await world.until(lambda: world.condition("Suspended")[0] == "True")
    assert story(world) == [*BEGIN, *END]


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_at_rest_nothing_is_told_not_even_by_a_new_process(strategy: Json) -> None:
    world = await a_service(strategy)
    ask(world, GREEN, strategy)
    await until_over(world)
    attempts, writes = world.events.attempts, len(world.kube.writes())
    await world.run(60)
    world.restart()
    await world.run(60)
    assert (world.events.attempts, len(world.kube.writes())) == (attempts, writes)


async def test_an_event_carries_the_trace_of_the_look() -> None:
    world = await a_service(BLUE_GREEN)
    ask(world, GREEN, BLUE_GREEN)
    with trace.bound(TRACE):
        await world.run(1)
    (first, *_) = world.events.stored
    assert (first.event.traceparent, first.headers["traceparent"]) == (TRACE, TRACE)


async def test_refusals_lose_events_and_stop_no_upgrade() -> None:
    world = await a_service(BLUE_GREEN)

    def refuse(side: str) -> None:
        raise errors.Rejected(f"maximum message size exceeded {side}")

    world.events.on_publish.append(refuse)
    ask(world, GREEN, BLUE_GREEN)
    await until_over(world)
    lost = [note for kind, reason, note in world.kube.events() if (kind, reason) == ("Warning", "UpgradeEventLost")]
    assert len(lost) == len([*BEGIN, *END])
    assert all("maximum message size exceeded" in each for each in lost)


async def test_a_stream_that_is_gone_holds_an_upgrade_for_a_while() -> None:
    world = await a_service(BLUE_GREEN)

    def nobody(side: str) -> None:
        raise errors.Unavailable(f"nobody answers {side}: the stream is missing")

    world.events.on_publish.append(nobody)
    ask(world, GREEN, BLUE_GREEN)
    await world.run(25)
    assert len(world.clusters) == 1
    await until_over(world)
    assert world.reasons().count("UpgradeEventLost") == len([*BEGIN, *END])


@pytest.mark.parametrize("strategy", [STEPS, BLUE_GREEN], ids=["in steps", "at once"])
async def test_without_nats_an_upgrade_waits_and_loses_nothing(strategy: Json) -> None:
    world = await a_service(strategy)

    def away(side: str) -> None:
        if world.events.problem is not None:
            raise errors.Unavailable(f"{world.events.problem} {side}")

    world.events.on_publish.insert(0, away)
    ask(world, GREEN, strategy)
    for _ in range(6):
        world.events.problem = "NATS is not reachable"
        await world.run(40)
        world.events.problem = None
        await world.run(1)
    await until_over(world)
    assert story(world) == [*BEGIN, *(["+>++>+"] if strategy is STEPS else []), *END]
    assert "UpgradeEventLost" not in world.reasons()
