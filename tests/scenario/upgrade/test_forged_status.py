"""A status or record that a tenant forged does not lead to changes of other owners' objects.

raybus corrects the status.
"""

import copy
from typing import Any, Final

import msgspec
import pytest

from common import labels
from common.api.opaque import Body, Json
from common.kube.client import PatchRequest
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE
from common.upgrade import traffic_record
from scenario.upgrade.test_own_route import a_route, a_rule, mine, serving_pair
from support.builders.ray_service import NAME, NAMESPACE, a_cluster_config, a_strategy
from support.simulator.simulator import BLUE, GREEN, Simulator, a_running_pair

FAST: Final = a_strategy(surge=100, step=50, interval=1)
STANDALONE: Final = "lonely"
"""A RayCluster that no RayService owns."""
SHOP: Final = "shop"
"""Another RayService of the namespace."""


async def a_shared_namespace(**fields: Any) -> Simulator:
    """Return a RayService that serves, beside another RayService and a RayCluster of its own."""
    sim = await a_running_pair(**fields)
    sim.apply(name=SHOP, config=a_cluster_config(), upgradeStrategy={"type": "NewCluster"})
    meta = {"name": STANDALONE, "labels": {"team": "b"}, "annotations": {}}
    sim.kube.put(RAY_CLUSTER, {"metadata": meta, "spec": copy.deepcopy(BLUE)})
    await sim.until(lambda: bool(cluster_of(sim, SHOP)), seconds=30)
    await sim.run(2)
    return sim


def cluster_of(sim: Simulator, service: str) -> str:
    return sim.status_of(service).get("activeServiceStatus", {}).get("rayClusterName", "")


def forge(sim: Simulator, **roles: str) -> None:
    """Write names of clusters into the status, as any writer of `rayservices/status` can."""
    status = copy.deepcopy(sim.status)
    for role, name in roles.items():
        status[f"{role}ServiceStatus"] = {
            **status.get(f"{role}ServiceStatus", {}),
            "rayClusterName": name,
        }
    sim.kube.set_status(RAY_SERVICE, NAMESPACE, NAME, status)


def held(sim: Simulator, name: str) -> Json:
    """Return what there is of a cluster that raybus could have changed."""
    body = sim.kube.objects[RAY_CLUSTER.kind, NAMESPACE, name]
    meta: Json = body["metadata"]
    around = [
        key
        for key in sim.kube.objects
        if key[2].startswith(name) and key[0] not in {"Event", "Pod"}
    ]
    return {
        "spec": body["spec"],
        "marks": [
            meta.get("labels"),
            meta.get("annotations"),
            meta.get("finalizers"),
            meta.get("deletionTimestamp"),
        ],
        "around": sorted(around),
        "configs": len(sim.puts(name)),
    }


@pytest.mark.parametrize("strategy", ["NewCluster", "in steps"])
@pytest.mark.parametrize("roles", [("active",), ("pending",), ("active", "pending")], ids="+".join)
@pytest.mark.parametrize("victim", [STANDALONE, SHOP])
async def test_a_cluster_of_somebody_else_is_not_touched(
    strategy: str, roles: tuple[str, ...], victim: str
) -> None:
    fields: Json = {"upgradeStrategy": FAST if strategy == "in steps" else {"type": "NewCluster"}}
    sim = await a_shared_namespace()
    sim.apply(**fields)
    await sim.run(5)
    own, name = sim.active, victim if victim == STANDALONE else cluster_of(sim, SHOP)
    before = held(sim, name)
    forge(sim, **dict.fromkeys(roles, name))
    sim.apply(**fields, serveConfigV2="applications: [{name: mine, import_path: evil.app}]")
    await sim.run(40)
    assert held(sim, name) == before
    assert sim.reasons().count("InvalidRayServiceStatus") == 1
    assert (sim.active, sim.pending) == (own, "")
    assert name not in sim.weights
    await sim.until(sim.is_complete)


