"""Reads snapshots of objects, and makes dry-run requests.

Objects that the user may not read, or whose API is not installed, are left out and listed in
`unseen`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

import msgspec

from common import errors, labels, names
from common.api import ray_service
from common.api.core import Pod, Service
from common.api.gateway import Gateway, GrpcRoute, HttpRoute
from common.api.meta import Items
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import RayJob
from common.api.ray_service import RayService
from common.feature_gates import BETA
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import (
    CONTROLLER_REVISION,
    EVENT,
    GATEWAY,
    GRPC_ROUTE,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
    RAY_CRON_JOB,
    RAY_JOB,
    RAY_SERVICE,
    SERVICE,
    Resource,
    find_name_violation,
    format_selector,
)
from common.ray import dashboard, goal_revision, owner, revision, serve_status, serve_writer
from common.ray.dashboard import ProxiedDashboard
from common.ray.goal_revision import GoalRevision
from common.ray.revision import Revision
from common.ray.serve_status import ServeDetails
from common.ray.view import head_is_ready
from common.upgrade import weighted_route
from raybus_cli import session
from raybus_cli.reading import snapshot as snapshots
from raybus_cli.reading.snapshot import ClusterSnapshot, KubernetesEvent, Quota, Snapshot

T = TypeVar("T")
NODE: Final = Resource(kind="Node", plural="nodes")
QUOTA: Final = Resource(kind="ResourceQuota", plural="resourcequotas")
DASHBOARD_SECONDS: Final = 3.0
"""Timeout of a dashboard request, so that a hanging dashboard does not block the snapshot."""


class _NodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, str] = {}


class _Node(msgspec.Struct, frozen=True):
    status: _NodeStatus = _NodeStatus()


async def read_ray_service(kube: KubeClient, namespace: str, name: str) -> RayService:
    """Read a RayService; raise `NoSuchObject` if there is none."""
    return await _read_object(kube, RAY_SERVICE, RayService, namespace, name)


async def read_ray_cluster(kube: KubeClient, namespace: str, name: str) -> RayCluster:
    """Read a RayCluster; raise `NoSuchObject` if there is none."""
    return await _read_object(kube, RAY_CLUSTER, RayCluster, namespace, name)


async def read_ray_job(kube: KubeClient, namespace: str, name: str) -> RayJob:
    """Read a RayJob; raise `NoSuchObject` if there is none."""
    return await _read_object(kube, RAY_JOB, RayJob, namespace, name)


async def read_ray_cron_job(kube: KubeClient, namespace: str, name: str) -> RayCronJob:
    """Read a RayCronJob; raise `NoSuchObject` if there is none."""
    return await _read_object(kube, RAY_CRON_JOB, RayCronJob, namespace, name)


async def _read_object(
    kube: KubeClient, resource: Resource, view: type[T], namespace: str, name: str
) -> T:
    try:
        body = await kube.get(resource, namespace, name)
    except errors.NotFound as problem:
        if session.is_not_served(problem):
            raise
        raise session.NoSuchObject(resource, namespace, name) from problem
    return msgspec.json.decode(body, type=view)


async def read_cluster(kube: KubeClient, namespace: str, name: str) -> ClusterSnapshot:
    """Read a RayCluster, its pods and its RayService.

    Raise `NoSuchObject` if there is no such cluster.
    """
    ray_cluster = await read_ray_cluster(kube, namespace, name)
    reader, origin = SnapshotReader(kube, namespace), snapshots.find_origin(ray_cluster)
    parent = (
        await reader.read_one(RAY_SERVICE, RayService, origin)
        if origin and not find_name_violation(RAY_SERVICE, origin)
        else None
    )
    pods = await reader.list_of_clusters(POD, Pod, [ray_cluster])
    objects = {(RAY_CLUSTER.kind, name), *((POD.kind, pod.metadata.name) for pod in pods)}
    return ClusterSnapshot(
        cluster=ray_cluster,
        service=parent,
        pods=tuple(sorted(pods, key=lambda pod: pod.metadata.name)),
        events=await reader.read_events(objects),
        unseen=tuple(sorted(reader.unseen)),
    )


async def list_objects(
    kube: KubeClient, resource: Resource, view: type[T], scope: str | None, selector: str
) -> list[T]:
    """List the objects of a kind in a namespace, or in all namespaces if `scope` is None.

    Raises `InvalidSpec` for a selector that the API server rejects.
    """
    try:
        body = await kube.list(resource, scope, label_selector=selector)
    except errors.Rejected as problem:
        raise convert_list_error(selector, problem) from problem
    return msgspec.json.decode(body, type=Items[view]).items


def convert_list_error(selector: str, problem: errors.RaybusError) -> errors.RaybusError:
    """Return the error of a list request in the form that the user is to see.

    If the API server rejects the selector, this is `InvalidSpec`, which names the option.
    """
    if not selector or not isinstance(problem, errors.Rejected):
        return problem
    return errors.InvalidSpec(
        f"--selector {selector!r} is no label selector ({problem}); write for example app=demo, "
        "'tier in (a,b)' or '!canary'"
    )


async def read(kube: KubeClient, namespace: str, name: str) -> Snapshot:
    """Read a RayService and all objects that belong to it.

    Requests run in parallel; if several fail, the first error is raised. Raises `NoSuchObject` if
    there is no such RayService.
    """
    try:
        return await _read(kube, namespace, name)
    except BaseExceptionGroup as met:
        raise session.find_first(met) from met


async def _read(kube: KubeClient, namespace: str, name: str) -> Snapshot:
    ray_service = await read_ray_service(kube, namespace, name)
    reader = SnapshotReader(kube, namespace)
    clusters = await reader.list_labelled(RAY_CLUSTER, RayCluster, owner.marks(name))
    clusters = sorted(
        clusters, key=lambda obj: (str(obj.metadata.creation_timestamp or ""), obj.metadata.name)
    )
    async with asyncio.TaskGroup() as group:
        pods = group.create_task(reader.list_of_clusters(POD, Pod, clusters))
        revisions = group.create_task(
            reader.list_of_clusters(CONTROLLER_REVISION, Revision, clusters)
        )
        goals = group.create_task(
            reader.list_labelled(CONTROLLER_REVISION, GoalRevision, goal_revision.marks(name))
        )
        services = group.create_task(reader.list_labelled(SERVICE, Service, owner.marks(name)))
        route = group.create_task(
            reader.read_route(
                ray_service, HTTP_ROUTE, HttpRoute, weighted_route.name_of(ray_service)
            )
        )
        grpc = group.create_task(
            reader.read_route(ray_service, GRPC_ROUTE, GrpcRoute, names.grpc_route(name))
        )
        limits = group.create_task(reader.list_labelled(QUOTA, Quota, {}))
        serve = group.create_task(reader.read_serve(clusters))
    gateways = await reader.read_gateways(ray_service, route.result())
    objects = {
        (RAY_SERVICE.kind, name),
        *((RAY_CLUSTER.kind, cluster.metadata.name) for cluster in clusters),
    }
    objects |= {(POD.kind, pod.metadata.name) for pod in pods.result()}
    return Snapshot(
        service=ray_service,
        clusters=tuple(clusters),
        pods=tuple(sorted(pods.result(), key=lambda pod: pod.metadata.name)),
        services=tuple(services.result()),
        events=await reader.read_events(objects),
        revisions=tuple(revisions.result()),
        goals=tuple(goal_revision.owned_revisions(ray_service.metadata, goals.result())),
        route=route.result(),
        grpc_route=grpc.result(),
        gateways=gateways,
        quotas=tuple(limits.result()),
        serve=serve.result(),
        unseen=tuple(sorted(reader.unseen)),
    )


async def read_quotas(kube: KubeClient, namespace: str) -> tuple[Quota, ...]:
    """Read the ResourceQuotas of a namespace; empty if the user may not read them."""
    return tuple(await SnapshotReader(kube, namespace).list_labelled(QUOTA, Quota, {}))


async def read_offered_resources(kube: KubeClient) -> frozenset[str] | None:
    """Return the names of the resources that the nodes offer.

    The result is None if the user may not read nodes.
    """
    try:
        nodes = msgspec.json.decode(await kube.list(NODE, None), type=Items[_Node]).items
    except errors.Forbidden:
        return None
    return frozenset(
        name for node in nodes for name, amount in node.status.allocatable.items() if amount != "0"
    )


class SnapshotReader:
    """Reads optional objects, and collects in `unseen` what could not be read."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self.unseen: set[str] = set()

    async def list_labelled(
        self, resource: Resource, view: type[T], marks: dict[str, str]
    ) -> list[T]:
        """List the objects of a kind that have every label and value in `marks`."""
        selector = format_selector(marks)

        async def ask() -> list[T]:
            body = await self._kube.list(resource, self._namespace, label_selector=selector)
            return msgspec.json.decode(body, type=Items[view]).items

        return await self._read_unless_hidden(resource, ask) or []

    async def list_of_clusters(
        self, resource: Resource, view: type[T], clusters: list[RayCluster]
    ) -> list[T]:
        """List the objects of a kind that belong to any of `clusters`."""
        objects: list[T] = []
        for cluster in clusters:
            name = cluster.metadata.name
            marks = (
                revision.marks(name) if resource is CONTROLLER_REVISION else {labels.CLUSTER: name}
            )
            objects += await self.list_labelled(resource, view, marks)
        return objects

    async def read_one(
        self, resource: Resource, view: type[T], name: str, *, namespace: str | None = None
    ) -> T | None:
        """Read one object; None if it does not exist or cannot be read."""

        async def ask() -> T | None:
            try:
                body = await self._kube.get(resource, namespace or self._namespace, name)
            except errors.NotFound as problem:
                if session.is_not_served(problem):
                    raise
                return None
            return msgspec.json.decode(body, type=view)

        return await self._read_unless_hidden(resource, ask)

    async def read_route(
        self, service: RayService, resource: Resource, view: type[T], name: str
    ) -> T | None:
        """Read a route of a RayService; None if it is unreadable or traffic does not move in steps.

        The Gateway API may be missing, because only upgrades in steps need it.
        """
        return (
            await self.read_one(resource, view, name)
            if serve_writer.is_incremental(service, BETA)
            else None
        )

    async def read_gateways(
        self, service: RayService, route: HttpRoute | None
    ) -> dict[weighted_route.Place, Gateway | None]:
        """Read the Gateways of a RayService that upgrades in steps.

        The value of a Gateway that cannot be read is None.
        """
        gateways: dict[weighted_route.Place, Gateway | None] = {}
        is_used = serve_writer.is_incremental(service, BETA)
        for gateway_key in weighted_route.parents_of(service, route) if is_used else ():
            gateways[gateway_key] = await self.read_one(
                GATEWAY, Gateway, gateway_key[1], namespace=gateway_key[0]
            )
        return gateways

    async def read_events(self, objects: set[tuple[str, str]]) -> tuple[KubernetesEvent, ...]:
        """Read the Events about some objects (kind, name), oldest first."""

        async def ask() -> list[KubernetesEvent]:
            return msgspec.json.decode(
                await self._kube.list(EVENT, self._namespace), type=Items[KubernetesEvent]
            ).items

        events = await self._read_unless_hidden(EVENT, ask) or []
        about = [
            event for event in events if (event.regarding.kind, event.regarding.name) in objects
        ]
        return tuple(sorted(about, key=lambda event: str(event.at or "")))

    async def read_serve(self, clusters: list[RayCluster]) -> dict[str, ServeDetails]:
        """Read the Serve state of each cluster whose head is ready, by cluster name.

        The dashboards are reached through the API server's proxy.
        """
        through = ProxiedDashboard(self._kube, seconds=DASHBOARD_SECONDS)
        details: dict[str, ServeDetails] = {}

        async def ask(cluster: RayCluster) -> None:
            try:
                head = await session.find_dashboard(self._kube, cluster)
                answer = await through.request(
                    head, dashboard.STATUS, most=dashboard.MAX_STATUS_SIZE
                )
                details[cluster.metadata.name] = serve_status.decode(answer)
            except errors.RaybusError as problem:
                self.unseen.add(f"Serve of {cluster.metadata.name}: {problem}")

        async with asyncio.TaskGroup() as group:
            for served in clusters:
                if head_is_ready(served):
                    group.create_task(ask(served))
        return details

    async def _read_unless_hidden(
        self, resource: Resource, ask: Callable[[], Awaitable[T]]
    ) -> T | None:
        try:
            return await ask()
        except errors.Forbidden as problem:
            self.unseen.add(f"{resource.plural}: {problem}")
        except errors.NotFound:
            self.unseen.add(f"{resource.plural}: the cluster does not serve {resource.api_version}")
        return None


