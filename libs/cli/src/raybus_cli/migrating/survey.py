"""Reads all facts that `raybus migrate check` needs about a cluster, and writes nothing.

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
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import RayJob
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
    RAY_CRON_JOB,
    RAY_JOB,
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
from raybus_cli.doctor.operator import InstalledOperator
from raybus_cli.doctor.survey import DEPLOYMENT

_WEBHOOKS: Final = "admissionregistration.k8s.io"
VALIDATING: Final = Resource(
    group=_WEBHOOKS, kind="ValidatingWebhookConfiguration", plural="validatingwebhookconfigurations"
)
MUTATING: Final = Resource(
    group=_WEBHOOKS, kind="MutatingWebhookConfiguration", plural="mutatingwebhookconfigurations"
)


class Hook(ApiStruct, frozen=True, kw_only=True):
    """One webhook of a `WebhookConfiguration`."""

    name: str = ""
    failure_policy: str = "Fail"
    rules: tuple[Json, ...] = ()
    client_config: Json = msgspec.field(default_factory=dict[str, Any])


class WebhookConfiguration(ApiStruct, frozen=True, kw_only=True):
    """A ValidatingWebhookConfiguration or a MutatingWebhookConfiguration."""

    metadata: ObjectMeta
    webhooks: tuple[Hook, ...] = ()


class InstalledOperators(msgspec.Struct, frozen=True, kw_only=True):
    """The installed operators: KubeRay and raybus."""

    kuberay: list[InstalledOperator] | None
    kuberay_file: str | None = None
    """Text of the configuration file of the first KubeRay operator, if it has one."""
    raybus: dict[str, InstalledOperator] = {}
    """The services of raybus, by name."""
    raybus_file: str | None = None
    leases: list[Lease] | None = None
    """The Leases of both operators' leader elections."""


