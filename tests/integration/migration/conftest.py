"""A real control plane with the Gateway API and the objects that KubeRay left.

All four reconcilers run; Ray is a fake.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from uuid import uuid4

import msgspec
import pytest
import pytest_asyncio
from prometheus_client import CollectorRegistry

import cluster_reconciler.wiring as cluster_wiring
from cluster_reconciler.config import Config as ClusterConfig
from common import errors, labels, names
from common.api.opaque import Body, Json
from common.clock import Clock, SystemClock
from common.kube.client import KubeClient
from common.kube.resources import (
    ENDPOINT_SLICE,
    GATEWAY,
    GRPC_ROUTE,
    HTTP_ROUTE,
    JOB,
    NAMESPACE,
    POD,
    RAY_CLUSTER,
    RAY_CRON_JOB,
    RAY_JOB,
    RAY_SERVICE,
    SERVICE,
)
from common.ray import serve_config
from common.runtime.key import Key
from common.runtime.replica import ReconcilerParts
from integration.cluster_reconciler.conftest import Reconciles
from integration.service_reconciler.conftest import CLUSTER_KINDS
from integration.traffic_manager.conftest import KINDS, WANTED
from job_reconciler import wiring as job_wiring
from job_reconciler.settings import Config as JobConfig
from localcluster.api import read_manifests
from localcluster.binaries import GATEWAY_CRDS
from localcluster.control_plane import ControlPlane
from service_reconciler import wiring as service_wiring
from service_reconciler.settings import Config
from support.counting_client import CountingClient
from support.fakes.api_feed import ApiFeed
from support.fakes.events import FakeEvents
from support.fakes.ray_jobs import JOBS
from support.fakes.serve import FakeServe
from support.following import follow
from support.kuberay import restoring, trees
from support.servers.gateway_controller import GatewayController
from support.servers.programs import prepared
from support.waiting import eventually, eventually_true
from traffic_manager import wiring as traffic_wiring

JOB_KINDS = {
    each.kind: each
    for each in (RAY_JOB, RAY_CRON_JOB, RAY_CLUSTER, JOB, POD, SERVICE, ENDPOINT_SLICE)
}


class KubeRayNamespace:
    """A namespace with what KubeRay left in it."""

    def __init__(
        self, control_plane: ControlPlane, kube: KubeClient, namespace: str, clock: Clock
    ) -> None:
        self.control_plane = control_plane
        self.kube = kube
        self.namespace = namespace
        self.clock = clock
        self.serve = FakeServe(clock)

    async def inherit(self, name: str) -> list[Body]:
        """Create a recorded tree of objects, with the configs of its heads; return the objects."""
        await restoring.leave_tree(self.kube, self.namespace, name)
        found = await self.read()
        for each in found:
            if each["kind"] == RAY_SERVICE.kind:
                self._configure(each)
            elif each["kind"] == RAY_JOB.kind:
                self._run_driver(each)
        head_pods = [each for each in found if is_head(each)]
        if head_pods and all(pod["status"].get("podIP") for pod in head_pods):
            await eventually_true(
                self._has_endpoints, within=30, every=0.1, what="endpoints behind all Services"
            )
        return found

    def _run_driver(self, job: Body) -> None:
        """Have the head of a job's cluster know the job in the state that KubeRay knew."""
        status: Json = job["status"]
        if not status.get("jobId") or not status.get("jobStatus"):
            return
        jobs = self.serve.head(names.head_service(status["rayClusterName"])).jobs
        entrypoint, job_id = job["spec"].get("entrypoint", "-"), status["jobId"]
        jobs.answer("POST", JOBS, {"entrypoint": entrypoint, "submission_id": job_id})
        jobs.run(job_id)
        if status["jobStatus"] != "RUNNING":
            jobs.end(job_id, status["jobStatus"], status.get("message", ""))

    def _configure(self, service: Body) -> None:
        config: Json = serve_config.parse(service["spec"]["serveConfigV2"]).to_json()
        status = service["status"]
        for each in (status.get("activeServiceStatus"), status.get("pendingServiceStatus")):
            if each and each.get("rayClusterName"):
                head = self.serve.head(f"{each['rayClusterName']}-head-svc")
                head.deploy_seconds = 0.0
                capacity = (
                    {"target_capacity": each["targetCapacity"]} if "targetCapacity" in each else {}
                )
                head.deploy({**config, **capacity})

    async def _has_endpoints(self) -> bool:
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.namespace}/endpointslices"
        slices: list[Body] = msgspec.json.decode(await self.kube.request("GET", path))["items"]
        return bool(slices) and all(each.get("endpoints") for each in slices)

    async def read(self) -> list[Body]:
        """Read all objects."""
        return await trees.read(self.kube, self.namespace)


