"""Evidence of a run: object states that watches delivered, and writes in the audit log.

States and writes carry the resource version that etcd assigned. Versions are one sequence over all
kinds, so the order of any two of them is certain.
"""

from typing import Final

import msgspec

from common import labels
from common.bus.subjects import ObjectRef

HEAD: Final = labels.HEAD
ENDED_PHASES: Final = frozenset({"Failed", "Succeeded"})


class Meta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of an object that the rules read."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generation: int = 0
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    deletion_timestamp: str | None = None


class WorkersToDelete(msgspec.Struct, frozen=True, rename="camel"):
    """The worker pods that the autoscaler wants to remove."""

    workers_to_delete: list[str] | None = None


class Group(msgspec.Struct, frozen=True, rename="camel"):
    """A worker group of a RayCluster."""

    group_name: str
    replicas: int | None = None
    min_replicas: int | None = None
    max_replicas: int | None = None
    scale_strategy: WorkersToDelete = WorkersToDelete()

    @property
    def wanted(self) -> int:
        """Number of workers that the group asks for: `replicas` within its limits."""
        least, most = (
            self.min_replicas or 0,
            self.max_replicas if self.max_replicas is not None else 2**31,
        )
        return max(least, min(self.replicas or 0, most))


class RouteBackend(msgspec.Struct, frozen=True):
    """A backend of a route rule and its weight."""

    name: str
    weight: int = 1


class EvidenceRule(msgspec.Struct, frozen=True, rename="camel"):
    """A rule of an HTTPRoute."""

    backend_refs: list[RouteBackend] = []


class SpecFields(msgspec.Struct, frozen=True, rename="camel"):
    """The spec fields of all kinds that the rules read.

    Fields that a kind does not have are empty.
    """

    suspend: bool | None = None
    enable_in_tree_autoscaling: bool | None = None
    worker_group_specs: list[Group] | None = None
    backoff_limit: int | None = None
    rules: list[EvidenceRule] = []


class ServingCluster(msgspec.Struct, frozen=True, rename="camel"):
    """The active or the pending cluster of a RayService."""

    ray_cluster_name: str = ""


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """The status fields of all kinds that the rules read.

    Fields that a kind does not have are empty.
    """

    phase: str = ""
    state: str = ""
    observed_generation: int | None = None
    desired_worker_replicas: int = 0
    ready_worker_replicas: int = 0
    service_status: str = ""
    active_service_status: ServingCluster = ServingCluster()
    pending_service_status: ServingCluster = ServingCluster()
    job_id: str = ""
    ray_cluster_name: str = ""
    job_deployment_status: str = ""
    job_status: str = ""
    reason: str = ""
    succeeded: int | None = None
    failed: int | None = None


class EvidenceObject(msgspec.Struct, frozen=True):
    """An object of any kind, reduced to the fields that the rules read."""

    metadata: Meta
    spec: SpecFields = SpecFields()
    status: Status = Status()

    @property
    def label(self) -> dict[str, str]:
        return self.metadata.labels


class ObservedState(msgspec.Struct, frozen=True, kw_only=True):
    """A state of an object, valid from a resource version on; `is_gone` if it was deleted."""

    kind: str
    version: int
    at: float
    """Seconds from the beginning of the run until the watch delivered the state."""
    object: EvidenceObject
    is_gone: bool = False

    @property
    def key(self) -> tuple[str, str, str]:
        """Kind, namespace and name."""
        return self.kind, self.object.metadata.namespace, self.object.metadata.name

    @property
    def is_alive(self) -> bool:
        """Whether the object exists and is not being deleted. A pod must also not have ended."""
        ended = self.kind == "Pod" and self.object.status.phase in ENDED_PHASES
        return not self.is_gone and not ended and self.object.metadata.deletion_timestamp is None

    def __str__(self) -> str:
        status = self.object.status
        state = (
            "gone"
            if self.is_gone
            else status.phase
            or status.state
            or status.service_status
            or f"{status.job_deployment_status} {status.job_status} {status.reason}".strip()
        )
        return (
            f"{self.kind} {self.object.metadata.name} is {state or 'there'} (version "
            f"{self.version})"
        )


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """A successful write to the API server by one of raybus's services."""

    version: int
    """The resource version that the write created; 0 if it changed nothing or is not known."""
    at: float
    service: str
    replica: str
    verb: str
    resource: str
    """Resource with subresource, such as `rayclusters/status`."""
    namespace: str
    name: str
    based_on: str = ""
    """Resource version or UID that the request named as its precondition; empty if none."""
    top_owner: ObjectRef | None = None

    def __str__(self) -> str:
        return (
            f"{self.replica}: {self.verb} {self.resource} {self.name} (version "
            f"{self.version or 'unknown'})"
        )


class Violation(msgspec.Struct, frozen=True, kw_only=True):
    """A breach of a rule: by which object, and when."""

    rule: str
    about: str
    """Namespace and name of the object that broke the rule, or of its top owner."""
    text: str
    at: float
    """Seconds since the beginning of the run."""


def find_top_owner(
    kind: str, meta: Meta, origins: dict[tuple[str, str], ObjectRef]
) -> ObjectRef | None:
    """Return an object's top owner, or the object itself if it has none; None if unknown.

    `origins` maps the namespace and name of each RayCluster to its top owner.
    """
    origin, origin_kind = meta.labels.get(labels.ORIGIN_NAME), meta.labels.get(labels.ORIGIN_KIND)
    cron_job = meta.labels.get(labels.CRON_JOB_NAME)
    match kind:
        case "RayJob" | "RayCluster" if cron_job:
            return ObjectRef("RayCronJob", meta.namespace, cron_job)
        case "RayCluster" if origin and origin_kind in {"RayService", "RayJob"}:
            return ObjectRef(origin_kind, meta.namespace, origin)
        case "RayService" | "RayCronJob" | "RayJob" | "RayCluster":
            return ObjectRef(kind, meta.namespace, meta.name)
        case "HTTPRoute":
            return ObjectRef("RayService", meta.namespace, meta.name.removesuffix("-httproute"))
        case _:
            cluster = meta.labels.get(labels.CLUSTER)
            return origins.get((meta.namespace, cluster)) if cluster else None
