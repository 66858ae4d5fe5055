"""Configure containers for Ray's token authentication: environment variables and a volume.

A container gets either the token in the cluster's Secret, or a Kubernetes token in a volume. Spec
raycluster §8.3, §11.14; spec rayjob §8.2, §8.3.
"""

from typing import Final

from common import pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.pod_json import literal
from common.ray import cluster_traits as traits

VOLUME: Final = "ray-token"
MOUNT_PATH: Final = "/var/run/secrets/ray.io/serviceaccount"
KEY: Final = "auth_token"
"""Key of the token in the Secret of a cluster."""


def configure_container(container: Body, cluster: RayCluster) -> None:
    """Add token authentication to a container, if it is on in the cluster."""
    if not traits.has_token_auth(cluster):
        return
    pod_json.add_missing_env(container, literal("RAY_AUTH_MODE", "token"))
    if not traits.has_kubernetes_auth(cluster):
        key = {"name": traits.token_secret(cluster), "key": KEY}
        pod_json.add_missing_env(
            container, {"name": "RAY_AUTH_TOKEN", "valueFrom": {"secretKeyRef": key}}
        )
        return
    pod_json.add_missing_env(container, literal("RAY_ENABLE_K8S_TOKEN_AUTH", "true"))
    if not pod_json.has_mount(container, name=VOLUME):
        mount = {"name": VOLUME, "mountPath": MOUNT_PATH, "readOnly": True}
        pod_json.ensure_list(container, "volumeMounts").append(mount)


def add_volume(pod: Body, cluster: RayCluster) -> None:
    """Add the volume with the Kubernetes token to a pod, if the cluster uses such tokens."""
    if traits.has_token_auth(cluster) and traits.has_kubernetes_auth(cluster):
        sources = [{"serviceAccountToken": {"path": "token"}}]
        pod_json.add_missing_volume(pod, {"name": VOLUME, "projected": {"sources": sources}})
