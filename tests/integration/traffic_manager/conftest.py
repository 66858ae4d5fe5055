"""All three reconcilers on a real API server with the real Gateway API; Serve and the Gateway's controller are fakes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from uuid import uuid4

import msgspec
import pytest
from prometheus_client import CollectorRegistry

import cluster_reconciler.wiring as cluster_wiring
from cluster_reconciler.config import Config as ClusterConfig
from common import errors
from common.api.opaque import Body, Json
from common.feature_gates import BETA
from common.kube.client import KubeClient, Patch
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, Resource
from common.runtime.clock import SystemClock
from common.runtime.replica import ALL_PARTITIONS
from integration.service_reconciler import conftest as around
from integration.service_reconciler.conftest import Live
from localcluster.api import read_manifests
from localcluster.binaries import locate
from localcluster.control_plane import ControlPlane
from localcluster.settings import Settings
from service_reconciler import wiring as service_wiring
from service_reconciler.config import Config
from support.fakes.api_feed import ApiFeed
from support.fakes.serve import FakeServe
from support.servers.control_plane import control_plane
from traffic_manager import wiring

__all__ = ["control_plane", "stepping"]

KINDS = {**around.KINDS, **{each.kind: each for each in (GATEWAY, HTTP_ROUTE, GRPC_ROUTE)}}


WANTED = {GATEWAY.kind, HTTP_ROUTE.kind, GRPC_ROUTE.kind}


class Controller:
    """Accepts every Gateway and route of a namespace at its generation."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            with suppress(errors.RaybusError):  # the kinds were defined just now, and objects come and go
                await self._look()
            await asyncio.sleep(0.1)

    async def _look(self) -> None:
        for each in await self._found(GATEWAY):
            await self._report(GATEWAY, each, {"conditions": _said(each, "Accepted", "Programmed")})
        for resource in (HTTP_ROUTE, GRPC_ROUTE):
            for each in await self._found(resource):
                said = _said(each, "Accepted", "ResolvedRefs")
                parents = [
                    {"parentRef": parent, "controllerName": "example.org/gw", "conditions": said}
                    for parent in each["spec"]["parentRefs"]
                ]
                await self._report(resource, each, {"parents": parents})

    async def _found(self, resource: Resource) -> list[Body]:
        return msgspec.json.decode(await self._kube.list(resource, self._namespace))["items"]

    async def _report(self, resource: Resource, body: Body, status: Json) -> None:
        name = body["metadata"]["name"]
        await self._kube.patch(resource, self._namespace, name, Patch(body={"status": status}, subresource="status"))


def _said(body: Body, *kinds: str) -> list[Json]:
    return [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": "",
            "observedGeneration": body["metadata"]["generation"],
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind in kinds
    ]


@asynccontextmanager
async def running(kube: KubeClient, namespace: str) -> AsyncGenerator[FakeServe]:
    """Run all services for the length of a block."""
    clock = SystemClock()
    serve = FakeServe(clock)
    services = service_wiring.assemble(kube, serve, Config(), clock=clock, instance="test")
    traffic = wiring.assemble(kube, serve, BETA, clock=clock, instance="test")
    clusters = cluster_wiring.assemble(
        kube, ClusterConfig(), clock=clock, instance="test", registry=CollectorRegistry()
    )
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(ApiFeed(kube, KINDS).follow(ALL_PARTITIONS, services.controller)),
            group.create_task(services.run(workers=4)),
            group.create_task(ApiFeed(kube, KINDS).follow(ALL_PARTITIONS, traffic.controller)),
            group.create_task(traffic.run(workers=4)),
            group.create_task(ApiFeed(kube, around.CLUSTER_KINDS).follow(ALL_PARTITIONS, clusters.controller)),
            group.create_task(clusters.run(workers=4)),
            group.create_task(Controller(kube, namespace).run()),
        ]
        yield serve
        for task in tasks:
            task.cancel()


@pytest.fixture
async def stepping(control_plane: ControlPlane) -> AsyncGenerator[Live]:
    """Run all services in a namespace of its own."""
    found, _ = locate(["gateway-crds"], Settings.from_environment())
    if not found:
        pytest.skip("the Gateway API's definitions are not built yet: `raybus cluster up` once")
    async with control_plane.api() as api:
        held = read_manifests(found["gateway-crds"])
        await api.apply_definitions([each for each in held if each["spec"]["names"]["kind"] in WANTED])
    kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    namespace = f"t-{uuid4().hex[:8]}"
    await kube.create(Resource(kind="Namespace", plural="namespaces"), None, {"metadata": {"name": namespace}})
    try:
        async with running(kube, namespace) as serve:
            yield Live(kube, serve, namespace)
    finally:
        await kube.close()
