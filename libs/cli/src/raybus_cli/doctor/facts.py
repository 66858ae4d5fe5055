"""The facts of an installation; None where the caller may not read them."""

from datetime import datetime
from typing import Any, Final

import msgspec

from common.api.meta import ApiStruct, Condition, ObjectMeta
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.feature_gates import Gates

MTLS_SUBJECT: Final = "cluster-reconciler for RayClusterMTLS"
"""The subject of the rights that a service needs only while the gate is on."""


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The desired state of a Deployment or StatefulSet."""

    replicas: int = 1
    template: Json = {}


class WorkloadStatus(ApiStruct, frozen=True, kw_only=True):
    """Its observed state."""

    ready_replicas: int = 0
    updated_replicas: int = 0


class Workload(ApiStruct, frozen=True, kw_only=True):
    """A Deployment or a StatefulSet."""

    metadata: ObjectMeta
    spec: WorkloadSpec = WorkloadSpec()
    status: WorkloadStatus = WorkloadStatus()


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    """The holder of a Lease, and the time of its last renewal."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    renew_time: datetime | None = None


class Lease(ApiStruct, frozen=True, kw_only=True):
    """A Lease."""

    metadata: ObjectMeta
    spec: LeaseSpec = LeaseSpec()


class GatewayClassSpec(ApiStruct, frozen=True, kw_only=True):
    """The controller of a GatewayClass."""

    controller_name: str = ""


class GatewayClassStatus(ApiStruct, frozen=True, kw_only=True):
    """The conditions that its controller writes."""

    conditions: tuple[Condition, ...] = ()


class GatewayClass(ApiStruct, frozen=True, kw_only=True):
    """A GatewayClass."""

    metadata: ObjectMeta
    spec: GatewayClassSpec = GatewayClassSpec()
    status: GatewayClassStatus = GatewayClassStatus()


class StorageClass(ApiStruct, frozen=True, kw_only=True):
    """A StorageClass."""

    metadata: ObjectMeta

    @property
    def is_default(self) -> bool:
        """Return whether volumes without a class get this one."""
        return (
            self.metadata.annotations.get("storageclass.kubernetes.io/is-default-class") == "true"
        )


class Right(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a subject may do something."""

    subject: str
    """`you`, or a service of raybus, or one `for` a feature gate."""
    verb: str
    resource: str
    group: str
    namespace: str = ""
    """Where; empty for the whole cluster."""
    is_allowed: bool | None


class Watching(msgspec.Struct, frozen=True):
    """An operator that runs, and the namespaces that it watches."""

    place: str
    """Its namespace and name."""
    namespaces: frozenset[str] = frozenset()
    """Empty for all, and where they are unknown."""


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """All that the checks are made from."""

    namespace: str
    server_version: str = ""
    definitions: dict[str, dict[str, Any] | None] | None = None
    """The CustomResourceDefinitions by name; None for one that is not there."""
    deployments: list[Workload] | None = None
    stateful_sets: list[Workload] | None = None
    leases: list[Lease] | None = None
    certificates: list[bytes] | None = None
    """What vouches for the NATS servers; None when the caller may not read it."""
    gateway_versions: list[str] | None = None
    """Versions of the Gateway API that are served; empty when it is not installed."""
    gateway_classes: list[GatewayClass] | None = None
    ray_services: list[RayService] | None = None
    asked_classes: frozenset[str] = frozenset()
    """The classes that RayServices name."""
    kuberay: list[Watching] | None = None
    """The operators of KubeRay that run."""
    watch_namespaces: frozenset[str] = frozenset()
    """The namespaces that raybus watches; empty for all, and where they are unknown."""
    gates: Gates = frozenset()
    """The gates of cluster-reconciler that are on; empty where they are unknown."""
    has_cert_manager: bool | None = None
    rights: list[Right] = []
    has_admission_policies: bool | None = None
    storage_classes: list[StorageClass] | None = None
