"""One real control plane with cluster-reconciler and service-reconciler at work on it, without NATS; Serve is a fake."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

import cluster_reconciler.wiring as cluster_wiring
from cluster_reconciler.config import Config as ClusterConfig
from common.api.opaque import Body, Json
from common.clock import SystemClock
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import (
    CONTROLLER_REVISION,
    ENDPOINT_SLICE,
    EVENT,
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from service_reconciler import wiring
from service_reconciler.settings import Config
from support.builders.ray_service import a_ray_service
from support.fakes.api_feed import ApiFeed
from support.fakes.events import FakeEvents
from support.fakes.serve import FakeServe
from support.following import follow

TIMEOUT = 40.0
KINDS = {
    each.kind: each
    for each in (RAY_SERVICE, RAY_CLUSTER, POD, SERVICE, ENDPOINT_SLICE, CONTROLLER_REVISION)
}
CLUSTER_KINDS = {each.kind: each for each in (RAY_CLUSTER, POD, SERVICE)}


class Live:
    """A namespace of a real API server, with both services at work on it."""

    def __init__(self, kube: KubeClient, serve: FakeServe, namespace: str) -> None:
        self.kube = kube
        self.serve = serve
        self.namespace = namespace

    async def apply(self, **fields: Any) -> Body:
        """Create a RayService; keywords are those of the builder."""
        body = a_ray_service(**fields)
        del body["metadata"]["namespace"]
        return msgspec.json.decode(await self.kube.create(RAY_SERVICE, self.namespace, body))

    async def patch(self, **spec: Any) -> None:
        """Change some fields of its spec."""
        await self.kube.patch(
            RAY_SERVICE, self.namespace, "demo", PatchRequest(body={"spec": spec})
        )

    async def service(self) -> Body:
        """Read the RayService."""
        return msgspec.json.decode(await self.kube.get(RAY_SERVICE, self.namespace, "demo"))

    async def names(self, resource: Resource) -> list[str]:
        """Read the names of all objects of a kind."""
        return [each["metadata"]["name"] for each in await self.found(resource)]

    async def found(self, resource: Resource) -> list[Body]:
        """Read all objects of a kind."""
        return msgspec.json.decode(await self.kube.list(resource, self.namespace))["items"]

    async def reasons(self) -> list[str]:
        """Read the reasons of this service's Events."""
        return [
            each["reason"]
            for each in await self.found(EVENT)
            if each["reportingController"] == wiring.EVENT_SOURCE
        ]

    async def selected(self, service: str = "demo-serve-svc") -> str:
        """Read which cluster a Service selects."""
        body = msgspec.json.decode(await self.kube.get(SERVICE, self.namespace, service))
        return body["spec"]["selector"]["ray.io/cluster"]

    async def until(self, holds: Callable[[Json], bool], what: str) -> Json:
        """Wait until something holds of the RayService's status; return it."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            status = (await self.service()).get("status", {})
            if holds(status):
                return status
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {TIMEOUT:g} s: {what}; status {status}")
            await asyncio.sleep(0.05)

    async def eventually(self, resource: Resource, names: list[str]) -> None:
        """Wait until exactly these objects of a kind are there."""
        deadline = time.monotonic() + TIMEOUT
        while (have := await self.names(resource)) != names:
            if time.monotonic() > deadline:
                raise AssertionError(
                    f"not within {TIMEOUT:g} s: {resource.plural} {have} become {names}"
                )
            await asyncio.sleep(0.05)


@asynccontextmanager
async def running(kube: KubeClient, config: Config) -> AsyncGenerator[FakeServe]:
    """Run both services for the length of a block."""
    clock = SystemClock()
    serve = FakeServe(clock)
    app = wiring.assemble(kube, serve, config, clock=clock, instance="test", bus=FakeEvents(clock))
    clusters = cluster_wiring.assemble(
        kube, ClusterConfig(), clock=clock, instance="test", registry=CollectorRegistry()
    )
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(follow(ApiFeed(kube, KINDS), app.controller)),
            group.create_task(app.run(workers=4)),
            group.create_task(follow(ApiFeed(kube, CLUSTER_KINDS), clusters.controller)),
            group.create_task(clusters.run(workers=4)),
        ]
        yield serve
        for task in tasks:
            task.cancel()


@pytest.fixture
async def live(
    request: pytest.FixtureRequest, kube: KubeClient, namespace: str
) -> AsyncGenerator[Live]:
    """Run both services in a namespace of its own; the parameter, if there is one, is the service-reconciler's configuration."""
    async with running(kube, getattr(request, "param", Config())) as serve:
        yield Live(kube, serve, namespace)
