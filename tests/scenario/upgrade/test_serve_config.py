"""The Serve config of a cluster, whatever dies or is refused around the PUT, and with other writers (ADR 5)."""

from collections.abc import Awaitable, Callable

import pytest

from common import errors
from common.api.opaque import Json
from common.kube.resources import CONTROLLER_REVISION
from common.ray import serve_config
from common.ray.dashboard import Target
from scenario.service_reconciler.harness import Harness, Killed
from scenario.upgrade.harness import BLUE, GREEN, Pair, a_running_pair
from support.builders.ray_service import a_serve_config, a_strategy
from support.fakes.kube import Request

FAST = a_strategy(surge=50, step=50, interval=1)
V2, V3 = (a_serve_config(message=each) for each in ("v2", "v3"))
NEW_CLUSTER = {"type": "NewCluster"}


def messages(harness: Pair, cluster: str) -> list[str]:
    """Return the version of each config that Ray took, in order."""
    return [
        each["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"]
        for each in harness.puts(cluster)
    ]


def deployed(harness: Pair, cluster: str) -> str:
    return messages(harness, cluster)[-1]


def refuse_records(harness: Pair, *verbs: str) -> Callable[[], None]:
    """Let an admission webhook refuse to write ControllerRevisions; return what ends that."""

    def refuse(request: Request) -> errors.RaybusError | None:
        is_refused = (
            request.kind == CONTROLLER_REVISION.kind
            and request.verb in verbs
            and "-goal-" not in request.name
        )
        return errors.Forbidden("admission webhook denied the request") if is_refused else None

    harness.kube.faults.append(refuse)
    return lambda: harness.kube.faults.remove(refuse)


def die_around_the_next_put(
    harness: Pair, side: str, *, then: Callable[[], None] = lambda: None
) -> None:
    """Let the process that sends the next config die before or after it, and something happen at that moment."""

    def die(what: str) -> None:
        if what.startswith(side):
            harness.serve.on_put.remove(die)
            then()
            raise Killed

    harness.serve.on_put.append(die)


@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_a_record_that_is_refused_costs_few_puts_and_one_event(verb: str) -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active
    allow = refuse_records(harness, verb)
    attempts = harness.serve.attempts
    harness.apply(serve=V2, upgradeStrategy=FAST)
    await harness.run(60)
    notes = [note for _, _, note in harness.kube.events() if "admission webhook denied" in note]
    sent = harness.serve.attempts - attempts
    assert (sent, len(notes)) == ((0, 1) if verb == "create" else (1, 1)), (sent, notes)
    assert deployed(harness, blue) == ("v1" if verb == "create" else "v2")
    allow()
    await harness.run(15)
    assert deployed(harness, blue) == "v2"
    assert harness.serve.attempts - attempts <= 2


async def test_a_config_that_cannot_be_recorded_is_reported_in_a_condition_until_it_is_sent() -> (
    None
):
    harness = await a_running_pair(upgradeStrategy=FAST)
    allow = refuse_records(harness, "create")
    harness.apply(serve=V2, upgradeStrategy=FAST)
    await harness.run(15)
    assert "does not have the Serve config" in harness.message("Ready")
    allow()
    await harness.run(15)
    assert harness.message("Ready") == "Number of serve endpoints is greater than 0"


async def test_a_cluster_that_is_to_keep_its_config_is_not_reported_without_one() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    harness.apply(
        config=GREEN, serve=V2, upgradeStrategy=FAST, annotations={"raybus.io/abort": "true"}
    )
    await harness.run(30)
    assert harness.condition("UpgradeAborted")[0] == "True"
    assert "does not have the Serve config" not in str(harness.status["conditions"])


@pytest.mark.parametrize("side", ["put", "after put"])
async def test_the_active_cluster_keeps_what_ray_took_when_the_process_died_around_the_put(
    side: str,
) -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active

    def ask_for_the_next() -> None:
        harness.apply(config=GREEN, serve=V3, upgradeStrategy=FAST)

    die_around_the_next_put(harness, side, then=ask_for_the_next)
    harness.apply(serve=V2, upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=90)
    had = "v2" if side == "after put" else "v1"
    assert set(messages(harness, blue)[1:]) == {had}
    assert set(messages(harness, harness.active)) == {"v3"}


@pytest.mark.parametrize("end", ["lost", "late"])
async def test_the_active_cluster_keeps_what_ray_took_when_the_answer_was_lost(end: str) -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active
    harness.serve.next_puts = [end]
    harness.apply(serve=V2, upgradeStrategy=FAST)
    await harness.reconcile()
    harness.apply(config=GREEN, serve=V3, upgradeStrategy=FAST)
    await harness.reconcile()
    harness.serve.land()
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=90)
    assert "v1" not in messages(harness, blue)[messages(harness, blue).index("v2") :]
    assert set(messages(harness, harness.active)) == {"v3"}


async def test_a_put_that_lands_after_its_record_was_followed_by_another_is_undone() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active
    harness.serve.next_puts = ["late"]
    harness.apply(serve=V2, upgradeStrategy=FAST)
    await harness.reconcile()
    harness.apply(serve=V3, upgradeStrategy=FAST)
    await harness.run(10)
    assert deployed(harness, blue) == "v3"
    harness.serve.land()
    assert deployed(harness, blue) == "v2"
    await harness.run(8)
    assert deployed(harness, blue) == "v3"
    assert harness.reasons().count("ServeConfigDrifted") == 1


