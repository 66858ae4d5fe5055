"""Settings that only service-reconciler reads from its environment (spec rayservice §1)."""

from collections.abc import Mapping

import msgspec

from common import feature_gates
from common.feature_gates import BETA, Gates


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of service-reconciler; the defaults are KubeRay's."""

    gates: Gates = BETA
    zero_downtime: bool = True
    """Whether an absent upgrade strategy means `NewCluster` (`ENABLE_ZERO_DOWNTIME`).

    Otherwise, it means the strategy that is called `None`.
    """
    head_service_has_cluster_ip: bool = False
    writes_zero_values: bool = False
    """Whether raybus writes Go's zero values into the spec when it adds its finalizer.

    That creates a new generation of the RayService, as KubeRay does (§2.5).
    """


def config_of(gates: Gates, environ: Mapping[str, str]) -> Config:
    """Return the settings from environment variables, which have KubeRay's names."""
    return Config(
        gates=gates,
        zero_downtime=feature_gates.is_on(environ, "ENABLE_ZERO_DOWNTIME", default=True),
        head_service_has_cluster_ip=feature_gates.is_on(
            environ, "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"
        ),
        writes_zero_values=feature_gates.is_on(environ, "RAYBUS_WRITE_ZERO_VALUES"),
    )
