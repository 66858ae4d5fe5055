"""The few fields of Kubernetes' own kinds that raybus reads; other fields are ignored.

These structs are for reading. Objects to write are built as JSON or patched, never encoded from
these structs.
"""
# ruff: noqa: RUF012  (msgspec copies empty lists and maps)

from datetime import datetime

import msgspec

from common.api.meta import ApiStruct, ObjectMeta


class ContainerPort(ApiStruct, frozen=True, kw_only=True):
    """A port that a container declares."""

    name: str = ""
    container_port: int = 0


class Container(ApiStruct, frozen=True, kw_only=True):
    """A container of a pod. `cluster_traits.ray_container` finds the Ray container."""

    name: str
    image: str = ""
    ports: list[ContainerPort] = []


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """The spec of a pod."""

    containers: list[Container] = []
    restart_policy: str = "Always"
    node_name: str = ""
    termination_grace_period_seconds: int | None = None


class PodCondition(ApiStruct, frozen=True, kw_only=True):
    """One condition of a pod."""

    type: str
    status: str
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class StateWaiting(ApiStruct, frozen=True, kw_only=True):
    """Why a container is not running yet."""

    reason: str = ""
    message: str = ""


class StateTerminated(ApiStruct, frozen=True, kw_only=True):
    """How a container has ended."""

    exit_code: int = 0
    reason: str = ""
    message: str = ""
    finished_at: datetime | None = None


class ContainerState(ApiStruct, frozen=True, kw_only=True):
    """The state of a container; at most one field is set."""

    waiting: StateWaiting | None = None
    terminated: StateTerminated | None = None


class ContainerStatus(ApiStruct, frozen=True, kw_only=True):
    """The status of a container."""

    name: str
    ready: bool = False
    restart_count: int = 0
    state: ContainerState = ContainerState()
    last_state: ContainerState = ContainerState()
    """The state of the container before its last restart."""


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """The status of a pod."""

    phase: str = ""
    pod_ip: str = msgspec.field(default="", name="podIP")
    reason: str = ""
    message: str = ""
    conditions: list[PodCondition] = []
    container_statuses: list[ContainerStatus] = []
    init_container_statuses: list[ContainerStatus] = []
    start_time: datetime | None = None


class Pod(ApiStruct, frozen=True, kw_only=True):
    """A pod."""

    metadata: ObjectMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    def condition(self, kind: str) -> PodCondition | None:
        """Return the condition of a type; None if there is none."""
        return next(
            (condition for condition in self.status.conditions if condition.type == kind), None
        )

    @property
    def is_running_and_ready(self) -> bool:
        """Whether the pod is running and its Ready condition is True."""
        ready = self.condition("Ready")
        return self.status.phase == "Running" and ready is not None and ready.status == "True"


class ServicePort(ApiStruct, frozen=True, kw_only=True):
    """A port of a Service."""

    name: str = ""
    port: int = 0
    node_port: int = 0
    target_port: int | str = 0


class ServiceSpec(ApiStruct, frozen=True, kw_only=True):
    """The spec of a Service."""

    cluster_ip: str = msgspec.field(default="", name="clusterIP")
    type: str = ""
    selector: dict[str, str] = {}
    ports: list[ServicePort] = []


class Service(ApiStruct, frozen=True, kw_only=True):
    """A Service."""

    metadata: ObjectMeta
    spec: ServiceSpec = ServiceSpec()


class EndpointConditions(ApiStruct, frozen=True, kw_only=True):
    """Whether an endpoint of a Service receives requests."""

    ready: bool | None = None


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """The object behind an endpoint, usually a pod."""

    kind: str = ""
    name: str = ""
    uid: str = ""


class Endpoint(ApiStruct, frozen=True, kw_only=True):
    """An endpoint of a Service."""

    addresses: list[str] = []
    conditions: EndpointConditions = EndpointConditions()
    target_ref: ObjectReference | None = None


class EndpointSlice(ApiStruct, frozen=True, kw_only=True):
    """Endpoints of a Service. The API server writes `endpoints: null` for a Service without any."""

    metadata: ObjectMeta
    endpoints: list[Endpoint] | None = None


class JobCondition(ApiStruct, frozen=True, kw_only=True):
    """One condition of a Job."""

    type: str
    status: str
    last_transition_time: datetime | None = None
    reason: str = ""
    message: str = ""


class JobStatus(ApiStruct, frozen=True, kw_only=True):
    """The status of a Job."""

    conditions: list[JobCondition] = []


class Job(ApiStruct, frozen=True, kw_only=True):
    """A Job."""

    metadata: ObjectMeta
    status: JobStatus = JobStatus()


class KeyedData(msgspec.Struct, frozen=True):
    """The data of a Secret (base64) or of a ConfigMap."""

    data: dict[str, str] = {}


class LeaseSpec(ApiStruct, frozen=True):
    """The spec of a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None
