"""The Secret that holds a cluster's token, when we make the token.

Behaviour: spec raycluster §8.3; acceptance cases 99-100.
"""

from typing import Final

from cluster_reconciler.resources import owner
from common import labels, names
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits

KEY: Final = "auth_token"
DISABLED: Final = "disabled"


def name(cluster: RayCluster) -> str:
    """Return the Secret's name: the user's own, or ours."""
    options = cluster.spec.auth_options
    return (options.secret_name if options else None) or names.checked(cluster.metadata.name)


def is_needed(cluster: RayCluster) -> bool:
    """Return whether we make a token; an empty mode makes one too, as in KubeRay, though no pod uses it."""
    options = cluster.spec.auth_options
    if options is None or options.mode == DISABLED:
        return False
    return not traits.has_kubernetes_auth(cluster) and not options.secret_name


def build(cluster: RayCluster, *, token: str) -> Body:
    """Build the Secret around a token, which the caller draws: base64 of 32 random bytes."""
    metadata = owner.metadata(cluster, name=name(cluster), labels={labels.CLUSTER: cluster.metadata.name})
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": {KEY: token}}
