"""`raybus plan` says what the services then do: the same change is planned, applied, and compared, over and over.

The changes are drawn with fixed seeds; every few of them comes while an upgrade is on.
"""

import copy
import random
from typing import Any

import msgspec
import pytest

from common.api import ray_service
from common.api.core import Pod, Service
from common.api.gateway import HttpRoute
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.kube.resources import CONTROLLER_REVISION, HTTP_ROUTE, POD, RAY_CLUSTER, RAY_SERVICE, SERVICE, Resource
from common.ray.revision import Revision
from raybus_cli.planning import predict
from raybus_cli.planning.predict import Outcome
from raybus_cli.reading import observing
from raybus_cli.reading.look import Look
from scenario.cli.changes import Spec, changed
from scenario.service_reconciler.world import World, a_running_world
from scenario.upgrade.world import a_config, a_running_pair
from service_reconciler.config import Config
from support.builders.ray_service import NAME, a_cluster_config, a_group, a_serve_config, a_strategy

CHANGES = 60
SETTLED = 400.0
"""Seconds of the world's time within which any upgrade is over."""


def look_at(world: World) -> Look:
    """Return what the command line would read."""

    def all_of(resource: Resource, view: Any) -> tuple[Any, ...]:
        return tuple(msgspec.json.decode(msgspec.json.encode(each), type=view) for each in world.kube.all(resource))

    routes = {each.metadata.name: each for each in all_of(HTTP_ROUTE, HttpRoute)}
    return Look(
        service=next(each for each in all_of(RAY_SERVICE, RayService) if each.metadata.name == NAME),
        clusters=all_of(RAY_CLUSTER, RayCluster),
        pods=all_of(POD, Pod),
        services=all_of(SERVICE, Service),
        revisions=all_of(CONTROLLER_REVISION, Revision),
        route=routes.get(f"{NAME}-httproute"),
    )


def _goal(look: Look, world: World, spec: Spec) -> RayService:
    """Return the RayService as it will be stored."""
    other = World(config=world.config)
    other.apply(**copy.deepcopy(spec))
    wanted = ray_service.decode(other.service)
    generation = look.service.metadata.generation + (wanted.raw_spec != look.service.raw_spec)
    return observing.with_spec(look.service, wanted.spec_json, generation=generation)


def _happened(before: Look, after: Look, told: list[str]) -> Outcome:
    """Return what the services did between two looks; `told` are the reasons of their Events meanwhile."""
    conditions = {each.type: each for each in after.service.status.conditions}
    if conditions["Ready"].reason == "ValidationFailed" or _is_refused(after):
        return Outcome.REFUSED
    dropped = before.pending and not after.pending and after.active == before.active
    if dropped or "RollbackStarted" in told:
        return Outcome.ROLLED_BACK
    known = {each.metadata.name for each in before.clusters}
    if any(each.metadata.name not in known for each in after.clusters):
        return Outcome.NEW_CLUSTER
    name = before.pending or before.active
    return Outcome.IN_PLACE if _has(after, name) != _has(before, name) else Outcome.NOTHING


def _is_refused(look: Look) -> bool:
    return observing.observe(look, Config()).violation is not None


def _has(look: Look, name: str) -> tuple[list[str], str]:
    """Return the groups and the Serve config of a cluster; one that has none yet will get that of the spec."""
    cluster = look.cluster(name)
    assert cluster is not None
    groups = [each["groupName"] for each in cluster.raw_spec["workerGroupSpecs"]]
    given = observing.given(look, cluster)
    return groups, look.service.raw_spec["serveConfigV2"] if given is None else given.serve_config


async def _compare(world: World, spec: Spec, draw: random.Random) -> list[Outcome]:
    """Change the spec again and again; return what happened, which is what was planned."""
    seen: list[Outcome] = []
    world.start_seconds = 6.0
    for number in range(CHANGES):
        if draw.random() < 0.7:
            await world.until(lambda: world.is_settled() or _is_refused(look_at(world)), seconds=SETTLED)
        spec = changed(spec, draw)
        before, told = look_at(world), len(world.reasons())
        planned = predict.predict(before, _goal(before, world, spec), world.config, now=world.clock.now())
        world.apply(**copy.deepcopy(spec))
        await world.run(4)
        happened = _happened(before, look_at(world), world.reasons()[told:])
        assert planned.outcome == happened, f"change {number}: planned {planned}, notes {spec}"
        seen.append(happened)
    return seen


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
async def test_with_blue_green(seed: int) -> None:
    spec: Spec = {"config": a_cluster_config(a_group(), a_group("large")), "serve": a_serve_config()}
    world = await a_running_world(**copy.deepcopy(spec))
    seen = await _compare(world, spec, random.Random(seed))
    assert {Outcome.NEW_CLUSTER, Outcome.IN_PLACE, Outcome.NOTHING, Outcome.REFUSED} <= set(seen)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 13))
async def test_in_steps(seed: int) -> None:
    strategy = a_strategy(surge=50, step=25, interval=2)
    config = a_config("rayproject/ray:2.52.0", a_group(minReplicas=0), a_group("large", minReplicas=0))
    spec: Spec = {"config": config, "serve": a_serve_config(), "upgradeStrategy": strategy}
    world = await a_running_pair(**copy.deepcopy(spec))
    seen = await _compare(world, spec, random.Random(seed))
    assert {Outcome.NEW_CLUSTER, Outcome.IN_PLACE, Outcome.NOTHING} <= set(seen)


@pytest.mark.parametrize(
    "kind", [pytest.param("None", id="strategy None"), pytest.param("NewCluster", id="NewCluster")]
)
async def test_the_strategy_decides_whether_a_changed_image_means_a_new_cluster(kind: str) -> None:
    strategy = {"type": kind}
    world = await a_running_world(upgradeStrategy=strategy)
    before = look_at(world)
    spec: Spec = {"config": a_cluster_config(image="rayproject/ray:2.53.0"), "upgradeStrategy": strategy}
    planned = predict.predict(before, _goal(before, world, spec), world.config, now=world.clock.now())
    world.apply(**spec)
    await world.run(4)
    assert planned.outcome is (Outcome.NOTHING if kind == "None" else Outcome.NEW_CLUSTER)
    assert _happened(before, look_at(world), []) is planned.outcome


async def test_suspend_and_resume() -> None:
    world = await a_running_world()
    before = look_at(world)
    planned = predict.predict(before, _goal(before, world, {"suspend": True}), world.config, now=world.clock.now())
    world.apply(suspend=True)
    await world.until(lambda: world.condition("Suspended")[0] == "True")
    asleep = look_at(world)
    again = predict.predict(asleep, _goal(asleep, world, {"suspend": False}), world.config, now=world.clock.now())
    world.apply(suspend=False)
    await world.until(world.is_settled)
    assert (planned.outcome, again.outcome) == (Outcome.SUSPENDED, Outcome.CREATED)