async def test_a_forged_name_in_mid_upgrade_costs_the_author_his_upgrade_alone() -> None:
    sim = await a_shared_namespace()
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.until(lambda: bool(sim.pending) and 0 < (sim.view.weights[1] or 0) < 100)
    before = held(sim, STANDALONE)
    forge(sim, pending=STANDALONE)
    await sim.until(sim.is_complete, seconds=200)
    assert held(sim, STANDALONE) == before


@pytest.mark.parametrize(
    "name", ["../../tenant-b/rayclusters/prod", "-a", "A", "a" * 254, "x/y", "\u202e"]
)
async def test_a_name_that_no_cluster_can_have_is_dropped(name: str) -> None:
    sim = await a_running_pair()
    own = sim.active
    for role in ("active", "pending"):
        forge(sim, **{role: name})
        await sim.run(10)
        assert (sim.active, sim.pending) == (own, "")
        assert {each.namespace for each in sim.kube.requests} == {NAMESPACE}
    assert sim.failed == []


async def test_one_cluster_in_both_roles_ends_in_one_role() -> None:
    sim = await a_running_pair()
    own = sim.active
    forge(sim, pending=own)
    await sim.until(sim.is_complete, seconds=60)
    assert sim.clusters.count(own) == 1


async def test_a_cluster_without_a_controller_that_carries_the_labels_stays_in_service() -> None:
    sim = await a_running_pair()
    body = sim.kube.objects[RAY_CLUSTER.kind, NAMESPACE, sim.active]
    orphan: Body = {**body, "metadata": {**body["metadata"], "ownerReferences": []}}
    sim.kube.put(RAY_CLUSTER, orphan)
    own = sim.active
    await sim.run(20)
    assert (sim.active, sim.pending, sim.is_ready()) == (own, "", True)


async def test_a_record_that_names_a_foreign_cluster_gives_it_nothing() -> None:
    sim = await a_shared_namespace()
    route = sim.kube.objects[HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute"]
    forged = {STANDALONE: {"capacity": 100, "weight": 100, "movedAt": None}}
    text = msgspec.json.encode(
        {"version": 1, "clusters": forged, "changedAt": "2199-01-01T00:00:00Z"}
    ).decode()
    before = held(sim, STANDALONE)
    sim.kube.put(
        HTTP_ROUTE,
        {
            **route,
            "metadata": {**route["metadata"], "annotations": {traffic_record.ANNOTATION: text}},
        },
    )
    await sim.run(20)
    assert held(sim, STANDALONE) == before
    assert sim.weights == {sim.active: 100}


async def test_a_status_makes_no_backend_of_somebody_elses_service_ours() -> None:
    foreign: Json = {"name": "shop-serve-svc", "port": 8000, "weight": 30}
    sim = await serving_pair(
        a_route(a_rule(backendRefs=[foreign, {"name": "demo-serve-svc", "port": 8000}]))
    )
    own = sim.active
    sim.services["service"].is_down = True
    forge(sim, pending=SHOP)
    sim.restart("traffic")
    await sim.run(10)
    assert foreign in mine(sim)["spec"]["rules"][0]["backendRefs"]
    sim.services["service"].is_down = False
    sim.restart("service")
    await sim.run(30)
    assert foreign in mine(sim)["spec"]["rules"][0]["backendRefs"]
    assert (sim.active, labels.ORIGIN_NAME in mine(sim)["metadata"]["labels"]) == (own, True)


async def test_a_forged_name_of_the_replaced_cluster_stops_no_reconcile() -> None:
    sim = await a_running_pair(upgradeStrategy=FAST)
    blue = sim.active
    forged: Json = {"annotations": {labels.UPGRADE_FROM: "x" * 2000}}
    await sim.kube.patch(RAY_CLUSTER, NAMESPACE, blue, PatchRequest(body={"metadata": forged}))
    sim.apply(config=GREEN, upgradeStrategy=FAST)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=200)
