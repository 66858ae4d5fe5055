"""Facts about an installation, and the API objects that they consist of.

A fact is None if the caller may not read it.
"""

from datetime import datetime
from typing import Any, Final

import msgspec

from common.api.gateway import GatewayClass
from common.api.meta import ApiStruct, ObjectMeta
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.feature_gates import Gates

RECONCILERS: Final = (
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    "job-reconciler",
)
MTLS_SUBJECT: Final = "cluster-reconciler for RayClusterMTLS"
"""Subject, in the report, of the rights that cluster-reconciler needs only while the feature gate
RayClusterMTLS is on.
"""


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The desired state of a Deployment or StatefulSet."""

    replicas: int = 1
    template: Json = {}


class WorkloadStatus(ApiStruct, frozen=True, kw_only=True):
    """The observed state of a Deployment or StatefulSet."""

    ready_replicas: int = 0
    updated_replicas: int = 0


class Workload(ApiStruct, frozen=True, kw_only=True):
    """A Deployment or a StatefulSet."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class LeaseHolderSpec(ApiStruct, frozen=True, kw_only=True):
    """The holder of a Lease and the time of the last renewal."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: datetime | None = None


class Lease(ApiStruct, frozen=True, kw_only=True):
    """A Lease."""

    metadata: ObjectMeta
    spec: LeaseHolderSpec = LeaseHolderSpec()


class StorageClass(ApiStruct, frozen=True, kw_only=True):
    """A StorageClass."""

    metadata: ObjectMeta

    @property
    def is_default(self) -> bool:
        """Whether volume claims that name no class get this class."""
        return (
            self.metadata.annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
        )


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a subject may do something at the API server."""

    subject: str
    """Who needs the right: `you`, the name of a raybus service, or `<service> for <feature gate>`.
    """
    verb: str
    resource: str
    group: str
    namespace: str = ""
    """Namespace of the right; empty for the whole cluster."""
    is_allowed: bool | None


class Watching(msgspec.Struct, frozen=True):
    """A running operator with the namespaces that it watches."""

    place: str
    """Namespace and name of the operator's Deployment."""
    namespaces: frozenset[str] = frozenset()
    """Watched namespaces; empty if the operator watches all, or if they are unknown."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All facts that the checks use."""

    namespace: str
    """Namespace of raybus's Leases, and of its pods if it has some."""
    is_outside: bool = False
    """Whether the services run outside the cluster, started by `docker compose` or `raybus up`."""
    server_version: str = ""
    definitions: dict[str, dict[str, Any] | None] | None = None
    """CustomResourceDefinitions by name; None for a missing one."""
    deployments: list[Workload] | None = None
    stateful_sets: list[Workload] | None = None
    leases: list[Lease] | None = None
    certificates: list[bytes] | None = None
    """Certificates of the NATS servers, from the ConfigMap `nats-servers`; None if unreadable."""
    gateway_versions: list[str] | None = None
    """Served versions of the Gateway API; empty if it is not installed."""
    gateway_classes: list[GatewayClass] | None = None
    ray_services: list[RayService] | None = None
    asked_classes: frozenset[str] = frozenset()
    """GatewayClasses that RayServices name."""
    kuberay: list[Watching] | None = None
    """The KubeRay operators that run in the cluster; None if the caller may not read them."""
    watch_namespaces: frozenset[str] = frozenset()
    """Namespaces that raybus watches; empty for all or if unknown."""
    gates: Gates = frozenset()
    """Feature gates that are on in cluster-reconciler; empty if unknown."""
    has_cert_manager: bool | None = None
    rights: list[Right] = []
    has_admission_policies: bool | None = None
    storage_classes: list[StorageClass] | None = None
