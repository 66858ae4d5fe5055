"""A status or a record that a tenant wrote names what is not his: nobody else's object is changed, and raybus corrects the status."""

import copy
from typing import Any, Final

import msgspec
import pytest

from common import labels
from common.api.opaque import Body, Json
from common.kube.client import Patch
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE
from common.upgrade import traffic_record
from scenario.upgrade.harness import BLUE, GREEN, Pair, a_running_pair
from scenario.upgrade.test_own_route import a_pair, a_route, a_rule, mine
from support.builders.ray_service import NAME, NAMESPACE, a_cluster_config, a_strategy

FAST: Final = a_strategy(surge=100, step=50, interval=1)
STANDALONE: Final = "lonely"
"""A RayCluster that no RayService owns."""
SHOP: Final = "shop"
"""Another RayService of the namespace."""


async def a_shared_namespace(**fields: Any) -> Pair:
    """Return a RayService that serves, beside another RayService and a RayCluster of its own."""
    harness = await a_running_pair(**fields)
    harness.apply(name=SHOP, config=a_cluster_config(), upgradeStrategy={"type": "NewCluster"})
    meta = {"name": STANDALONE, "labels": {"team": "b"}, "annotations": {}}
    harness.kube.put(RAY_CLUSTER, {"metadata": meta, "spec": copy.deepcopy(BLUE)})
    await harness.until(lambda: bool(cluster_of(harness, SHOP)), seconds=30)
    await harness.run(2)
    return harness


def cluster_of(harness: Pair, service: str) -> str:
    return harness.status_of(service).get("activeServiceStatus", {}).get("rayClusterName", "")


def forge(harness: Pair, **roles: str) -> None:
    """Write names of clusters into the status, as any writer of `rayservices/status` can."""
    status = copy.deepcopy(harness.status)
    for role, name in roles.items():
        status[f"{role}ServiceStatus"] = {
            **status.get(f"{role}ServiceStatus", {}),
            "rayClusterName": name,
        }
    harness.kube.set_status(RAY_SERVICE, NAMESPACE, NAME, status)


def held(harness: Pair, name: str) -> Json:
    """Return what there is of a cluster that raybus could have changed."""
    body = harness.kube.objects[RAY_CLUSTER.kind, NAMESPACE, name]
    meta: Json = body["metadata"]
    around = [
        key
        for key in harness.kube.objects
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
        "configs": len(harness.puts(name)),
    }


@pytest.mark.parametrize("strategy", ["NewCluster", "in steps"])
@pytest.mark.parametrize("roles", [("active",), ("pending",), ("active", "pending")], ids="+".join)
@pytest.mark.parametrize("victim", [STANDALONE, SHOP])
async def test_a_cluster_of_somebody_else_is_not_touched(
    strategy: str, roles: tuple[str, ...], victim: str
) -> None:
    fields: Json = {"upgradeStrategy": FAST if strategy == "in steps" else {"type": "NewCluster"}}
    harness = await a_shared_namespace()
    harness.apply(**fields)
    await harness.run(5)
    own, name = harness.active, victim if victim == STANDALONE else cluster_of(harness, SHOP)
    before = held(harness, name)
    forge(harness, **dict.fromkeys(roles, name))
    harness.apply(**fields, serveConfigV2="applications: [{name: mine, import_path: evil.app}]")
    await harness.run(40)
    assert held(harness, name) == before
    assert harness.reasons().count("InvalidRayServiceStatus") == 1
    assert (harness.active, harness.pending) == (own, "")
    assert name not in harness.weights
    await harness.until(harness.is_complete)


async def test_a_forged_name_in_mid_upgrade_costs_the_author_his_upgrade_alone() -> None:
    harness = await a_shared_namespace()
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.until(lambda: bool(harness.pending) and 0 < (harness.view.weights[1] or 0) < 100)
    before = held(harness, STANDALONE)
    forge(harness, pending=STANDALONE)
    await harness.until(harness.is_complete, seconds=200)
    assert held(harness, STANDALONE) == before


@pytest.mark.parametrize(
    "name", ["../../tenant-b/rayclusters/prod", "-a", "A", "a" * 254, "x/y", "\u202e"]
)
async def test_a_name_that_no_cluster_can_have_is_dropped(name: str) -> None:
    harness = await a_running_pair()
    own = harness.active
    for role in ("active", "pending"):
        forge(harness, **{role: name})
        await harness.run(10)
        assert (harness.active, harness.pending) == (own, "")
        assert {each.namespace for each in harness.kube.requests} == {NAMESPACE}
    assert harness.failed == []


async def test_one_cluster_in_both_roles_ends_in_one_role() -> None:
    harness = await a_running_pair()
    own = harness.active
    forge(harness, pending=own)
    await harness.until(harness.is_complete, seconds=60)
    assert harness.clusters.count(own) == 1


async def test_a_cluster_without_a_controller_that_carries_the_labels_stays_in_service() -> None:
    harness = await a_running_pair()
    body = harness.kube.objects[RAY_CLUSTER.kind, NAMESPACE, harness.active]
    orphan: Body = {**body, "metadata": {**body["metadata"], "ownerReferences": []}}
    harness.kube.put(RAY_CLUSTER, orphan)
    own = harness.active
    await harness.run(20)
    assert (harness.active, harness.pending, harness.is_ready()) == (own, "", True)


async def test_a_record_that_names_a_foreign_cluster_gives_it_nothing() -> None:
    harness = await a_shared_namespace()
    route = harness.kube.objects[HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-httproute"]
    forged = {STANDALONE: {"capacity": 100, "weight": 100, "movedAt": None}}
    text = msgspec.json.encode(
        {"version": 1, "clusters": forged, "changedAt": "2199-01-01T00:00:00Z"}
    ).decode()
    before = held(harness, STANDALONE)
    harness.kube.put(
        HTTP_ROUTE,
        {
            **route,
            "metadata": {**route["metadata"], "annotations": {traffic_record.ANNOTATION: text}},
        },
    )
    await harness.run(20)
    assert held(harness, STANDALONE) == before
    assert harness.weights == {harness.active: 100}


async def test_a_status_makes_no_backend_of_somebody_elses_service_ours() -> None:
    foreign: Json = {"name": "shop-serve-svc", "port": 8000, "weight": 30}
    harness = await a_pair(
        a_route(a_rule(backendRefs=[foreign, {"name": "demo-serve-svc", "port": 8000}]))
    )
    own = harness.active
    harness.is_service_down = True
    forge(harness, pending=SHOP)
    harness.restart_traffic()
    await harness.run(10)
    assert foreign in mine(harness)["spec"]["rules"][0]["backendRefs"]
    harness.is_service_down = False
    harness.restart_service()
    await harness.run(30)
    assert foreign in mine(harness)["spec"]["rules"][0]["backendRefs"]
    assert (harness.active, labels.ORIGIN_NAME in mine(harness)["metadata"]["labels"]) == (
        own,
        True,
    )


async def test_a_forged_name_of_the_replaced_cluster_stops_no_reconcile() -> None:
    harness = await a_running_pair(upgradeStrategy=FAST)
    blue = harness.active
    forged: Json = {"annotations": {labels.UPGRADE_FROM: "x" * 2000}}
    await harness.kube.patch(RAY_CLUSTER, NAMESPACE, blue, Patch(body={"metadata": forged}))
    harness.apply(config=GREEN, upgradeStrategy=FAST)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=200)
