"""Rules on token authentication (spec raycluster §4.2, S37-S42)."""

from typing import Final

from common.api.ray_cluster import RayCluster
from common.feature_gates import Gates
from common.ray import cluster_traits as traits
from common.validation.rules import Rule, old_ray

_TOKEN_SINCE: Final = (2, 52)
_KUBERNETES_SINCE: Final = (2, 55)


def token_with_old_ray(cluster: RayCluster, _: Gates) -> str | None:
    """S37-S39."""
    if not traits.has_token_auth(cluster):
        return None
    return old_ray(cluster, _TOKEN_SINCE, "authOptions.mode is 'token' but")


def kubernetes_token_with_old_ray(cluster: RayCluster, _: Gates) -> str | None:
    """S40."""
    version = cluster.spec.ray_version
    if not _both(cluster) or traits.is_version_at_least(version, _KUBERNETES_SINCE):
        return None
    return f"authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, got {version}"


def kubernetes_token_and_secret(cluster: RayCluster, _: Gates) -> str | None:
    """S41."""
    options = cluster.spec.auth_options
    if not _both(cluster) or options is None or not options.secret_name:
        return None
    return "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set"


def kubernetes_token_without_mode(cluster: RayCluster, _: Gates) -> str | None:
    """S42."""
    if traits.has_token_auth(cluster) or not traits.has_kubernetes_auth(cluster):
        return None
    return "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'"


def _both(cluster: RayCluster) -> bool:
    return traits.has_token_auth(cluster) and traits.has_kubernetes_auth(cluster)


RULES: Final[tuple[Rule, ...]] = (
    token_with_old_ray,
    kubernetes_token_with_old_ray,
    kubernetes_token_and_secret,
    kubernetes_token_without_mode,
)