def during_the_next_put(harness: Pair, happens: Callable[[], Awaitable[None]]) -> None:
    """Let something happen while the next PUT is on its way; Ray carries it out afterwards."""
    request = harness.serve.request

    async def slow(target: Target, path: str, *, most: int, config: Json | None = None) -> bytes:
        if config is not None:
            setattr(harness.serve, "request", request)  # noqa: B010  (a method of an instance)
            await happens()
        return await request(target, path, most=most, config=config)

    setattr(harness.serve, "request", slow)  # noqa: B010


@pytest.mark.parametrize("number", range(10))
async def test_two_writers_around_a_change_of_strategy_end_with_the_newest_config(
    number: int,
) -> None:
    """traffic-manager is about to PUT v2 when the strategy changes; service-reconciler sends v3 meanwhile."""
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active

    async def change_strategy() -> None:
        harness.apply(serve=V3, upgradeStrategy=NEW_CLUSTER)
        await Harness.reconcile(harness)
        assert deployed(harness, blue) == "v3"

    during_the_next_put(harness, change_strategy)
    harness.apply(
        serve=a_serve_config(message="v2", import_path=f"model{number}:app"), upgradeStrategy=FAST
    )
    await harness.reconcile()
    assert messages(harness, blue)[1:] == ["v3", "v2"]
    await harness.run(8)
    assert deployed(harness, blue) == "v3"
    await at_rest(harness)


async def test_a_writer_that_decided_before_another_one_wrote_sends_nothing() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active

    def overtake(request: Request) -> errors.RaybusError | None:
        if request.kind != CONTROLLER_REVISION.kind or request.verb != "create":
            return None
        harness.kube.faults.remove(overtake)
        body = {**request.body, "data": {**request.body["data"], "serveConfigV2": V3}}
        harness.kube.put(CONTROLLER_REVISION, body)
        harness.serve.head(f"{blue}-head-svc").deploy(
            {**serve_config.to_json(V3), "target_capacity": 100}
        )
        harness.apply(serve=V3, upgradeStrategy=FAST)
        return None

    harness.kube.faults.append(overtake)
    harness.apply(serve=V2, upgradeStrategy=FAST)
    await harness.run(10)
    assert messages(harness, blue) == ["v1", "v3"]


async def at_rest(harness: Pair, *, seconds: float = 20) -> None:
    attempts = harness.serve.attempts
    await harness.run(seconds)
    assert harness.serve.attempts == attempts


async def test_a_config_that_somebody_else_sends_each_time_is_not_fought_without_end() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active
    head = harness.serve.head(f"{blue}-head-svc")
    foreign = {
        "applications": [{"name": "app", "import_path": "foreign:app"}],
        "target_capacity": 100,
    }
    attempts = harness.serve.attempts
    for _ in range(240):
        if head.puts[-1] != foreign:
            head.deploy(foreign)
        await harness.run(0.5)
    assert 2 <= harness.serve.attempts - attempts <= 8


async def test_a_config_that_ray_reports_in_another_form_is_sent_again_twice_and_then_known() -> (
    None
):
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active
    head = harness.serve.head(f"{blue}-head-svc")
    head.rewrites = {"route_prefix": "/somewhere"}
    attempts = harness.serve.attempts
    await harness.run(300)
    assert harness.serve.attempts - attempts <= 2
    attempts = harness.serve.attempts
    head.shows = {"mine": {"status": "RUNNING", "deployments": {}, "deployed_app_config": None}}
    await harness.run(300)
    assert harness.serve.attempts == attempts, "code deployed another application"


async def test_a_head_that_lost_its_applications_in_the_middle_of_a_put_gets_what_was_asked_for() -> (
    None
):
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active
    head = harness.serve.head(f"{blue}-head-svc")

    def lose_all() -> None:
        head.restart()
        harness.apply(config=GREEN, serve=V3, upgradeStrategy=FAST)

    die_around_the_next_put(harness, "after put", then=lose_all)
    harness.apply(serve=V2, upgradeStrategy=FAST)
    await harness.until(lambda: bool(harness.pending), seconds=20)
    await harness.run(3)
    assert messages(harness, blue)[1:3] == ["v2", "v2"]


async def test_a_record_of_the_last_release_counts_as_accepted() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active
    for each in harness.kube.all(CONTROLLER_REVISION):
        if "serveConfigV2" not in each["data"]:
            continue
        await harness.kube.delete(CONTROLLER_REVISION, "default", each["metadata"]["name"])
        meta = {key: each["metadata"][key] for key in ("labels", "ownerReferences")}
        harness.kube.put(
            CONTROLLER_REVISION, {**each, "metadata": {**meta, "name": f"{blue}-serve-0123456789"}}
        )
    harness.restart()
    puts = len(harness.puts(blue))
    await harness.run(20)
    assert len(harness.puts(blue)) == puts
    harness.apply(config=BLUE, serve=V2, upgradeStrategy=FAST)
    await harness.run(5)
    assert deployed(harness, blue) == "v2"
