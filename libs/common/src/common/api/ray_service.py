"""RayService (ray.io/v1), with all fields; `ray_cluster` explains the structs.

Source: spec rayservice §2.1, §2.2.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Final, cast

import msgspec

from common import labels
from common.api.meta import ApiStruct, Conditions, Int64, Time
from common.api.opaque import Api, Json, ServiceTemplate
from common.api.ray_cluster import (
    MANAGED_BY,
    Name,
    RayClusterSpec,
    RayClusterStatus,
    RayObject,
)

KIND: Final = "RayService"
MAX_SERVE_CONFIG: Final = 2**20
"""Maximum characters of a Serve config. etcd accepts objects of 1.5 MiB."""
DEFAULT_DELETION_DELAY: Final = 60
"""Default seconds between the promotion and the deletion of the old cluster."""


class ClusterUpgradeOptions(ApiStruct, frozen=True, kw_only=True):
    """Pace of an incremental upgrade, and the class of its Gateway."""

    max_surge_percent: Annotated[int | None, Api(default=100)] = None
    step_size_percent: Annotated[int | None, Api(keep=True)] = None
    interval_seconds: Annotated[int | None, Api(keep=True)] = None
    gateway_class_name: Annotated[Name, Api(keep=True)] = ""


class ServiceUpgradeStrategy(ApiStruct, frozen=True, kw_only=True):
    """How a change of the cluster spec is rolled out."""

    type: Name | None = None
    cluster_upgrade_options: ClusterUpgradeOptions | None = None


class RayServiceSpec(ApiStruct, frozen=True, kw_only=True):
    """The desired state of a RayService."""

    ray_cluster_deletion_delay_seconds: Annotated[int | None, Api(minimum=0)] = None
    service_unhealthy_second_threshold: int | None = None
    deployment_unhealthy_second_threshold: int | None = None
    serve_service: ServiceTemplate | None = None
    upgrade_strategy: ServiceUpgradeStrategy | None = None
    managed_by: Annotated[str | None, MANAGED_BY] = None
    serve_config_v2: Annotated[str, Api(max_length=MAX_SERVE_CONFIG)] = msgspec.field(
        default="", name="serveConfigV2"
    )
    ray_cluster_config: Annotated[RayClusterSpec, Api(keep=True)] = RayClusterSpec()
    exclude_head_pod_from_serve_svc: bool = False
    suspend: bool = False


class ServeDeploymentStatus(ApiStruct, frozen=True, kw_only=True):
    """The status of a deployment of Ray Serve."""

    status: str = ""
    message: str = ""


class AppStatus(ApiStruct, frozen=True, kw_only=True):
    """The status of an application of Ray Serve."""

    deployments: dict[str, ServeDeploymentStatus] | None = msgspec.field(
        default=None, name="serveDeploymentStatuses"
    )
    status: str = ""
    message: str = ""


class ClusterServiceStatus(ApiStruct, frozen=True, kw_only=True):
    """The status of the active or pending cluster; `rayClusterStatus` is always written."""

    applications: dict[str, AppStatus] | None = msgspec.field(
        default=None, name="applicationStatuses"
    )
    target_capacity: int | None = None
    traffic_routed_percent: int | None = None
    last_traffic_migrated_time: Time | None = None
    ray_cluster_name: Annotated[str, Api(max_length=253)] = ""
    ray_cluster_status: RayClusterStatus = msgspec.field(default_factory=RayClusterStatus)


class RayServiceStatus(ApiStruct, frozen=True, kw_only=True):
    """The observed state of a RayService; a cluster that does not exist is written as empty."""

    conditions: Conditions = []  # noqa: RUF012 - msgspec copies it
    last_update_time: Time | None = None
    service_status: str = ""
    active_service_status: ClusterServiceStatus = msgspec.field(
        default_factory=ClusterServiceStatus
    )
    pending_service_status: ClusterServiceStatus = msgspec.field(
        default_factory=ClusterServiceStatus
    )
    num_serve_endpoints: int = 0
    observed_generation: Int64 = 0


class RayService(RayObject, frozen=True, kw_only=True, rename="camel", dict=True):
    """A RayService as read from the API."""

    status: RayServiceStatus = RayServiceStatus()

    @cached_property
    def spec(self) -> RayServiceSpec:
        """The decoded spec; raises `msgspec.ValidationError`, which names the field."""
        return msgspec.json.decode(self.spec_json, type=RayServiceSpec, strict=False)

    @property
    def manager(self) -> str:
        """The controller that reconciles this RayService: `spec.managedBy`; raybus if absent."""
        value = self.raw_spec.get("managedBy", labels.MANAGED_BY_US)
        return value if isinstance(value, str) else labels.MANAGED_BY_US

    @property
    def excludes_head_pod(self) -> bool:
        """`spec.excludeHeadPodFromServeSvc`, even if the rest of the spec is invalid."""
        return self.raw_spec.get("excludeHeadPodFromServeSvc") is True

    @property
    def is_to_be_suspended(self) -> bool:
        """`spec.suspend`, even if the rest of the spec is invalid."""
        return self.raw_spec.get("suspend") is True

    @property
    def serve_config(self) -> str:
        """`spec.serveConfigV2`, even if the rest of the spec is invalid."""
        text = self.raw_spec.get("serveConfigV2")
        return text if isinstance(text, str) else ""

    @property
    def raw_upgrade_strategy(self) -> Json:
        """`spec.upgradeStrategy` as written; empty if absent."""
        value = self.raw_spec.get("upgradeStrategy")
        return cast("Json", value) if isinstance(value, dict) else {}

    @property
    def raw_upgrade_options(self) -> Json:
        """`spec.upgradeStrategy.clusterUpgradeOptions` as written; empty if absent."""
        value = self.raw_upgrade_strategy.get("clusterUpgradeOptions")
        return cast("Json", value) if isinstance(value, dict) else {}

    @property
    def raw_cluster_config(self) -> Json:
        """`spec.rayClusterConfig` as written, for hashing and copying.

        Do not change it in place.
        """
        value = self.raw_spec.get("rayClusterConfig")
        return cast("Json", value) if isinstance(value, dict) else {}


def decode(obj: bytes | str | Mapping[str, Any]) -> RayService:
    """Decode a RayService from JSON text or plain data."""
    return msgspec.json.decode(
        obj if isinstance(obj, bytes | str) else msgspec.json.encode(obj), type=RayService
    )
