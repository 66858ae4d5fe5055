"""Reads snapshots and makes dry-run requests at the API server.

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
from common.api.ray_service import RayService
from common.feature_gates import BETA
from common.kube.client import KubeClient, Patch
from common.kube.resources import (
    CONTROLLER_REVISION,
    EVENT,
    GATEWAY,
    GRPC_ROUTE,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
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
from raybus_cli.reading.snapshot import ClusterSnapshot, Event, Quota, Snapshot

T = TypeVar("T")
NODE: Final = Resource(kind="Node", plural="nodes")
QUOTA: Final = Resource(kind="ResourceQuota", plural="resourcequotas")
DASHBOARD_SECONDS: Final = 3.0
"""Timeout of a dashboard request, so that a hanging dashboard does not block the snapshot."""


class _NodeStatus(msgspec.Struct, frozen=True):
    allocatable: dict[str, str] = {}


class _Node(msgspec.Struct, frozen=True):
    status: _NodeStatus = _NodeStatus()


async def service(kube: KubeClient, namespace: str, name: str) -> RayService:
    """Read a RayService; raise `NoSuchObject` if there is none."""
    return await _object(kube, RAY_SERVICE, RayService, namespace, name)


async def cluster(kube: KubeClient, namespace: str, name: str) -> RayCluster:
    """Read a RayCluster; raise `NoSuchObject` if there is none."""
    return await _object(kube, RAY_CLUSTER, RayCluster, namespace, name)


async def _object(
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
    found = await cluster(kube, namespace, name)
    reader, origin = _Reader(kube, namespace), snapshots.origin(found)
    parent = (
        await reader.one(RAY_SERVICE, RayService, origin)
        if origin and not find_name_violation(RAY_SERVICE, origin)
        else None
    )
    pods = await reader.of_clusters(POD, Pod, [found])
    objects = {(RAY_CLUSTER.kind, name), *((POD.kind, each.metadata.name) for each in pods)}
    return ClusterSnapshot(
        cluster=found,
        service=parent,
        pods=tuple(sorted(pods, key=lambda each: each.metadata.name)),
        events=await reader.events(objects),
        unseen=tuple(sorted(reader.unseen)),
    )


async def listed(
    kube: KubeClient, resource: Resource, view: type[T], scope: str | None, selector: str
) -> list[T]:
    """List the objects of a kind in a namespace, or in all namespaces if `scope` is None.

    Raises `InvalidSpec` for a selector that the API server rejects.
    """
    try:
        body = await kube.list(resource, scope, label_selector=selector)
    except errors.Rejected as problem:
        raise of_selector(selector, problem) from problem
    return msgspec.json.decode(body, type=Items[view]).items


def of_selector(selector: str, problem: errors.RaybusError) -> errors.RaybusError:
    """Return the error of a list request, converted for the user.

    A rejected selector becomes `InvalidSpec`, which names the option.
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
        raise session.first(met) from met


async def _read(kube: KubeClient, namespace: str, name: str) -> Snapshot:
    found = await service(kube, namespace, name)
    reader = _Reader(kube, namespace)
    clusters = await reader.all(RAY_CLUSTER, RayCluster, owner.marks(name))
    clusters = sorted(
        clusters, key=lambda each: (str(each.metadata.creation_timestamp or ""), each.metadata.name)
    )
    async with asyncio.TaskGroup() as group:
        pods = group.create_task(reader.of_clusters(POD, Pod, clusters))
        revisions = group.create_task(reader.of_clusters(CONTROLLER_REVISION, Revision, clusters))
        goals = group.create_task(
            reader.all(CONTROLLER_REVISION, GoalRevision, goal_revision.marks(name))
        )
        services = group.create_task(reader.all(SERVICE, Service, owner.marks(name)))
        route = group.create_task(
            reader.route(found, HTTP_ROUTE, HttpRoute, weighted_route.name_of(found))
        )
        grpc = group.create_task(reader.route(found, GRPC_ROUTE, GrpcRoute, names.grpc_route(name)))
        limits = group.create_task(reader.all(QUOTA, Quota, {}))
        serve = group.create_task(reader.serve(clusters))
    gateways = await reader.gateways(found, route.result())
    objects = {
        (RAY_SERVICE.kind, name),
        *((RAY_CLUSTER.kind, each.metadata.name) for each in clusters),
    }
    objects |= {(POD.kind, each.metadata.name) for each in pods.result()}
    return Snapshot(
        service=found,
        clusters=tuple(clusters),
        pods=tuple(sorted(pods.result(), key=lambda each: each.metadata.name)),
        services=tuple(services.result()),
        events=await reader.events(objects),
        revisions=tuple(revisions.result()),
        goals=tuple(goal_revision.owned_revisions(found.metadata, goals.result())),
        route=route.result(),
        grpc_route=grpc.result(),
        gateways=gateways,
        quotas=tuple(limits.result()),
        serve=serve.result(),
        unseen=tuple(sorted(reader.unseen)),
    )


async def quotas(kube: KubeClient, namespace: str) -> tuple[Quota, ...]:
    """Read the ResourceQuotas of a namespace; empty if the user may not read them."""
    return tuple(await _Reader(kube, namespace).all(QUOTA, Quota, {}))


