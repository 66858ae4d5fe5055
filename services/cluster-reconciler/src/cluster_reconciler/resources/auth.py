"""What token authentication adds to a container: the mode and the token, or Kubernetes' own token in a volume.

Behaviour: spec raycluster §11.14; acceptance cases 99-100.
"""

from typing import Final

from cluster_reconciler.resources import auth_secret
from common import pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.pod_json import literal
from common.ray import cluster_traits as traits

VOLUME: Final = "ray-token"
MOUNT_PATH: Final = "/var/run/secrets/ray.io/serviceaccount"


def configure_container(container: Body, cluster: RayCluster) -> None:
    """Let a container's Ray processes authenticate, where the cluster asks for it."""
    if not traits.has_token_auth(cluster):
        return
    pod_json.add_missing_env(container, literal("RAY_AUTH_MODE", "token"))
    if not traits.has_kubernetes_auth(cluster):
        key = {"name": auth_secret.name(cluster), "key": auth_secret.KEY}
        pod_json.add_missing_env(container, {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": key}})
        return
    pod_json.add_missing_env(container, literal("RAY_ENABLE_K8S_TOKEN_AUTH", "true"))
    if not pod_json.has_mount(container, name=VOLUME):
        mount = {"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": True}
        pod_json.ensure_list(container, "volumeMounts").append(mount)


def configure_pod(pod: Body, cluster: RayCluster, *, init_container: str) -> None:
    """Let the Ray container and one init container authenticate; the user's other containers do not change."""
    if not traits.has_token_auth(cluster):
        return
    configure_container(pod_json.ray_container(pod), cluster)
    if traits.has_kubernetes_auth(cluster):
        sources = [{"serviceAccountToken": {"path": "token"}}]
        pod_json.add_missing_volume(pod, {"name": VOLUME, "projected": {"sources": sources}})
    for container in pod_json.bodies(pod["spec"], "initContainers"):
        if container["name"] == init_container:
            configure_container(container, cluster)
