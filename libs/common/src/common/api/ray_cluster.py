"""RayCluster (ray.io/v1), with all fields.

The order of fields is the order in which they are hashed, and the CRD is generated from these
structs. `None` means absent; an empty map or list that was written is not None. A decoded spec is
read-only: copies and hashes are made of `raw_spec`, which keeps unknown fields.

Source: spec raycluster §1.2, §1.3.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, TypeAlias, cast

import msgspec

from common.api import opaque
from common.api.meta import ApiStruct, Conditions, Int64, ObjectMeta, Time
from common.api.opaque import Api, Json, QuantityText

API_VERSION: Final = "ray.io/v1"
KIND: Final = "RayCluster"
Name: TypeAlias = Annotated[str, msgspec.Meta(max_length=253)]
"""A text that is at most as long as the name of a Kubernetes object may be."""
Text: TypeAlias = Annotated[str, msgspec.Meta(max_length=4096)]
"""A text that is at most as long as a file path may be on Linux."""
Version: TypeAlias = Annotated[str, msgspec.Meta(max_length=128)]
"""A Ray version. The version of a nightly build, with its commit, is half as long as allowed."""
StartParam: TypeAlias = Annotated[str, msgspec.Meta(max_length=32_768)]
"""The value of a flag of `ray start`, which may be JSON."""
MANAGED_BY: Final = Api(
    cel=(
        ("self == oldSelf", "the managedBy field is immutable"),
        (
            "self in ['ray.io/kuberay-operator', 'kueue.x-k8s.io/multikueue']",
            "the managedBy field value must be either 'ray.io/kuberay-operator' or "
            "'kueue.x-k8s.io/multikueue'",
        ),
    )
)


class UpgradeStrategy(ApiStruct, frozen=True, kw_only=True):
    """How a change of the spec affects running pods."""

    type: Annotated[str | None, Api(enum=("Recreate", "None"))] = None


class AuthOptions(ApiStruct, frozen=True, kw_only=True):
    """Token authentication between Ray processes."""

    enable_k8s_token_auth: bool | None = msgspec.field(default=None, name="enableK8sTokenAuth")
    secret_name: Annotated[str | None, Api(max_length=253)] = None
    mode: Annotated[str, Api(enum=("disabled", "token"))] = ""


class AutoscalerOptions(ApiStruct, frozen=True, kw_only=True):
    """Overrides of the autoscaler container."""

    resources: opaque.ResourceRequirements | None = None
    image: str | None = None
    image_pull_policy: str | None = None
    security_context: Annotated[Json, Api(go="core/v1.SecurityContext")] | None = None
    idle_timeout_seconds: int | None = None
    upscaling_mode: Annotated[str | None, Api(enum=("Default", "Aggressive", "Conservative"))] = (
        None
    )
    version: Annotated[str | None, Api(enum=("v1", "v2"))] = None
    env: list[opaque.EnvVar] | None = None
    env_from: list[Annotated[Json, Api(go="core/v1.EnvFromSource")]] | None = None
    volume_mounts: list[Annotated[Json, Api(go="core/v1.VolumeMount")]] | None = None
    command: list[str] | None = None
    args: list[str] | None = None


class RedisCredential(ApiStruct, frozen=True, kw_only=True):
    """A Redis user name or password, as a value or from a source such as a Secret."""

    value_from: Annotated[Json, Api(go="core/v1.EnvVarSource")] | None = None
    value: str = ""


class GcsEmbeddedStorage(ApiStruct, frozen=True, kw_only=True):
    """The volume of an embedded GCS store."""

    claim_name: Annotated[str, Api(max_length=253)] = ""
    size: QuantityText | None = None
    storage_class_name: Name | None = None
    access_modes: list[Name] | None = None
    sub_path: Text = ""
    deletion_policy: Annotated[str | None, Api(enum=("DeleteWithCluster", "Retain"))] = None


class GcsFaultToleranceOptions(ApiStruct, frozen=True, kw_only=True):
    """Where the GCS keeps its state when the head pod is replaced."""

    backend: Annotated[
        str,
        Api(
            enum=("redis", "rocksdb"),
            cel=(("self == oldSelf", "gcsFaultToleranceOptions.backend is immutable"),),
        ),
    ] = ""
    redis_username: RedisCredential | None = None
    redis_password: RedisCredential | None = None
    external_storage_namespace: Text = ""
    redis_address: Text = ""
    storage: GcsEmbeddedStorage | None = None


class CollectorOptions(ApiStruct, frozen=True, kw_only=True):
    """Overrides of the history collector container."""

    image: str | None = None
    image_pull_policy: str | None = None
    resources: opaque.ResourceRequirements | None = None
    env: list[opaque.EnvVar] | None = None


class HistoryServerOptions(ApiStruct, frozen=True, kw_only=True):
    """Whether and how logs and events are collected for the history server."""

    collector_options: CollectorOptions | None = None


class NetworkPolicyRules(ApiStruct, frozen=True, kw_only=True):
    """Network rules in addition to those that Ray needs."""

    ingress_rules: list[opaque.NetworkPolicyIngressRule] | None = None
    egress_rules: list[opaque.NetworkPolicyEgressRule] | None = None


class WorkerGroupNetworkPolicyRules(ApiStruct, frozen=True, kw_only=True):
    """Network rules of one worker group, which replace those for all workers."""

    group_name: Annotated[Name, Api(keep=True)] = ""
    ingress_rules: list[opaque.NetworkPolicyIngressRule] | None = None
    egress_rules: list[opaque.NetworkPolicyEgressRule] | None = None


PolicyRules: TypeAlias = NetworkPolicyRules | WorkerGroupNetworkPolicyRules | None


class NetworkPolicyConfig(ApiStruct, frozen=True, kw_only=True):
    """Network rules for the pods of a cluster."""

    mode: Annotated[
        str | None, Api(enum=("DenyAll", "DenyAllIngress", "DenyAllEgress"), default="DenyAll")
    ] = None
    head: NetworkPolicyRules | None = None
    worker: NetworkPolicyRules | None = None
    worker_groups: Annotated[
        list[WorkerGroupNetworkPolicyRules] | None, Api(keys=("groupName",))
    ] = None


class TlsOptions(ApiStruct, frozen=True, kw_only=True):
    """Mutual TLS between Ray processes."""

    enabled: bool | None = None


class IngressOptions(ApiStruct, frozen=True, kw_only=True):
    """Properties of the Ingress of the dashboard."""

    host: Name | None = None
    path: Text | None = None
    path_type: Annotated[str | None, Api(enum=("Exact", "Prefix", "ImplementationSpecific"))] = None
    tls: list[Annotated[Json, Api(go="networking/v1.IngressTLS")]] | None = None


class HeadGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """The head group: the template and options of the head pod."""

    template: Annotated[opaque.PodTemplate, Api(keep=True)] = msgspec.field(
        default_factory=dict[str, Any]
    )
    head_service: opaque.ServiceTemplate | None = None
    enable_ingress: bool | None = None
    ingress_options: IngressOptions | None = None
    resources: dict[str, Name] | None = None
    labels: dict[str, Name] | None = None
    ray_start_params: Annotated[dict[str, StartParam] | None, Api(keep=True, optional=True)] = None
    service_type: Name = ""


class ScaleStrategy(ApiStruct, frozen=True, kw_only=True):
    """The names of the workers to delete first when a group shrinks."""

    workers_to_delete: list[Name] | None = None


class WorkerGroupSpec(ApiStruct, frozen=True, kw_only=True):
    """A group of workers with the same template."""

    suspend: bool | None = None
    group_name: Annotated[Name, Api(keep=True)] = ""
    replicas: Annotated[int | None, Api(default=0)] = None
    min_replicas: Annotated[int | None, Api(keep=True, default=0)] = None
    max_replicas: Annotated[int | None, Api(keep=True, default=2147483647)] = None
    idle_timeout_seconds: int | None = None
    priority: Annotated[int | None, Api(default=0)] = None
    resources: dict[str, Name] | None = None
    labels: dict[str, Name] | None = None
    ray_start_params: Annotated[dict[str, StartParam] | None, Api(keep=True, optional=True)] = None
    template: Annotated[opaque.PodTemplate, Api(keep=True)] = msgspec.field(
        default_factory=dict[str, Any]
    )
    scale_strategy: ScaleStrategy = ScaleStrategy()
    num_of_hosts: Annotated[int, Api(default=1)] = 0


class RayClusterSpec(ApiStruct, frozen=True, kw_only=True):
    """The desired state of a RayCluster."""

    upgrade_strategy: UpgradeStrategy | None = None
    auth_options: AuthOptions | None = None
    suspend: bool | None = None
    managed_by: Annotated[str | None, MANAGED_BY] = None
    autoscaler_options: AutoscalerOptions | None = None
    head_service_annotations: dict[str, str] | None = None
    enable_in_tree_autoscaling: bool | None = None
    gcs_fault_tolerance_options: GcsFaultToleranceOptions | None = None
    history_server_options: HistoryServerOptions | None = None
    network_policy: NetworkPolicyConfig | None = None
    tls_options: TlsOptions | None = None
    head_group_spec: Annotated[HeadGroupSpec, Api(keep=True)] = HeadGroupSpec()
    ray_version: Version = ""
    worker_group_specs: list[WorkerGroupSpec] | None = None


class Intent(ApiStruct, frozen=True, kw_only=True):
    """The fields of a RayCluster's spec that are used even if another field is invalid."""

    suspend: bool | None = None
    managed_by: str | None = None


