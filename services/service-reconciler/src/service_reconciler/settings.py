"""What this service takes from its environment besides the settings that all services share (spec rayservice §1)."""

from collections.abc import Mapping

from common.settings import Settings
from service_reconciler.config import Config


def config_of(settings: Settings, environ: Mapping[str, str]) -> Config:
    """Return the operator's switches; their names are KubeRay's."""
    return Config(
        gates=settings.feature_gates,
        zero_downtime=environ.get("ENABLE_ZERO_DOWNTIME", "").lower() != "false",
        head_service_has_cluster_ip=environ.get("ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE", "").lower() == "true",
        writes_zero_values=environ.get("RAYBUS_WRITE_ZERO_VALUES", "").lower() == "true",
    )
