"""The Secret with the token by which Ray's processes authenticate each other.

`common.ray.token_auth` adds the token to containers. Spec raycluster §8.3; acceptance cases 99-100.
"""

from cluster_reconciler.resources import owner
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import SECRET
from common.ray import cluster_traits as traits
from common.ray import token_auth


def build_secret(cluster: RayCluster, *, token: str) -> Body | None:
    """Return the Secret with `token`, which is base64 of 32 random bytes; None if not needed.

    An empty `authOptions.mode` needs a Secret too, as in KubeRay, though no pod uses it.
    """
    options = cluster.spec.auth_options
    if (
        options is None
        or options.mode == "disabled"
        or options.secret_name
        or traits.has_kubernetes_auth(cluster)
    ):
        return None
    return owner.build_child(
        cluster, SECRET, name=traits.token_secret(cluster), stringData={token_auth.KEY: token}
    )
