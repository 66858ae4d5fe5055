"""How the operator was configured: feature gates, environment switches and what is added to every pod.

All of it is data that a decision gets as an argument; nothing here reads a file or the process's environment.
Behaviour: spec raycluster §2.5 (switches), §3 (gates), §18.1 (sidecars and defaults).
"""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from common.api.opaque import Body
from common.feature_gates import BETA, Gate, Gates
from common.version import OPERATOR_VERSION


class BatchSchedulerName(StrEnum):
    """The batch schedulers that an operator can be configured for."""

    NONE = ""
    VOLCANO = "volcano"
    YUNIKORN = "yunikorn"
    SCHEDULER_PLUGINS = "scheduler-plugins"
    KAI = "kai-scheduler"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's configuration; the defaults are KubeRay's."""

    gates: Gates = BETA
    version: str = OPERATOR_VERSION

    injects_init_container: bool = True
    injects_probes: bool = True
    drains_gracefully: bool = False
    """What a RayService without the annotation `raybus.io/graceful-drain` means; ours, and it changes pods."""
    cleans_up_redis: bool = True
    deletes_random_pods: bool = False
    head_service_has_cluster_ip: bool = False
    uses_login_shell: bool = False
    head_pod_name_is_fixed: bool = False
    uses_ingress_on_openshift: bool = False
    is_openshift: bool = False
    has_cert_manager: bool = False
    """What the API server serves, as found at the start."""
    cluster_domain: str = "cluster.local"
    max_pods: int = 10_000
    """Worker pods of one cluster."""
    max_groups: int = 1_000
    """Worker groups of one cluster."""
    max_hosts: int = 2_560
    """Hosts of one replica; the largest TPU slice has 2,240."""
    requeue_seconds: int = 300
    """Seconds between reconciles of a steady cluster; zero or less means none."""

    batch_scheduler: BatchSchedulerName = BatchSchedulerName.NONE
    head_sidecars: tuple[Body, ...] = ()
    worker_sidecars: tuple[Body, ...] = ()
    default_container_envs: tuple[Body, ...] = ()
    default_pod_annotations: dict[str, str] = {}
    default_pod_labels: dict[str, str] = {}

    @property
    def uses_routes(self) -> bool:
        """Return whether the dashboard is reached through an OpenShift Route, and not an Ingress."""
        return self.is_openshift and not self.uses_ingress_on_openshift

    def has(self, gate: Gate) -> bool:
        """Return whether a feature is switched on."""
        return gate in self.gates

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], gates: Gates = BETA) -> "Config":
        """Read the switches from environment variables."""
        return cls(
            gates=gates,
            injects_init_container=_unless_false(environ, "ENABLE_INIT_CONTAINER_INJECTION"),
            injects_probes=_unless_false(environ, "ENABLE_PROBES_INJECTION"),
            drains_gracefully=_if_true(environ, "RAYBUS_GRACEFUL_DRAIN"),
            cleans_up_redis=_unless_false(environ, "ENABLE_GCS_FT_REDIS_CLEANUP"),
            deletes_random_pods=_if_true(environ, "ENABLE_RANDOM_POD_DELETE"),
            head_service_has_cluster_ip=_if_true(environ, "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"),
            uses_login_shell=_if_true(environ, "ENABLE_LOGIN_SHELL"),
            head_pod_name_is_fixed=_if_true(environ, "ENABLE_DETERMINISTIC_HEAD_POD_NAME"),
            uses_ingress_on_openshift=_if_true(environ, "USE_INGRESS_ON_OPENSHIFT"),
            cluster_domain=environ.get("CLUSTER_DOMAIN") or "cluster.local",
            max_pods=_integer(environ, "RAYBUS_MAX_PODS_PER_CLUSTER", default=10_000),
            max_groups=_integer(environ, "RAYBUS_MAX_GROUPS_PER_CLUSTER", default=1_000),
            max_hosts=_integer(environ, "RAYBUS_MAX_HOSTS_PER_REPLICA", default=2_560),
            requeue_seconds=_integer(environ, "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV", default=300),
        )


def _if_true(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() == "true"


def _unless_false(environ: Mapping[str, str], name: str) -> bool:
    return environ.get(name, "").lower() != "false"


def _integer(environ: Mapping[str, str], name: str, *, default: int) -> int:
    try:
        return int(environ.get(name, ""))
    except ValueError:
        return default
