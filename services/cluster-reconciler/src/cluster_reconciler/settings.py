"""This service's own configuration, read beside the settings that all services share."""

from collections.abc import Mapping

import msgspec

from cluster_reconciler.config import Config
from common.runtime.settings import Settings


def configure(settings: Settings, environ: Mapping[str, str]) -> Config:
    """Return the operator's configuration: KubeRay's own switches, and the gates and domain of our settings."""
    config = Config.from_environment(environ, settings.feature_gates)
    if "RAYBUS_CLUSTER_DOMAIN" in environ:
        return msgspec.structs.replace(config, cluster_domain=settings.cluster_domain)
    return config
