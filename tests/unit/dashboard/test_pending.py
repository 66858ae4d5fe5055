"""The pending clusters of the list: how often they are read."""

from typing import Any

import msgspec

from common import errors
from common.api.ray_service import RayService
from common.kube.resources import RAY_CLUSTER, Resource
from raybus_dashboard import model, polling
from raybus_dashboard.listing import Moment
from raybus_dashboard.polling import PendingClusters
from support.builders.snapshots import GREEN, a_cluster, a_config, at_rest, in_steps


class Reading:
    """An API server that counts the reads of RayClusters."""

    def __init__(self) -> None:
        self.reads: list[tuple[str, str]] = []
        self.problem: errors.RaybusError | None = None

    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        assert resource is RAY_CLUSTER
        self.reads.append((namespace, name))
        if self.problem is not None:
            raise self.problem
        return msgspec.json.encode(a_cluster(name, a_config()))


async def read(clusters: PendingClusters, kube: Any, *services: RayService) -> set[str]:
    moving: dict[str, Moment] = {}
    for each in services:
        pending = each.status.pending_service_status
        if pending.ray_cluster_name:
            moving[model.format_key(each)] = (
                pending.ray_cluster_name,
                pending.traffic_routed_percent,
            )
    return {each.metadata.name for each in (await clusters.read_pending(kube, moving)).values()}


async def test_the_cluster_of_an_upgrade_is_read_once_for_each_weight() -> None:
    kube, clusters = Reading(), PendingClusters()
    for weight in (30, 30, 30, 40, 40):
        assert await read(clusters, kube, in_steps(weight=weight).service) == {GREEN}
    assert kube.reads == [("default", GREEN)] * 2


async def test_services_at_rest_cost_nothing_and_an_upgrade_that_is_over_is_forgotten() -> None:
    kube, clusters = Reading(), PendingClusters()
    assert await read(clusters, kube, at_rest().service) == set()
    assert kube.reads == []
    await read(clusters, kube, in_steps(weight=30).service)
    assert await read(clusters, kube, at_rest().service) == set()


async def test_a_cluster_that_cannot_be_read_is_left_out_and_read_again_at_the_next_weight() -> (
    None
):
    kube, clusters = Reading(), PendingClusters()
    kube.problem = errors.Forbidden("no right")
    for _ in range(5):
        assert await read(clusters, kube, in_steps(weight=30).service) == set()
    assert len(kube.reads) == 1
    kube.problem = None
    assert await read(clusters, kube, in_steps(weight=40).service) == {GREEN}


async def test_many_upgrades_are_read_in_several_polls() -> None:
    kube, clusters = Reading(), PendingClusters()
    body = in_steps(weight=30).service
    services = [
        msgspec.structs.replace(
            body, metadata=msgspec.structs.replace(body.metadata, name=f"demo-{number}")
        )
        for number in range(2 * polling.MAX_PENDING_CLUSTERS)
    ]
    for polls in (1, 2, 2):
        await read(clusters, kube, *services)
        assert len(kube.reads) == polls * polling.MAX_PENDING_CLUSTERS
