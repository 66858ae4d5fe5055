"""How the operator was configured: feature gates, environment switches and what is added to every pod.

All of it is data that a decision gets as an argument; nothing here reads a file or the process's environment.
Behaviour: spec raycluster §2.5 (switches), §3 (gates), §18.1 (sidecars and defaults).
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
    """What the operator's file adds to every pod."""

    head_sidecars: tuple[Body, ...] = msgspec.field(default=(), name="headSidecarContainers")
    worker_sidecars: tuple[Body, ...] = msgspec.field(default=(), name="workerSidecarContainers")
    default_container_envs: tuple[Body, ...] = ()
    default_pod_annotations: dict[str, str] = {}
    default_pod_labels: dict[str, str] = {}


class Config(PodAdditions, frozen=True, kw_only=True):
    """The operator's configuration; the defaults are KubeRay's, and a switch is annotated with its environment variable."""

    gates: Gates = BETA
    version: str = OPERATOR_VERSION

    injects_init_container: Annotated[bool, "ENABLE_INIT_CONTAINER_INJECTION"] = True
    injects_probes: Annotated[bool, "ENABLE_PROBES_INJECTION"] = True
    drains_gracefully: Annotated[bool, "RAYBUS_GRACEFUL_DRAIN"] = False
    """What a RayService without the annotation `raybus.io/graceful-drain` means; ours, and it changes pods."""
    limits_disruption: Annotated[bool, "RAYBUS_DISRUPTION_BUDGETS"] = False
    """What a RayCluster without the annotation `raybus.io/disruption-budget` means; ours."""
    cleans_up_redis: Annotated[bool, "ENABLE_GCS_FT_REDIS_CLEANUP"] = True
    deletes_random_pods: Annotated[bool, "ENABLE_RANDOM_POD_DELETE"] = False
    head_service_has_cluster_ip: Annotated[bool, "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"] = False
    uses_login_shell: Annotated[bool, "ENABLE_LOGIN_SHELL"] = False
    head_pod_name_is_fixed: Annotated[bool, "ENABLE_DETERMINISTIC_HEAD_POD_NAME"] = False
    uses_ingress_on_openshift: Annotated[bool, "USE_INGRESS_ON_OPENSHIFT"] = False
    is_openshift: bool = False
    """Whether the API server serves OpenShift's groups, as found at the start."""
    cluster_domain: Annotated[str, "CLUSTER_DOMAIN"] = "cluster.local"
    max_pods: Annotated[int, "RAYBUS_MAX_PODS_PER_CLUSTER"] = 10_000
    """Worker pods of one cluster."""
    max_groups: Annotated[int, "RAYBUS_MAX_GROUPS_PER_CLUSTER"] = 1_000
    """Worker groups of one cluster."""
    max_hosts: Annotated[int, "RAYBUS_MAX_HOSTS_PER_REPLICA"] = 2_560
    """Hosts of one replica; the largest TPU slice has 2,240."""
    requeue_seconds: Annotated[int, "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV"] = 300
    """Seconds between reconciles of a steady cluster; zero or less means none."""

    batch_scheduler: str = ""
    """A name of `batch.SCHEDULERS`."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], gates: Gates = BETA) -> "Config":
        """Read the switches from environment variables; a value that cannot be meant leaves the default."""
        read = {
            field.name: _meant(environ, variable, field.default)
            for field in msgspec.structs.fields(cls)
            if (variable := variable_of(field))
        }
        return cls(gates=gates, **read)


def variable_of(field: FieldInfo) -> str:
    """Return the environment variable that a field is annotated with, empty without one."""
    return next((each for each in get_args(field.type)[1:] if isinstance(each, str)), "")


def _meant(environ: Mapping[str, str], variable: str, default: Any) -> Any:
    text = environ.get(variable, "")
    if isinstance(default, bool):
        return feature_gates.is_on(environ, variable, default=default)
    if isinstance(default, int):
        try:
            return int(text)
        except ValueError:
            return default
    return text or default