async def offered(kube: KubeClient) -> frozenset[str] | None:
    """Return the names of the resources that the nodes offer.

    The result is None if the user may not read nodes.
    """
    try:
        nodes = msgspec.json.decode(await kube.list(NODE, None), type=Items[_Node]).items
    except errors.Forbidden:
        return None
    return frozenset(
        name for each in nodes for name, amount in each.status.allocatable.items() if amount != "0"
    )


class _Reader:
    """Reads optional objects, and collects in `unseen` what could not be read."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace
        self.unseen: set[str] = set()

    async def all(self, resource: Resource, view: type[T], marks: dict[str, str]) -> list[T]:
        """List the objects of a kind that have all labels in `marks`."""
        selector = format_selector(marks)

        async def ask() -> list[T]:
            body = await self._kube.list(resource, self._namespace, label_selector=selector)
            return msgspec.json.decode(body, type=Items[view]).items

        return await self._unless_hidden(resource, ask) or []

    async def of_clusters(
        self, resource: Resource, view: type[T], clusters: list[RayCluster]
    ) -> list[T]:
        """List the objects of a kind that belong to any of some clusters."""
        found: list[T] = []
        for each in clusters:
            name = each.metadata.name
            marks = (
                revision.marks(name) if resource is CONTROLLER_REVISION else {labels.CLUSTER: name}
            )
            found += await self.all(resource, view, marks)
        return found

    async def one(
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

        return await self._unless_hidden(resource, ask)

    async def route(
        self, service: RayService, resource: Resource, view: type[T], name: str
    ) -> T | None:
        """Read a route of a RayService; None if its traffic does not move in steps.

        Without steps the Gateway API need not be installed.
        """
        return (
            await self.one(resource, view, name)
            if serve_writer.is_incremental(service, BETA)
            else None
        )

    async def gateways(
        self, service: RayService, route: HttpRoute | None
    ) -> dict[weighted_route.Place, Gateway | None]:
        """Read the Gateways of a RayService that upgrades in steps.

        The value of a Gateway that cannot be read is None.
        """
        found: dict[weighted_route.Place, Gateway | None] = {}
        is_used = serve_writer.is_incremental(service, BETA)
        for place in weighted_route.parents_of(service, route) if is_used else ():
            found[place] = await self.one(GATEWAY, Gateway, place[1], namespace=place[0])
        return found

    async def events(self, objects: set[tuple[str, str]]) -> tuple[Event, ...]:
        """Read the Events about some objects (kind, name), oldest first."""

        async def ask() -> list[Event]:
            return msgspec.json.decode(
                await self._kube.list(EVENT, self._namespace), type=Items[Event]
            ).items

        found = await self._unless_hidden(EVENT, ask) or []
        about = [each for each in found if (each.regarding.kind, each.regarding.name) in objects]
        return tuple(sorted(about, key=lambda each: str(each.at or "")))

    async def serve(self, clusters: list[RayCluster]) -> dict[str, ServeDetails]:
        """Read the Serve state of each cluster whose head is ready, by cluster name.

        The dashboards are reached through the API server's proxy.
        """
        through = ProxiedDashboard(self._kube, seconds=DASHBOARD_SECONDS)
        found: dict[str, ServeDetails] = {}

        async def ask(cluster: RayCluster) -> None:
            try:
                head = await session.reach(self._kube, cluster)
                answer = await through.request(
                    head, dashboard.STATUS, most=dashboard.MAX_STATUS_SIZE
                )
                found[cluster.metadata.name] = serve_status.decode(answer)
            except errors.RaybusError as problem:
                self.unseen.add(f"Serve of {cluster.metadata.name}: {problem}")

        async with asyncio.TaskGroup() as group:
            for each in clusters:
                if head_is_ready(each):
                    group.create_task(ask(each))
        return found

    async def _unless_hidden(self, resource: Resource, ask: Callable[[], Awaitable[T]]) -> T | None:
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
    return ray_service.decode(
        await kube.request("POST", RAY_SERVICE.path(namespace), query=_DRY_RUN, body=body)
    )


async def replace(kube: KubeClient, namespace: str, body: Body) -> RayService:
    """Return a RayService as the API server would store it after a replacement (dry run)."""
    path = RAY_SERVICE.path(namespace, str(body["metadata"]["name"]))
    return ray_service.decode(await kube.request("PUT", path, query=_DRY_RUN, body=body))


async def patch(kube: KubeClient, namespace: str, name: str, change: Patch) -> RayService:
    """Return a RayService as the API server would store it after a patch (dry run)."""
    return ray_service.decode(await send(kube, RAY_SERVICE, namespace, name, change))


async def send(
    kube: KubeClient, resource: Resource, namespace: str, name: str, change: Patch
) -> bytes:
    """Return the body of an object as the API server would store it after a patch (dry run)."""
    path, headers = resource.path(namespace, name), {"Content-Type": change.content_type}
    return await kube.request("PATCH", path, query=_DRY_RUN, body=change.body, headers=headers)
