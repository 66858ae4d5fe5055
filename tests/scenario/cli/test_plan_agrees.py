"""`raybus plan` predicts what the services then do: the same change is planned, applied, and compared, over and over.

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
from common.kube.resources import (
    CONTROLLER_REVISION,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from common.ray.revision import Revision
from common.ray.serve_status import ServeDetails
from common.ray.view import dashboard_service, head_is_ready
from raybus_cli.planning import predict
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.reading import observing
from raybus_cli.reading.snapshot import Snapshot
from scenario.cli.changes import Spec, changed
from support.builders import snapshots
from support.builders.ray_service import NAME, a_cluster_config, a_group, a_serve_config, a_strategy
from support.simulator.simulator import Simulator, a_config, a_running_pair, a_running_simulator

CHANGES = 60
WITHIN = 400.0
"""Simulated seconds within which any upgrade ends."""


def snapshot_of(sim: Simulator) -> Snapshot:
    """Return what the command line would read."""

    def all_of(resource: Resource, view: Any) -> tuple[Any, ...]:
        return tuple(
            msgspec.json.decode(msgspec.json.encode(each), type=view)
            for each in sim.kube.all(resource)
        )

    routes = {each.metadata.name: each for each in all_of(HTTP_ROUTE, HttpRoute)}
    clusters = all_of(RAY_CLUSTER, RayCluster)
    return Snapshot(
        service=next(
            each for each in all_of(RAY_SERVICE, RayService) if each.metadata.name == NAME
        ),
        clusters=clusters,
        pods=all_of(POD, Pod),
        services=all_of(SERVICE, Service),
        revisions=all_of(CONTROLLER_REVISION, Revision),
        route=routes.get(f"{NAME}-httproute"),
        serve={
            each.metadata.name: msgspec.convert(
                sim.serve.head(dashboard_service(each)).details(), ServeDetails
            )
            for each in clusters
            if head_is_ready(each)
        },
    )


def _goal(snapshot: Snapshot, sim: Simulator, spec: Spec) -> RayService:
    """Return the RayService as it will be stored."""
    other = Simulator(settings=sim.settings)
    other.apply(**copy.deepcopy(spec))
    wanted = ray_service.decode(other.service)
    generation = snapshot.service.metadata.generation + (
        wanted.raw_spec != snapshot.service.raw_spec
    )
    return snapshots.with_spec(snapshot.service, wanted.spec_json, generation=generation)


def _happened(before: Snapshot, after: Snapshot, reasons: list[str]) -> PlanOutcome:
    """Return what the services did between two snapshots; `reasons` are those of their Events meanwhile."""
    conditions = {each.type: each for each in after.service.status.conditions}
    if conditions["Ready"].reason == "ValidationFailed" or _is_refused(after):
        return PlanOutcome.REFUSED
    dropped = before.pending and not after.pending and after.active == before.active
    if dropped or "RollbackStarted" in reasons:
        return PlanOutcome.ROLLED_BACK
    known = {each.metadata.name for each in before.clusters}
    if any(each.metadata.name not in known for each in after.clusters):
        return PlanOutcome.NEW_CLUSTER
    name = before.pending or before.active
    return PlanOutcome.IN_PLACE if _has(after, name) != _has(before, name) else PlanOutcome.NOTHING


def _is_refused(snapshot: Snapshot) -> bool:
    return observing.observe(snapshot).violation is not None


def _has(snapshot: Snapshot, name: str) -> tuple[list[str], str]:
    """Return the groups and the Serve config of a cluster; one that has none yet will get that of the spec."""
    cluster = snapshot.find_cluster(name)
    assert cluster is not None
    groups = [each["groupName"] for each in cluster.raw_spec["workerGroupSpecs"]]
    given = observing.find_config(snapshot, cluster)
    return groups, snapshot.service.raw_spec[
        "serveConfigV2"
    ] if given is None else given.serve_config


async def _compare(sim: Simulator, spec: Spec, draw: random.Random) -> list[PlanOutcome]:
    """Change the spec again and again; return what happened, which is what was planned."""
    seen: list[PlanOutcome] = []
    sim.ray_clusters.start_seconds = 6.0
    for number in range(CHANGES):
        if draw.random() < 0.7:
            await sim.until(
                lambda: sim.is_complete() or _is_refused(snapshot_of(sim)), seconds=WITHIN
            )
        spec = changed(spec, draw)
        before, reported = snapshot_of(sim), len(sim.reasons())
        planned = predict.predict(
            before, _goal(before, sim, spec), sim.settings.gates, now=sim.clock.now()
        )
        sim.apply(**copy.deepcopy(spec))
        await sim.run(4)
        happened = _happened(before, snapshot_of(sim), sim.reasons()[reported:])
        assert planned.outcome == happened, f"change {number}: planned {planned}, notes {spec}"
        seen.append(happened)
    return seen


@pytest.mark.long
@pytest.mark.parametrize("seed", range(3))
async def test_with_blue_green(seed: int) -> None:
    spec: Spec = {
        "config": a_cluster_config(a_group(), a_group("large")),
        "serve": a_serve_config(),
    }
    sim = await a_running_simulator(**copy.deepcopy(spec))
    seen = await _compare(sim, spec, random.Random(seed))
    assert {
        PlanOutcome.NEW_CLUSTER,
        PlanOutcome.IN_PLACE,
        PlanOutcome.NOTHING,
        PlanOutcome.REFUSED,
    } <= set(seen)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(10, 13))
async def test_in_steps(seed: int) -> None:
    strategy = a_strategy(surge=50, step=25, interval=2)
    config = a_config(
        "rayproject/ray:2.52.0", a_group(minReplicas=0), a_group("large", minReplicas=0)
    )
    spec: Spec = {"config": config, "serve": a_serve_config(), "upgradeStrategy": strategy}
    sim = await a_running_pair(**copy.deepcopy(spec))
    seen = await _compare(sim, spec, random.Random(seed))
    assert {PlanOutcome.NEW_CLUSTER, PlanOutcome.IN_PLACE, PlanOutcome.NOTHING} <= set(seen)


@pytest.mark.parametrize(
    "kind", [pytest.param("None", id="strategy None"), pytest.param("NewCluster", id="NewCluster")]
)
async def test_the_strategy_decides_whether_a_changed_image_means_a_new_cluster(kind: str) -> None:
    strategy = {"type": kind}
    sim = await a_running_simulator(upgradeStrategy=strategy)
    before = snapshot_of(sim)
    spec: Spec = {
        "config": a_cluster_config(image="rayproject/ray:2.53.0"),
        "upgradeStrategy": strategy,
    }
    planned = predict.predict(
        before, _goal(before, sim, spec), sim.settings.gates, now=sim.clock.now()
    )
    sim.apply(**spec)
    await sim.run(4)
    assert planned.outcome is (PlanOutcome.NOTHING if kind == "None" else PlanOutcome.NEW_CLUSTER)
    assert _happened(before, snapshot_of(sim), []) is planned.outcome


async def test_suspend_and_resume() -> None:
    sim = await a_running_simulator()
    before = snapshot_of(sim)
    planned = predict.predict(
        before, _goal(before, sim, {"suspend": True}), sim.settings.gates, now=sim.clock.now()
    )
    sim.apply(suspend=True)
    await sim.until(lambda: sim.condition("Suspended")[0] == "True")
    asleep = snapshot_of(sim)
    again = predict.predict(
        asleep, _goal(asleep, sim, {"suspend": False}), sim.settings.gates, now=sim.clock.now()
    )
    sim.apply(suspend=False)
    await sim.until(sim.is_complete)
    assert (planned.outcome, again.outcome) == (PlanOutcome.SUSPENDED, PlanOutcome.CREATED)