_DRY_RUN: Final = {"dryRun": "All"}


async def create(kube: KubeClient, namespace: str, body: Body) -> RayService:
    """Return a RayService as the API server would create it (dry run)."""
    return ray_service.decode(await try_create(kube, RAY_SERVICE, namespace, body))


async def try_create(kube: KubeClient, resource: Resource, namespace: str, body: Body) -> bytes:
    """Return the body of an object as the API server would create it (dry run)."""
    return await kube.request("POST", resource.path(namespace), query=_DRY_RUN, body=body)


async def replace(kube: KubeClient, namespace: str, body: Body) -> RayService:
    """Return a RayService as the API server would store it after a replacement (dry run)."""
    return ray_service.decode(await try_replace(kube, RAY_SERVICE, namespace, body))


async def try_replace(kube: KubeClient, resource: Resource, namespace: str, body: Body) -> bytes:
    """Return the body of an object as the API server would store it after a replace (dry run)."""
    path = resource.path(namespace, str(body["metadata"]["name"]))
    return await kube.request("PUT", path, query=_DRY_RUN, body=body)


async def patch(kube: KubeClient, namespace: str, name: str, change: PatchRequest) -> RayService:
    """Return a RayService as the API server would store it after a patch (dry run)."""
    return ray_service.decode(await try_patch(kube, RAY_SERVICE, namespace, name, change))


async def try_patch(
    kube: KubeClient, resource: Resource, namespace: str, name: str, change: PatchRequest
) -> bytes:
    """Return the body of an object as the API server would store it after a patch (dry run)."""
    path, headers = resource.path(namespace, name), {"Content-Type": change.content_type}
    return await kube.request("PATCH", path, query=_DRY_RUN, body=change.body, headers=headers)