def is_head(body: Body) -> bool:
    """Return whether an object is the head pod of a RayCluster."""
    mine = body["metadata"].get("labels", {})
    return body["kind"] == POD.kind and mine.get(labels.NODE_TYPE) == labels.HEAD


class Reconcilers:
    """The services at work, and what they asked for."""

    def __init__(
        self, own: CountingClient, apps: Sequence[ReconcilerParts], reconciles: Sequence[Reconciles]
    ) -> None:
        self.own = own
        self._apps = apps
        self._reconciles = reconciles

    async def have_reconciled(
        self, services: Sequence[Key], clusters: Sequence[Key], jobs: Sequence[Key] = ()
    ) -> None:
        """Wait until all keys were reconciled, and again after the keys that these reconciles
        enqueued.
        """
        keys_of_apps = (services, services, clusters, jobs)
        watched = list(zip(self._apps, self._reconciles, keys_of_apps, strict=True))
        for times in (1, 2):
            for app, reconciles, keys in watched:
                for key in keys if times > 1 else ():
                    app.controller.queue.add(key)
                await eventually(
                    lambda reconciles=reconciles, keys=keys, times=times: all(
                        reconciles.ended[key] >= times for key in keys
                    ),
                    within=30,
                    what="a reconcile of everything",
                )


@asynccontextmanager
async def working(legacy: KubeRayNamespace) -> AsyncGenerator[Reconcilers]:
    """Run the reconcilers for the length of a block."""
    own = await CountingClient.connect(
        kubeconfig=legacy.control_plane.kubeconfig, user_agent="raybus-test"
    )
    clock, namespace = legacy.clock, legacy.namespace
    events = FakeEvents(clock)
    services = service_wiring.assemble(
        own, legacy.serve, Config(), clock=clock, instance="test", bus=events
    )
    traffic = traffic_wiring.assemble(own, legacy.serve, clock=clock, instance="test")
    registry = CollectorRegistry()
    clusters = cluster_wiring.assemble(
        own, ClusterConfig(), clock=clock, instance="test", registry=registry
    )
    jobs = job_wiring.assemble(
        own, legacy.serve, JobConfig(), clock=clock, instance="test", bus=events
    )
    parts = (services, traffic, clusters, jobs)
    reconciles = [Reconciles(each.reconciler) for each in parts]
    apps = [
        msgspec.structs.replace(app, reconciler=counted)
        for app, counted in zip(parts, reconciles, strict=True)
    ]
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(GatewayController(legacy.kube, namespace).run())]
            for app, kinds in zip(apps, (KINDS, KINDS, CLUSTER_KINDS, JOB_KINDS), strict=True):
                feed = ApiFeed(legacy.kube, kinds, namespace=namespace)
                tasks += [
                    group.create_task(follow(feed, app.controller)),
                    group.create_task(app.run(workers=4)),
                ]
            yield Reconcilers(own, apps, reconciles)
            for task in tasks:
                task.cancel()
    finally:
        await own.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def gateway_api(control_plane: ControlPlane) -> None:
    """Define the Gateway API, once per control plane."""
    async with control_plane.api() as api:
        held = read_manifests(prepared(GATEWAY_CRDS))
        await api.apply_definitions(
            [each for each in held if each["spec"]["names"]["kind"] in WANTED]
        )
    kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    try:
        await eventually_true(lambda: _is_served(kube), within=60, what="the Gateway API")
    finally:
        await kube.close()


async def _is_served(kube: KubeClient) -> bool:
    try:
        for resource in (GATEWAY, HTTP_ROUTE, GRPC_ROUTE):
            await kube.list(resource, None)
    except (errors.Throttled, errors.NotFound):  # its definition was applied just now
        return False
    return True


@pytest.fixture
async def legacy(
    control_plane: ControlPlane, gateway_api: None
) -> AsyncGenerator[KubeRayNamespace]:
    """Make a namespace of its own."""
    del gateway_api  # it is there
    kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    namespace = f"t-{uuid4().hex[:8]}"
    await kube.create(NAMESPACE, None, {"metadata": {"name": namespace}})
    try:
        yield KubeRayNamespace(control_plane, kube, namespace, SystemClock())
    finally:
        await kube.close()
