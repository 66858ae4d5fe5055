"""Which Serve config a cluster has, whatever dies or is refused around the PUT, and whoever else writes (ADR 5)."""

from collections.abc import Awaitable, Callable

import pytest

from common import errors
from common.api.opaque import Json
from common.kube.resources import CONTROLLER_REVISION
from common.ray import serve_config
from common.ray.dashboard import Head
from scenario.service_reconciler.world import Killed, World
from scenario.upgrade.world import BLUE, GREEN, Pair, a_running_pair
from support.builders.ray_service import a_serve_config, a_strategy
from support.fakes.kube import Request

FAST = a_strategy(surge=50, step=50, interval=1)
V2, V3 = (a_serve_config(message=each) for each in ("v2", "v3"))
NEW_CLUSTER = {"type": "NewCluster"}


def messages(world: Pair, cluster: str) -> list[str]:
    """Return the version of each config that Ray took, in order."""
    return [each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in world.puts(cluster)]


def deployed(world: Pair, cluster: str) -> str:
    return messages(world, cluster)[-1]


def refuse_records(world: Pair, *verbs: str) -> Callable[[], None]:
    """Let an admission webhook refuse to write ControllerRevisions; return what ends that."""

    def refuse(request: Request) -> errors.RaybusError | None:
        is_refused = request.kind == CONTROLLER_REVISION.kind and request.verb in verbs and "-goal-" not in request.name
        return errors.Forbidden("admission webhook denied the request") if is_refused else None

    world.kube.faults.append(refuse)
    return lambda: world.kube.faults.remove(refuse)


def die_around_the_next_put(world: Pair, side: str, *, then: Callable[[], None] = lambda: None) -> None:
    """Let the process that sends the next config die before or after it, and something happen at that moment."""

    def die(what: str) -> None:
        if what.startswith(side):
            world.serve.on_put.remove(die)
            then()
            raise Killed

    world.serve.on_put.append(die)


@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_a_record_that_is_refused_costs_few_puts_and_one_event(verb: str) -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    allow = refuse_records(world, verb)
    attempts = world.serve.attempts
    world.apply(serve=V2, upgradeStrategy=FAST)
    await world.run(60)
    told = [note for _, _, note in world.kube.events() if "admission webhook denied" in note]
    sent = world.serve.attempts - attempts
    assert (sent, len(told)) == ((0, 1) if verb == "create" else (1, 1)), (sent, told)
    assert deployed(world, blue) == ("v1" if verb == "create" else "v2")
    allow()
    await world.run(15)
    assert deployed(world, blue) == "v2"
    assert world.serve.attempts - attempts <= 2


async def test_a_config_that_cannot_be_recorded_is_told_in_a_condition_until_it_is_sent() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    allow = refuse_records(world, "create")
    world.apply(serve=V2, upgradeStrategy=FAST)
    await world.run(15)
    assert "does not have the Serve config" in world.message("Ready")
    allow()
    await world.run(15)
    assert world.message("Ready") == "Number of serve endpoints is greater than 0"


async def test_a_cluster_that_is_to_keep_its_config_is_not_said_to_lack_one() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    world.apply(config=GREEN, serve=V2, upgradeStrategy=FAST, annotations={"raybus.io/abort": "true"})
    await world.run(30)
    assert world.condition("UpgradeAborted")[0] == "True"
    assert "does not have the Serve config" not in str(world.status["conditions"])


@pytest.mark.parametrize("side", ["put", "after put"])
async def test_the_active_cluster_keeps_what_ray_took_when_the_process_died_around_the_put(side: str) -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active

    def ask_for_the_next() -> None:
        world.apply(config=GREEN, serve=V3, upgradeStrategy=FAST)

    die_around_the_next_put(world, side, then=ask_for_the_next)
    world.apply(serve=V2, upgradeStrategy=FAST)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=90)
    had = "v2" if side == "after put" else "v1"
    assert set(messages(world, blue)[1:]) == {had}
    assert set(messages(world, world.active)) == {"v3"}


@pytest.mark.parametrize("end", ["lost", "late"])
async def test_the_active_cluster_keeps_what_ray_took_when_the_answer_was_lost(end: str) -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    world.serve.next_puts = [end]
    world.apply(serve=V2, upgradeStrategy=FAST)
    await world.look()
    world.apply(config=GREEN, serve=V3, upgradeStrategy=FAST)
    await world.look()
    world.serve.land()
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=90)
    assert "v1" not in messages(world, blue)[messages(world, blue).index("v2") :]
    assert set(messages(world, world.active)) == {"v3"}


