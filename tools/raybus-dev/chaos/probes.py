"""Probes: objects that are changed again as soon as their last change has taken effect.

A probe is a suspended RayCluster or a RayService. A change of a RayCluster has taken effect when
its status shows it; there is one RayCluster for each eighth of the partitions. A change of a
RayService has taken effect when its head receives the Serve config, from service-reconciler, or
from traffic-manager for services that are upgraded in steps.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from bench.services import a_config
from chaos.checker.evidence import EvidenceObject
from chaos.checker.gaps import Wait
from chaos.evidence_room import EvidenceStore
from chaos.stack import PROBES, Stack
from chaos.users import STEPS
from common import errors
from common.api.opaque import Body
from common.bus.subjects import PARTITIONS, ObjectRef, compute_partition
from common.kube.client import PatchRequest
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, Resource
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service, a_serve_config

GROUPS: Final = 8
"""Number of parts into which the partitions are divided. Each part has one RayCluster."""
SERVICES: Final = 2
PAUSE: Final = 0.4
RETRY: Final = 0.2


class Probes:
    """Changes all probes, and records how long each change waits for its effect."""

    def __init__(self, stack: Stack, room: EvidenceStore) -> None:
        self.waits: list[Wait] = []
        self._stack = stack
        self._room = room
        self._asked: dict[str, tuple[str, float]] = {}

    async def prepare(self) -> None:
        """Create all probes and wait until they are reconciled."""
        for name in cluster_names():
            await self._stack.kube.create(RAY_CLUSTER, PROBES, _a_cluster(name))
        for name, _ in self._list_services():
            await self._stack.kube.create(
                RAY_SERVICE, PROBES, _a_service(name, in_steps=name.startswith("steps"))
            )
        for name in cluster_names():
            await self._room.until("RayCluster", PROBES, name, _expect_workers(1))
        for name, _ in self._list_services():
            await self._room.until("RayService", PROBES, name, _is_running)

    async def run(self) -> None:
        """Change each probe again and again, until cancelled."""
        async with asyncio.TaskGroup() as group:
            for name in cluster_names():
                group.create_task(self._probe_cluster(name))
            for name, owner in self._list_services():
                group.create_task(self._probe_service(name, owner))

    def finish(self) -> None:
        """Record the changes that have had no effect until now, at the end of the run."""
        self.waits += [
            Wait(probe=name, service=owner, asked=asked, done=None)
            for name, (owner, asked) in self._asked.items()
        ]

    def _list_services(self) -> Iterator[tuple[str, str]]:
        """Yield each RayService and the raybus service that sends the Serve config to its head."""
        for number in range(SERVICES):
            yield f"plain-{number}", "service-reconciler"
            yield f"steps-{number}", "traffic-manager"

    async def _probe_cluster(self, name: str) -> None:
        wanted = 1
        while True:
            wanted = 3 - wanted

            async def seen(wanted: int = wanted) -> None:
                await self._room.until("RayCluster", PROBES, name, _expect_workers(wanted))

            await self._measure(
                name,
                "cluster-reconciler",
                (RAY_CLUSTER, {"workerGroupSpecs": _build_groups(wanted)}),
                seen,
            )

    async def _probe_service(self, name: str, owner: str) -> None:
        number = 0
        while True:
            number += 1
            text = f"{name}.{number}"

            async def configured(text: str = text) -> None:
                await self._wait_until_configured(name, text)

            change = (RAY_SERVICE, {"serveConfigV2": a_serve_config(message=text)})
            await self._measure(name, owner, change, configured)

    async def _wait_until_configured(self, name: str, text: str) -> None:
        """Wait until the head of the RayService `name` has received a Serve config with `text`."""
        while True:
            service = self._room.latest("RayService", PROBES, name)
            cluster = (
                service.status.active_service_status.ray_cluster_name if service is not None else ""
            )
            puts = self._stack.heads.serve.head(f"{cluster}-head-svc").puts
            if puts and text in str(puts[-1]):
                return
            await self._stack.heads.configured(cluster, len(puts) + 1)

    async def _measure(
        self,
        name: str,
        owner: str,
        change: tuple[Resource, Body],
        effect: Callable[[], Awaitable[None]],
    ) -> None:
        resource, spec = change
        try:
            await self._stack.kube.patch(resource, PROBES, name, PatchRequest(body={"spec": spec}))
        except errors.RaybusError:  # outages of the API server are not measured
            await asyncio.sleep(RETRY)
            return
        asked = self._room.now()  # the API server's own time does not count
        self._asked[name] = (owner, asked)
        await effect()
        del self._asked[name]
        self.waits.append(Wait(probe=name, service=owner, asked=asked, done=self._room.now()))
        await asyncio.sleep(PAUSE)


def cluster_names() -> list[str]:
    """Return the names of the RayClusters: one in each part of the partitions."""
    names: dict[int, str] = {}
    number = 0
    while len(names) < GROUPS:
        name = f"probe-{number}"
        part = compute_partition(ObjectRef("RayCluster", PROBES, name)) * GROUPS // PARTITIONS
        names.setdefault(part, name)
        number += 1
    return [names[part] for part in sorted(names)]


def _a_cluster(name: str) -> Body:
    spec = {**a_cluster_config(), "workerGroupSpecs": _build_groups(1), "suspend": True}
    return {
        "apiVersion": RAY_CLUSTER.api_version,
        "kind": RAY_CLUSTER.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def _build_groups(workers: int) -> list[Body]:
    return [a_group(replicas=workers, minReplicas=0)]


def _a_service(name: str, *, in_steps: bool) -> Body:
    config = a_config("rayproject/ray:2.52.0")
    fields: Body = {"upgradeStrategy": STEPS} if in_steps else {}
    if in_steps:
        config = a_cluster_config(a_group(minReplicas=1, replicas=1), enableInTreeAutoscaling=True)
    body = a_ray_service(name=name, config=config, **fields)
    return {**body, "metadata": {"name": name}}


def _expect_workers(workers: int) -> Callable[[EvidenceObject], bool]:
    return lambda cluster: cluster.status.desired_worker_replicas == workers


def _is_running(service: EvidenceObject) -> bool:
    return service.status.service_status == "Running"