class ClusterSurroundings(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about webhooks and the Gateway API that affect a replacement of KubeRay."""

    webhooks: list[tuple[str, WebhookConfiguration]] | None = None
    """The configurations of admission webhooks, each with its kind."""
    has_gateway_api: bool = False


T = TypeVar("T")
Scope = tuple[str | None, ...]
"""The namespaces to check; `(None,)` means all namespaces."""

_OBSERVED_KINDS: Final[tuple[tuple[Resource, type[Object], str], ...]] = (
    (RAY_CLUSTER, RayCluster, ""),
    (RAY_SERVICE, RayService, ""),
    (RAY_JOB, RayJob, ""),
    (RAY_CRON_JOB, RayCronJob, ""),
    (POD, Pod, labels.CLUSTER),
    (SERVICE, Service, ""),
    (ENDPOINT_SLICE, EndpointSlice, ""),
    (JOB, BatchJob, labels.CLUSTER),
    (CONTROLLER_REVISION, Revision, f"{revision.RECORD}={revision.SERVE_CONFIG}"),
    (GATEWAY, Gateway, ""),
    (HTTP_ROUTE, HttpRoute, ""),
    (GRPC_ROUTE, GrpcRoute, ""),
)
"""Kinds that the services read, each with the label selector for listing it."""
_ONLY_PARTITION: Final = 0
"""Partition number of all cached objects. Only messages on the bus have real partitions."""


class Survey:
    """Reads facts, and records in `unread` those that the user may not read."""

    def __init__(self, kube: KubeClient) -> None:
        self._kube = kube
        self.unread: list[str] = []

    async def read_installation(self, raybus_namespace: str) -> InstalledOperators:
        """Read the Deployments, configurations and Leases of KubeRay's operator and of raybus."""
        deployments = await self._list_all(DEPLOYMENT, Workload)
        kuberay = (
            None
            if deployments is None
            else [
                await self._read_operator(deployment)
                for deployment in operators.select_kuberay(deployments)
            ]
        )
        if deployments is None:
            deployments = await self._list_all(DEPLOYMENT, Workload, (raybus_namespace,)) or []
        ours = {
            deployment.metadata.name: await self._read_operator(deployment)
            for deployment in operators.select_raybus(deployments, raybus_namespace)
        }
        decider = ours.get("cluster-reconciler")
        places = {raybus_namespace, *(operator.namespace for operator in kuberay or [])}
        leases = [await self._list_all(LEASE, Lease, (place,)) for place in sorted(places)]
        return InstalledOperators(
            kuberay=kuberay,
            kuberay_file=await self._read_operator_file(kuberay[0]) if kuberay else None,
            raybus=ours,
            raybus_file=await self._read_operator_file(decider) if decider is not None else None,
            leases=[
                lease for some in leases for lease in some or [] if lease.metadata.name == LEADER
            ],
        )

    async def read_state(self, scope: Scope) -> Cache:
        """Read the objects that the services observe.

        Raise `NotFound` if the API server does not serve RayClusters.
        """
        cache = Cache()
        for resource, view, selector in _OBSERVED_KINDS:
            for obj in await self._list_all(resource, view, scope, selector) or []:
                cache.put(obj, partition=_ONLY_PARTITION)
        return cache

    async def read_surroundings(self) -> ClusterSurroundings:
        """Read the admission webhooks, and whether the Gateway API is installed."""
        webhooks: list[tuple[str, WebhookConfiguration]] | None = []
        for resource in (VALIDATING, MUTATING):
            configurations = await self._list_all(resource, WebhookConfiguration)
            webhooks = (
                None
                if configurations is None or webhooks is None
                else [
                    *webhooks,
                    *((resource.kind, configuration) for configuration in configurations),
                ]
            )
        return ClusterSurroundings(
            webhooks=webhooks,
            has_gateway_api=await self._is_served(HTTP_ROUTE),
        )

    async def _read_operator(self, deployment: Workload) -> InstalledOperator:
        more: dict[str, str] = {}
        for name in operators.list_config_maps(deployment):
            more |= await self._read_config_map(deployment.metadata.namespace, name)
        return operators.read_operator(deployment, more)

    async def _read_operator_file(self, operator: InstalledOperator) -> str | None:
        if operator.file is None:
            return None
        text = (await self._read_config_map(operator.namespace, operator.file.config_map)).get(
            operator.file.key
        )
        if text is None:
            self.unread.append(
                f"the configuration file of {operator.place}: key {operator.file.key} of ConfigMap "
                f"{operator.file.config_map}"
            )
        return text

    async def _read_config_map(self, namespace: str, name: str) -> dict[str, str]:
        """Return the data of a ConfigMap; empty if it does not exist."""
        try:
            body = await self._read_unless_hidden(
                f"ConfigMap {namespace}/{name}", self._kube.get(CONFIG_MAP, namespace, name)
            )
        except errors.NotFound:
            return {}
        config_map: Json = {} if body is None else msgspec.json.decode(body)
        return cast("dict[str, str]", config_map.get("data") or {})

    async def _list_all(
        self, resource: Resource, view: type[T], scope: Scope = (None,), selector: str = ""
    ) -> list[T] | None:
        """List the objects of a kind.

        Empty if the API server does not serve the kind, None if the user may not read it.
        """
        objects: list[T] = []
        for namespace in scope:
            where = resource.plural if namespace is None else f"{resource.plural} in {namespace}"
            try:
                ask = self._kube.list(resource, namespace, label_selector=selector)
                body = await self._read_unless_hidden(where, ask)
            except errors.NotFound:
                if resource in {RAY_CLUSTER, RAY_SERVICE}:
                    raise
                return []
            if body is None:
                return None
            objects += msgspec.json.decode(body, type=Items[view]).items
        return objects

    async def _is_served(self, resource: Resource) -> bool:
        try:
            await self._kube.request("GET", f"/apis/{resource.api_version}")
        except (errors.NotFound, errors.Forbidden):
            return False
        return True

    async def _read_unless_hidden(self, where: str, ask: Awaitable[bytes]) -> bytes | None:
        try:
            return await ask
        except errors.Forbidden as problem:
            self.unread.append(f"{where}: {session.format_error(problem)}")
            return None
