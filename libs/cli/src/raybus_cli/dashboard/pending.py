"""The pending clusters of the list's upgrades: each carries the UpgradePolicy of its upgrade, which has the steps.

A cluster is read once for each weight, so a list of services at rest costs nothing, and neither does an upgrade that waits.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from common import errors
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.kube.client import KubeClient
from raybus_cli.dashboard import model
from raybus_cli.reading import reader

MOST: Final = 20
"""Reads of one poll; the rest is read at the next ones."""

_Moment = tuple[str, int | None]
"""The name of the pending cluster, and its weight."""


class PendingClusters:
    """Reads pending clusters."""

    def __init__(self) -> None:
        self._held: dict[str, tuple[_Moment, RayCluster | None]] = {}
        """By the key of the RayService; None for a cluster that could not be read."""

    async def of(self, kube: KubeClient, services: Sequence[RayService]) -> dict[str, RayCluster]:
        """Return the pending clusters of these RayServices, by the keys of those."""
        moving = {model.key_of(each): each for each in services if each.status.pending_service_status.ray_cluster_name}
        self._held = {
            key: held for key, held in self._held.items() if key in moving and held[0][0] == _moment(moving[key])[0]
        }
        due = [key for key, each in moving.items() if key not in self._held or self._held[key][0] != _moment(each)]
        async with asyncio.TaskGroup() as group:
            for key in due[:MOST]:
                group.create_task(self._read(kube, key, moving[key]))
        return {key: cluster for key, (_, cluster) in self._held.items() if cluster is not None}

    async def _read(self, kube: KubeClient, key: str, service: RayService) -> None:
        moment = _moment(service)
        try:
            found = await reader.cluster(kube, service.metadata.namespace, moment[0])
        except (errors.RaybusError, msgspec.MsgspecError):  # the list is shown without the steps of its policy
            found = None
        self._held[key] = moment, found


def _moment(service: RayService) -> _Moment:
    pending = service.status.pending_service_status
    return pending.ray_cluster_name, pending.traffic_routed_percent