async def test_a_put_that_lands_after_its_record_was_followed_by_another_is_undone() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    world.serve.next_puts = ["late"]
    world.apply(serve=V2, upgradeStrategy=FAST)
    await world.look()
    world.apply(serve=V3, upgradeStrategy=FAST)
    await world.run(10)
    assert deployed(world, blue) == "v3"
    world.serve.land()
    assert deployed(world, blue) == "v2"
    await world.run(8)
    assert deployed(world, blue) == "v3"
    assert world.reasons().count("ServeConfigDrifted") == 1


def during_the_next_put(world: Pair, happens: Callable[[], Awaitable[None]]) -> None:
    """Let something happen while the next PUT is on its way; Ray carries it out afterwards."""
    deploy = world.serve.deploy

    async def slow(head: Head, config: Json) -> None:
        setattr(world.serve, "deploy", deploy)  # noqa: B010  (a method of an instance)
        await happens()
        await deploy(head, config)

    setattr(world.serve, "deploy", slow)  # noqa: B010


@pytest.mark.parametrize("number", range(10))
async def test_two_writers_around_a_change_of_strategy_end_with_the_newest_config(number: int) -> None:
    """traffic-manager is about to PUT v2 when the strategy changes; service-reconciler sends v3 meanwhile."""
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active

    async def change_strategy() -> None:
        world.apply(serve=V3, upgradeStrategy=NEW_CLUSTER)
        await World.look(world)
        assert deployed(world, blue) == "v3"

    during_the_next_put(world, change_strategy)
    world.apply(serve=a_serve_config(message="v2", import_path=f"model{number}:app"), upgradeStrategy=FAST)
    await world.look()
    assert messages(world, blue)[1:] == ["v3", "v2"]
    await world.run(8)
    assert deployed(world, blue) == "v3"
    await at_rest(world)


async def test_a_writer_that_decided_before_another_one_wrote_sends_nothing() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active

    def overtake(request: Request) -> errors.RaybusError | None:
        if request.kind != CONTROLLER_REVISION.kind or request.verb != "create":
            return None
        world.kube.faults.remove(overtake)
        body = {**request.body, "data": {**request.body["data"], "serveConfigV2": V3}}
        world.kube.put(CONTROLLER_REVISION, body)
        world.serve.head(f"{blue}-head-svc").deploy({**serve_config.to_json(V3), "target_capacity": 100})
        world.apply(serve=V3, upgradeStrategy=FAST)
        return None

    world.kube.faults.append(overtake)
    world.apply(serve=V2, upgradeStrategy=FAST)
    await world.run(10)
    assert messages(world, blue) == ["v1", "v3"]


async def at_rest(world: Pair, *, seconds: float = 20) -> None:
    attempts = world.serve.attempts
    await world.run(seconds)
    assert world.serve.attempts == attempts


async def test_a_config_that_somebody_else_sends_each_time_is_not_fought_without_end() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    head = world.serve.head(f"{blue}-head-svc")
    foreign = {"applications": [{"name": "app", "import_path": "foreign:app"}], "target_capacity": 100}
    attempts = world.serve.attempts
    for _ in range(240):
        if head.puts[-1] != foreign:
            head.deploy(foreign)
        await world.run(0.5)
    assert 2 <= world.serve.attempts - attempts <= 8


async def test_a_config_that_ray_reports_in_its_own_words_is_sent_again_twice_and_then_known() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    head = world.serve.head(f"{blue}-head-svc")
    head.rewrites = {"route_prefix": "/somewhere"}
    attempts = world.serve.attempts
    await world.run(300)
    assert world.serve.attempts - attempts <= 2


async def test_a_head_that_lost_its_applications_in_the_middle_of_a_put_gets_what_was_asked_for() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    head = world.serve.head(f"{blue}-head-svc")

    def lose_all() -> None:
        head.restart()
        world.apply(config=GREEN, serve=V3, upgradeStrategy=FAST)

    die_around_the_next_put(world, "after put", then=lose_all)
    world.apply(serve=V2, upgradeStrategy=FAST)
    await world.until(lambda: bool(world.pending), seconds=20)
    await world.run(3)
    assert messages(world, blue)[1:3] == ["v2", "v2"]


async def test_a_record_of_the_last_release_counts_as_accepted() -> None:
    world = await a_running_pair(upgradeStrategy=FAST)
    blue = world.active
    for each in world.kube.all(CONTROLLER_REVISION):
        if "serveConfigV2" not in each["data"]:
            continue
        await world.kube.delete(CONTROLLER_REVISION, "default", each["metadata"]["name"])
        meta = {key: each["metadata"][key] for key in ("labels", "ownerReferences")}
        world.kube.put(CONTROLLER_REVISION, {**each, "metadata": {**meta, "name": f"{blue}-serve-0123456789"}})
    world.restart()
    puts = len(world.puts(blue))
    await world.run(20)
    assert len(world.puts(blue)) == puts
    world.apply(config=BLUE, serve=V2, upgradeStrategy=FAST)
    await world.run(5)
    assert deployed(world, blue) == "v2"
