"""What this service takes from its environment besides the settings that all services share; decisions get it as data (spec rayservice §1)."""

from collections.abc import Mapping

import msgspec

from common import feature_gates
from common.feature_gates import BETA, Gates


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """The operator's switches; the defaults are KubeRay's."""

    gates: Gates = BETA
    zero_downtime: bool = True
    """What an absent upgrade strategy means (`ENABLE_ZERO_DOWNTIME`)."""
    head_service_has_cluster_ip: bool = False
    writes_zero_values: bool = False
    """Whether the finalizer comes with the spec as KubeRay would write it back, which makes a new generation (§2.5)."""


def config_of(gates: Gates, environ: Mapping[str, str]) -> Config:
    """Return the operator's switches; their names are KubeRay's."""
    return Config(
        gates=gates,
        zero_downtime=feature_gates.is_on(environ, "ENABLE_ZERO_DOWNTIME", default=True),
        head_service_has_cluster_ip=feature_gates.is_on(
            environ, "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"
        ),
        writes_zero_values=feature_gates.is_on(environ, "RAYBUS_WRITE_ZERO_VALUES"),
    )
