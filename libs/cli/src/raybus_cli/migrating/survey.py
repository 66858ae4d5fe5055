"""Reads all facts about a cluster that is to be taken over, and writes nothing.

A fact that the user may not read is None, and is listed in `Survey.unread`.
"""

from collections.abc import Awaitable
from typing import Any, Final, TypeVar, cast

import msgspec

from common import errors, labels
from common.api.core import EndpointSlice, Pod, Service
from common.api.core import Job as BatchJob
from common.api.gateway import Gateway, GrpcRoute, HttpRoute
from common.api.meta import ApiStruct, Items, ObjectMeta
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.kube.client import KubeClient
from common.kube.resources import (
    CONFIG_MAP,
    CONTROLLER_REVISION,
    ENDPOINT_SLICE,
    GATEWAY,
    GRPC_ROUTE,
    HTTP_ROUTE,
    JOB,
    LEASE,
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from common.ray import revision
from common.ray.revision import Revision
from common.runtime.cache import Cache, Object
from raybus_cli import session
from raybus_cli.doctor import operator as operators
from raybus_cli.doctor.checks import LEADER
from raybus_cli.doctor.facts import Lease, Workload
from raybus_cli.doctor.operator import Operator
from raybus_cli.doctor.survey import DEPLOYMENT

RAY_JOB: Final = Resource(group="ray.io", kind="RayJob", plural="rayjobs")
RAY_CRON_JOB: Final = Resource(group="ray.io", kind="RayCronJob", plural="raycronjobs")
_WEBHOOKS: Final = "admissionregistration.k8s.io"
VALIDATING: Final = Resource(
    group=_WEBHOOKS, kind="ValidatingWebhookConfiguration", plural="validatingwebhookconfigurations"
)
MUTATING: Final = Resource(
    group=_WEBHOOKS, kind="MutatingWebhookConfiguration", plural="mutatingwebhookconfigurations"
)


class JobStatus(ApiStruct, frozen=True, kw_only=True):
    """The status of a RayJob."""

    job_deployment_status: str = ""


class JobSpec(ApiStruct, frozen=True, kw_only=True):
    """The spec of a RayJob or RayCronJob."""

    suspend: bool = False
    managed_by: str | None = None


class Job(ApiStruct, frozen=True, kw_only=True):
    """The fields of a RayJob or a RayCronJob that matter for the check."""

    metadata: ObjectMeta
    spec: JobSpec = JobSpec()
    status: JobStatus = JobStatus()


class Hook(ApiStruct, frozen=True, kw_only=True):
    """A webhook of a configuration."""

    name: str = ""
    failure_policy: str = "Fail"
    rules: tuple[Json, ...] = ()
    client_config: Json = msgspec.field(default_factory=dict[str, Any])


class WebhookConfiguration(ApiStruct, frozen=True, kw_only=True):
    """A ValidatingWebhookConfiguration or a MutatingWebhookConfiguration."""

    metadata: ObjectMeta
    webhooks: tuple[Hook, ...] = ()


class Installation(msgspec.Struct, frozen=True, kw_only=True):
    """The installed operators: KubeRay and raybus."""

    kuberay: list[Operator] | None
    kuberay_file: str | None = None
    """Text of the configuration file of the first KubeRay operator, if it has one."""
    raybus: dict[str, Operator] = {}
    """The services of raybus, by name."""
    raybus_file: str | None = None
    leases: list[Lease] | None = None
    """The Leases of both operators' leader elections."""


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Other objects that affect the take-over."""

    jobs: list[Job] | None = None
    cron_jobs: list[Job] | None = None
    webhooks: list[tuple[str, WebhookConfiguration]] | None = None
    """Pairs of kind and configuration."""
    has_gateway_api: bool = False


T = TypeVar("T")
Scope = tuple[str | None, ...]
"""Namespaces to check; `(None,)` means all."""

_NEEDED: Final[tuple[tuple[Resource, type[Object], str], ...]] = (
    (RAY_CLUSTER, RayCluster, ""),
    (RAY_SERVICE, RayService, ""),
    (POD, Pod, labels.CLUSTER),
    (SERVICE, Service, ""),
    (ENDPOINT_SLICE, EndpointSlice, ""),
    (JOB, BatchJob, labels.CLUSTER),
    (CONTROLLER_REVISION, Revision, f"{revision.RECORD}={revision.SERVE_CONFIG}"),
    (GATEWAY, Gateway, ""),
    (HTTP_ROUTE, HttpRoute, ""),
    (GRPC_ROUTE, GrpcRoute, ""),
)
"""Kinds that the services read, each with the label selector of its list."""
_HOME: Final = 0
"""The partition of all objects; without a bus there is only this one."""


class Survey:
    """Reads facts, and records in `unread` those that the user may not read."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self.unread: list[str] = []

    async def installation(self, raybus_namespace: str) -> Installation:
        """Read how both operators are installed."""
        deployments = await self._all(DEPLOYMENT, Workload)
        kuberay = (
            None
            if deployments is None
            else [await self._operator(each) for each in operators.kuberay(deployments)]
        )
        if deployments is None:
            deployments = await self._all(DEPLOYMENT, Workload, (raybus_namespace,)) or []
        ours = {
            each.metadata.name: await self._operator(each)
            for each in operators.raybus(deployments, raybus_namespace)
        }
        decider = ours.get("cluster-reconciler")
        places = {raybus_namespace, *(each.namespace for each in kuberay or [])}
        held = [await self._all(LEASE, Lease, (place,)) for place in sorted(places)]
        return Installation(
            kuberay=kuberay,
            kuberay_file=await self._file(kuberay[0]) if kuberay else None,
            raybus=ours,
            raybus_file=await self._file(decider) if decider is not None else None,
            leases=[each for some in held for each in some or [] if each.metadata.name == LEADER],
        )

    async def state(self, scope: Scope) -> Cache:
        """Read the objects that the services observe.

        Raise `NotFound` if the API server does not serve RayClusters.
        """
        cache = Cache()
        for resource, view, selector in _NEEDED:
            for each in await self._all(resource, view, scope, selector) or []:
                cache.put(each, partition=_HOME)
        return cache

    async def surroundings(self, scope: Scope) -> Surroundings:
        """Read the other objects that affect the take-over."""
        webhooks: list[tuple[str, WebhookConfiguration]] | None = []
        for resource in (VALIDATING, MUTATING):
            found = await self._all(resource, WebhookConfiguration)
            webhooks = (
                None
                if found is None or webhooks is None
                else [*webhooks, *((resource.kind, each) for each in found)]
            )
        return Surroundings(
            jobs=await self._all(RAY_JOB, Job, scope),
            cron_jobs=await self._all(RAY_CRON_JOB, Job, scope),
            webhooks=webhooks,
            has_gateway_api=await self._serves(HTTP_ROUTE),
        )

    async def _operator(self, found: Workload) -> Operator:
        more: dict[str, str] = {}
        for name in operators.sources(found):
            more |= await self._data(found.metadata.namespace, name)
        return operators.of(found, more)

    async def _file(self, found: Operator) -> str | None:
        if found.file is None:
            return None
        text = (await self._data(found.namespace, found.file.config_map)).get(found.file.key)
        if text is None:
            self.unread.append(
                f"the configuration file of {found.place}: key {found.file.key} of ConfigMap "
                f"{found.file.config_map}"
            )
        return text

    async def _data(self, namespace: str, name: str) -> dict[str, str]:
        """Return the data of a ConfigMap; empty if it does not exist."""
        try:
            body = await self._unless_hidden(
                f"ConfigMap {namespace}/{name}", self._kube.get(CONFIG_MAP, namespace, name)
            )
        except errors.NotFound:
            return {}
        held: Json = {} if body is None else msgspec.json.decode(body)
        return cast("dict[str, str]", held.get("data") or {})

    async def _all(
        self, resource: Resource, view: type[T], scope: Scope = (None,), selector: str = ""
    ) -> list[T] | None:
        """List the objects of a kind.

        Empty if the API server does not serve the kind, None if the user may not read it.
        """
        found: list[T] = []
        for namespace in scope:
            where = resource.plural if namespace is None else f"{resource.plural} in {namespace}"
            try:
                ask = self._kube.list(resource, namespace, label_selector=selector)
                body = await self._unless_hidden(where, ask)
            except errors.NotFound:
                if resource in {RAY_CLUSTER, RAY_SERVICE}:
                    raise
                return []
            if body is None:
                return None
            found += msgspec.json.decode(body, type=Items[view]).items
        return found

    async def _serves(self, resource: Resource) -> bool:
        try:
            await self._kube.request("GET", f"/apis/{resource.api_version}")
        except (errors.NotFound, errors.Forbidden):
            return False
        return True

    async def _unless_hidden(self, where: str, ask: Awaitable[bytes]) -> bytes | None:
        try:
            return await ask
        except errors.Forbidden as problem:
            self.unread.append(f"{where}: {session.line(problem)}")
            return None