class HeadInfo(ApiStruct, frozen=True, kw_only=True):
    """Addresses and names of the head pod and its Service."""

    pod_ip: str = msgspec.field(default="", name="podIP")
    service_ip: str = msgspec.field(default="", name="serviceIP")
    pod_name: Annotated[str, Api(max_length=253)] = ""
    service_name: Annotated[str, Api(max_length=253)] = ""


class RayClusterStatus(ApiStruct, frozen=True, kw_only=True):
    """The observed state of a RayCluster.

    The four quantities and `head` are written even when empty.
    """

    state: str = ""
    # a factory, because `omit_defaults` omits default values
    desired_cpu: QuantityText = msgspec.field(default_factory=lambda: "0", name="desiredCPU")
    desired_memory: QuantityText = msgspec.field(default_factory=lambda: "0")
    desired_gpu: QuantityText = msgspec.field(default_factory=lambda: "0", name="desiredGPU")
    desired_tpu: QuantityText = msgspec.field(default_factory=lambda: "0", name="desiredTPU")
    last_update_time: Annotated[Time | None, Api(nullable=True)] = None
    state_transition_times: dict[str, Time] | None = None
    endpoints: dict[str, str] | None = None
    head: HeadInfo = msgspec.field(default_factory=HeadInfo)
    reason: str = ""
    conditions: Conditions = []  # noqa: RUF012 - msgspec copies it
    ready_worker_replicas: int = 0
    available_worker_replicas: int = 0
    desired_worker_replicas: int = 0
    min_worker_replicas: int = 0
    max_worker_replicas: int = 0
    observed_generation: Int64 = 0


class RayObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel", dict=True):
    """The common part of the Ray kinds, such as RayCluster and RayService.

    The spec is decoded at the first use, so that an invalid spec fails where it is used and not
    where it arrives.
    """

    metadata: ObjectMeta
    spec_json: msgspec.Raw = msgspec.field(default=msgspec.Raw(b"{}"), name="spec")

    @cached_property
    def raw_spec(self) -> Json:
        """The spec as written, for hashing and copying. Do not change it in place."""
        value: object = msgspec.json.decode(self.spec_json)
        return cast("Json", value) if isinstance(value, dict) else {}


class RayCluster(RayObject, frozen=True, kw_only=True, rename="camel", dict=True):
    """A RayCluster as read from the API."""

    status: RayClusterStatus = RayClusterStatus()

    @cached_property
    def spec(self) -> RayClusterSpec:
        """The decoded spec; raises `msgspec.ValidationError`, which names the field."""
        return msgspec.json.decode(self.spec_json, type=RayClusterSpec, strict=False)

    @cached_property
    def intent(self) -> Intent:
        """`suspend` and `managedBy`, even if the rest of the spec is invalid."""
        try:
            return msgspec.json.decode(self.spec_json, type=Intent, strict=False)
        except msgspec.ValidationError:
            return Intent()


def decode(obj: bytes | str | Mapping[str, Any]) -> RayCluster:
    """Decode a RayCluster from JSON text or plain data."""
    return msgspec.json.decode(
        obj if isinstance(obj, bytes | str) else msgspec.json.encode(obj), type=RayCluster
    )
