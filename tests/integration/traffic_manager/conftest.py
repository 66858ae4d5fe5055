"""All three reconcilers on a real API server with the real Gateway API; Serve and the Gateway's controller are fakes."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import pytest
from prometheus_client import CollectorRegistry

import cluster_reconciler.wiring as cluster_wiring
from cluster_reconciler.config import Config as ClusterConfig
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE
from integration.service_reconciler import conftest as around
from integration.service_reconciler.conftest import Live
from localcluster.api import read_manifests
from localcluster.binaries import GATEWAY_CRDS
from localcluster.control_plane import ControlPlane
from service_reconciler import wiring as service_wiring
from service_reconciler.settings import Config
from support.fakes.api_feed import ApiFeed
from support.fakes.events import FakeEvents
from support.fakes.serve import FakeServe
from support.following import follow
from support.servers.gateway_controller import GatewayController
from support.servers.programs import prepared
from traffic_manager import wiring

KINDS = {**around.KINDS, **{each.kind: each for each in (GATEWAY, HTTP_ROUTE, GRPC_ROUTE)}}


WANTED = {GATEWAY.kind, HTTP_ROUTE.kind, GRPC_ROUTE.kind}


@asynccontextmanager
async def running(kube: KubeClient, namespace: str) -> AsyncGenerator[FakeServe]:
    """Run all services for the length of a block."""
    clock = SystemClock()
    serve = FakeServe(clock)
    services = service_wiring.assemble(
        kube, serve, Config(), clock=clock, instance="test", bus=FakeEvents(clock)
    )
    traffic = wiring.assemble(kube, serve, clock=clock, instance="test")
    clusters = cluster_wiring.assemble(
        kube, ClusterConfig(), clock=clock, instance="test", registry=CollectorRegistry()
    )
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(follow(ApiFeed(kube, KINDS), services.controller)),
            group.create_task(services.run(workers=4)),
            group.create_task(follow(ApiFeed(kube, KINDS), traffic.controller)),
            group.create_task(traffic.run(workers=4)),
            group.create_task(follow(ApiFeed(kube, around.CLUSTER_KINDS), clusters.controller)),
            group.create_task(clusters.run(workers=4)),
            group.create_task(GatewayController(kube, namespace).run()),
        ]
        yield serve
        for task in tasks:
            task.cancel()


@pytest.fixture
async def stepping(
    control_plane: ControlPlane, kube: KubeClient, namespace: str
) -> AsyncGenerator[Live]:
    """Run all services in a namespace of its own."""
    async with control_plane.api() as api:
        held = read_manifests(prepared(GATEWAY_CRDS))
        await api.apply_definitions(
            [each for each in held if each["spec"]["names"]["kind"] in WANTED]
        )
    async with running(kube, namespace) as serve:
        yield Live(kube, serve, namespace)
