"""Configuration of cluster-reconciler: feature gates, environment variables, additions to pods.

Code that decides gets the configuration as an argument. This module reads neither files nor the
environment of the process. Spec raycluster §2.5 (environment variables), §3 (gates), §18.1
(sidecars and defaults).
"""

from collections.abc import Mapping
from typing import Annotated, Any, get_args

import msgspec
from msgspec.structs import FieldInfo

from common import feature_gates
from common.api.opaque import Body
from common.feature_gates import BETA, Gates
from common.version import OPERATOR_VERSION


class PodAdditions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Containers and fields that the operator's configuration file adds to Ray pods."""

    head_sidecars: tuple[Body, ...] = msgspec.field(default=(), name="headSidecarContainers")
    worker_sidecars: tuple[Body, ...] = msgspec.field(default=(), name="workerSidecarContainers")
    default_container_envs: tuple[Body, ...] = ()
    default_pod_annotations: dict[str, str] = {}
    default_pod_labels: dict[str, str] = {}


class Config(PodAdditions, frozen=True, kw_only=True):
    """The configuration of cluster-reconciler with KubeRay's defaults.

    A field that is read from an environment variable is annotated with the variable's name.
    """

    gates: Gates = BETA
    version: str = OPERATOR_VERSION

    injects_init_container: Annotated[bool, "ENABLE_INIT_CONTAINER_INJECTION"] = True
    injects_probes: Annotated[bool, "ENABLE_PROBES_INJECTION"] = True
    drains_gracefully: Annotated[bool, "RAYBUS_GRACEFUL_DRAIN"] = False
    """Whether RayServices without the annotation `raybus.io/graceful-drain` drain gracefully.

    Graceful drain changes the pods. KubeRay has no such setting.
    """
    limits_disruption: Annotated[bool, "RAYBUS_DISRUPTION_BUDGETS"] = False
    """Whether clusters without annotation `raybus.io/disruption-budget` get PodDisruptionBudgets.

    KubeRay has no such setting.
    """
    cleans_up_redis: Annotated[bool, "ENABLE_GCS_FT_REDIS_CLEANUP"] = True
    deletes_random_pods: Annotated[bool, "ENABLE_RANDOM_POD_DELETE"] = False
    head_service_has_cluster_ip: Annotated[bool, "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"] = False
    uses_login_shell: Annotated[bool, "ENABLE_LOGIN_SHELL"] = False
    head_pod_name_is_fixed: Annotated[bool, "ENABLE_DETERMINISTIC_HEAD_POD_NAME"] = False
    uses_ingress_on_openshift: Annotated[bool, "USE_INGRESS_ON_OPENSHIFT"] = False
    is_openshift: bool = False
    """Whether the API server serves OpenShift's API groups, as read at the start."""
    cluster_domain: Annotated[str, "CLUSTER_DOMAIN"] = "cluster.local"
    max_pods: Annotated[int, "RAYBUS_MAX_PODS_PER_CLUSTER"] = 10_000
    """Maximum worker pods of one cluster."""
    max_groups: Annotated[int, "RAYBUS_MAX_GROUPS_PER_CLUSTER"] = 1_000
    """Maximum worker groups of one cluster."""
    max_hosts: Annotated[int, "RAYBUS_MAX_HOSTS_PER_REPLICA"] = 2_560
    """Maximum hosts of one multi-host replica; the largest TPU slice has 2,240."""
    requeue_seconds: Annotated[int, "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV"] = 300
    """Seconds between reconciles of an unchanged cluster; zero or less turns them off."""

    batch_scheduler: str = ""
    """Name of the batch scheduler, a key of `batch.SCHEDULERS`; empty for the default scheduler."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], gates: Gates = BETA) -> "Config":
        """Read the annotated fields from environment variables; invalid numbers are ignored."""
        read = {
            field.name: _parse_variable(environ, variable, field.default)
            for field in msgspec.structs.fields(cls)
            if (variable := find_variable(field))
        }
        return cls(gates=gates, **read)


def find_variable(field: FieldInfo) -> str:
    """Return the environment variable of a field of `Config`; empty if the field has none."""
    return next((name for name in get_args(field.type)[1:] if isinstance(name, str)), "")


def _parse_variable(environ: Mapping[str, str], variable: str, default: Any) -> Any:
    text = environ.get(variable, "")
    if isinstance(default, bool):
        return feature_gates.is_on(environ, variable, default=default)
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError:
            return default
    return text or default
