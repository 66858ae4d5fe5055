"""The Serve config of a cluster, whatever dies or is refused around the PUT, and with other writers (ADR 5)."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from common import errors
from common.api.opaque import Json
from common.kube.resources import CONTROLLER_REVISION
from common.ray import serve_config
from common.ray.dashboard import Target
from support.builders.ray_service import a_serve_config, a_strategy
from support.fakes.kube import Request
from support.simulator.simulator import BLUE, GREEN, Simulator, a_running_pair
from support.simulator.writes import Killed

FAST = a_strategy(surge=50, step=50, interval=1)
V2, V3 = (a_serve_config(message=each) for each in ("v2", "v3"))
NEW_CLUSTER = {"type": "NewCluster"}


def messages(sim: Simulator, cluster: str) -> list[str]:
    """Return the version of each config that Ray took, in order."""
    return [
        each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for each in sim.puts(cluster)
    ]


def deployed(sim: Simulator, cluster: str) -> str:
    return messages(sim, cluster)[-1]


def refuse_records(sim: Simulator, *verbs: str) -> Callable[[], None]:
    """Let an admission webhook refuse to write ControllerRevisions; return what ends that."""

    def refuse(request: Request) -> errors.RaybusError | None:
        is_refused = (
            request.kind == CONTROLLER_REVISION.kind
            and request.verb in verbs
            and "-goal-" not in request.name
        )
        return errors.Forbidden("admission webhook denied the request") if is_refused else None

    sim.kube.faults.append(refuse)
    return lambda: sim.kube.faults.remove(refuse)


def die_around_the_next_put(
    sim: Simulator, side: str, *, then: Callable[[], None] = lambda: None
) -> None:
    """Let the process that sends the next config die before or after it, and something happen at that moment."""

    def die(what: str) -> None:
        if what.startswith(side):
            sim.serve.on_put.remove(die)
            then()
            raise Killed

    sim.serve.on_put.append(die)


@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_a_record_that_is_refused_costs_few_puts_and_one_event(verb: str) -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    allow = refuse_records(sim, verb)
    attempts = sim.serve.attempts
    sim.apply(serve=V2, upgradeStrategy=FAST)
    await sim.run(60)
    notes = [note for _, _, note in sim.kube.events() if "admission webhook denied" in note]
    sent = sim.serve.attempts - attempts
    assert (sent, len(notes)) == ((0, 1) if verb == "create" else (1, 1)), (sent, notes)
    assert deployed(sim, blue) == ("v1" if verb == "create" else "v2")
    allow()
    await sim.run(15)
    assert deployed(sim, blue) == "v2"
    assert sim.serve.attempts - attempts <= 2


async def test_a_config_that_cannot_be_recorded_is_reported_in_a_condition_until_it_is_sent() -> (
    None
):
    sim = await a_running_pair(upgradeStrategy=FAST)
    allow = refuse_records(sim, "create")
    sim.apply(serve=V2, upgradeStrategy=FAST)
    await sim.run(15)
    assert "does not have the Serve config" in sim.message("Ready")
    allow()
    await sim.run(15)
    assert sim.message("Ready") == "Number of serve endpoints is greater than 0"


async def test_a_cluster_that_is_to_keep_its_config_is_not_reported_without_one() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    sim.apply(config=GREEN, serve=V2, upgradeStrategy=FAST, annotations={"raybus.io/abort": "true"})
    await sim.run(30)
    assert sim.condition("UpgradeAborted")[0] == "True"
    assert "does not have the Serve config" not in str(sim.status["conditions"])


@pytest.mark.parametrize("side", ["put", "after put"])
async def test_the_active_cluster_keeps_what_ray_took_when_the_process_died_around_the_put(
    side: str,
) -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active

    def ask_for_the_next() -> None:
        sim.apply(config=GREEN, serve=V3, upgradeStrategy=FAST)

    die_around_the_next_put(sim, side, then=ask_for_the_next)
    sim.apply(serve=V2, upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=90)
    had = "v2" if side == "after put" else "v1"
    assert set(messages(sim, blue)[1:]) == {had}
    assert set(messages(sim, sim.active)) == {"v3"}


@pytest.mark.parametrize("end", ["lost", "late"])
async def test_the_active_cluster_keeps_what_ray_took_when_the_answer_was_lost(end: str) -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    sim.serve.next_puts = [end]
    sim.apply(serve=V2, upgradeStrategy=FAST)
    await sim.reconcile()
    sim.apply(config=GREEN, serve=V3, upgradeStrategy=FAST)
    await sim.reconcile()
    sim.serve.land()
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=90)
    assert "v1" not in messages(sim, blue)[messages(sim, blue).index("v2") :]
    assert set(messages(sim, sim.active)) == {"v3"}


async def test_a_put_that_lands_after_its_record_was_followed_by_another_is_undone() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    sim.serve.next_puts = ["late"]
    sim.apply(serve=V2, upgradeStrategy=FAST)
    await sim.reconcile()
    sim.apply(serve=V3, upgradeStrategy=FAST)
    await sim.run(10)
    assert deployed(sim, blue) == "v3"
    sim.serve.land()
    assert deployed(sim, blue) == "v2"
    await sim.run(8)
    assert deployed(sim, blue) == "v3"
    assert sim.reasons().count("ServeConfigDrifted") == 1


def during_the_next_put(sim: Simulator, happens: Callable[[], Awaitable[None]]) -> None:
    """Let something happen while the next PUT is on its way; Ray carries it out afterwards."""
    request = sim.serve.request

    async def slow(
        target: Target, path: str, *, most: int, config: Json | None = None, **fields: Any
    ) -> bytes:
        if config is not None:
            setattr(sim.serve, "request", request)  # noqa: B010  (a method of an instance)
            await happens()
        return await request(target, path, most=most, config=config, **fields)

    setattr(sim.serve, "request", slow)  # noqa: B010


@pytest.mark.parametrize("number", range(10))
async def test_two_writers_around_a_change_of_strategy_end_with_the_newest_config(
    number: int,
) -> None:
    """traffic-manager is about to PUT v2 when the strategy changes; service-reconciler sends v3 meanwhile."""
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active

    async def change_strategy() -> None:
        sim.apply(serve=V3, upgradeStrategy=NEW_CLUSTER)
        await Simulator.reconcile(sim)
        assert deployed(sim, blue) == "v3"

    during_the_next_put(sim, change_strategy)
    sim.apply(
        serve=a_serve_config(message="v2", import_path=f"model{number}:app"), upgradeStrategy=FAST
    )
    await sim.reconcile()
    assert messages(sim, blue)[1:] == ["v3", "v2"]
    await sim.run(8)
    assert deployed(sim, blue) == "v3"
    await at_rest(sim)


async def test_a_writer_that_decided_before_another_one_wrote_sends_nothing() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active

    def overtake(request: Request) -> errors.RaybusError | None:
        if request.kind != CONTROLLER_REVISION.kind or request.verb != "create":
            return None
        sim.kube.faults.remove(overtake)
        body = {**request.body, "data": {**request.body["data"], "serveConfigV2": V3}}
        sim.kube.put(CONTROLLER_REVISION, body)
        sim.serve.head(f"{blue}-head-svc").deploy(
            {**serve_config.parse(V3).to_json(), "target_capacity": 100}
        )
        sim.apply(serve=V3, upgradeStrategy=FAST)
        return None

    sim.kube.faults.append(overtake)
    sim.apply(serve=V2, upgradeStrategy=FAST)
    await sim.run(10)
    assert messages(sim, blue) == ["v1", "v3"]


async def at_rest(sim: Simulator, *, seconds: float = 20) -> None:
    attempts = sim.serve.attempts
    await sim.run(seconds)
    assert sim.serve.attempts == attempts


async def test_a_config_that_somebody_else_sends_each_time_is_not_fought_without_end() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    head = sim.serve.head(f"{blue}-head-svc")
    foreign = {
        "applications": [{"name": "app", "import_path": "foreign:app"}],
        "target_capacity": 100,
    }
    attempts = sim.serve.attempts
    for _ in range(240):
        if head.puts[-1] != foreign:
            head.deploy(foreign)
        await sim.run(0.5)
    assert 2 <= sim.serve.attempts - attempts <= 8


async def test_a_config_that_ray_reports_in_another_form_is_sent_again_twice_and_then_known() -> (
    None
):
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    head = sim.serve.head(f"{blue}-head-svc")
    head.rewrites = {"route_prefix": "/somewhere"}
    attempts = sim.serve.attempts
    await sim.run(300)
    assert sim.serve.attempts - attempts <= 2
    attempts = sim.serve.attempts
    head.shows = {"mine": {"status": "RUNNING", "deployments": {}, "deployed_app_config": None}}
    await sim.run(300)
    assert sim.serve.attempts == attempts, "code deployed another application"


async def test_a_head_that_lost_its_applications_in_the_middle_of_a_put_gets_what_was_asked_for() -> (
    None
):
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    head = sim.serve.head(f"{blue}-head-svc")

    def lose_all() -> None:
        head.restart()
        sim.apply(config=GREEN, serve=V3, upgradeStrategy=FAST)

    die_around_the_next_put(sim, "after put", then=lose_all)
    sim.apply(serve=V2, upgradeStrategy=FAST)
    await sim.until(lambda: bool(sim.pending), seconds=20)
    await sim.run(3)
    assert messages(sim, blue)[1:3] == ["v2", "v2"]


async def test_a_record_of_the_last_release_counts_as_accepted() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    for each in sim.kube.all(CONTROLLER_REVISION):
        if "serveConfigV2" not in each["data"]:
            continue
        await sim.kube.delete(CONTROLLER_REVISION, "default", each["metadata"]["name"])
        meta = {key: each["metadata"][key] for key in ("labels", "ownerReferences")}
        sim.kube.put(
            CONTROLLER_REVISION, {**each, "metadata": {**meta, "name": f"{blue}-serve-0123456789"}}
        )
    sim.restart()
    puts = len(sim.puts(blue))
    await sim.run(20)
    assert len(sim.puts(blue)) == puts
    sim.apply(config=BLUE, serve=V2, upgradeStrategy=FAST)
    await sim.run(5)
    assert deployed(sim, blue) == "v2"
