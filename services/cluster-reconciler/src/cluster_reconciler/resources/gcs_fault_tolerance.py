"""What GCS fault tolerance adds to pods: annotations, the store's address and credentials, or its volume.

Behaviour: spec raycluster §11.13; acceptance cases 35, 42, 105.
"""

from typing import Final

from cluster_reconciler.resources import gcs_storage_pvc
from common import labels, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import GcsFaultToleranceOptions, RayCluster, RedisCredential
from common.pod_json import literal
from common.ray import cluster_traits as traits

STORAGE_VOLUME: Final = "gcs-storage"
STORAGE_PATH: Final = "/data/gcs"
WORKER_RECONNECT_SECONDS: Final = "600"


def head_params(cluster: RayCluster) -> dict[str, str]:
    """Return the rayStartParams that refer to Redis' credentials in the environment."""
    options = cluster.spec.gcs_fault_tolerance_options
    if options is None or traits.has_embedded_storage(cluster):
        return {}
    params: dict[str, str] = {}
    if options.redis_username is not None:
        params["redis-username"] = "$REDIS_USERNAME"
    if options.redis_password is not None:
        params["redis-password"] = "$REDIS_PASSWORD"
    return params


def configure_head(pod: Body, cluster: RayCluster) -> None:
    """Annotate the head with its fault tolerance, and connect its GCS to its store."""
    annotations = pod_json.ensure_body(pod["metadata"], "annotations")
    annotations[labels.FT_ENABLED] = "true" if traits.is_fault_tolerant(cluster) else "false"
    if not traits.is_fault_tolerant(cluster):
        return
    if traits.has_embedded_storage(cluster):
        _mount_store(pod, cluster)
        return
    annotations[labels.EXTERNAL_STORAGE_NAMESPACE] = storage_namespace(cluster)
    container = pod_json.ray_container(pod)
    pod_json.add_missing_env(container, literal("RAY_external_storage_namespace", storage_namespace(cluster)))
    if (options := cluster.spec.gcs_fault_tolerance_options) is not None:
        pod_json.add_env(container, *_redis_env(options))
    elif (password := traits.start_params(cluster.spec.head_group_spec).get("redis-password")) is not None:
        pod_json.add_missing_env(container, literal("REDIS_PASSWORD", password))


def configure_worker(pod: Body, cluster: RayCluster) -> None:
    """Let a worker wait long enough for the next head."""
    if traits.is_fault_tolerant(cluster):
        timeout = literal("RAY_gcs_rpc_server_reconnect_timeout_s", WORKER_RECONNECT_SECONDS)
        pod_json.add_missing_env(pod_json.ray_container(pod), timeout)


def storage_namespace(cluster: RayCluster) -> str:
    """Return the prefix of the cluster's keys in Redis."""
    options = cluster.spec.gcs_fault_tolerance_options
    if options is not None and options.external_storage_namespace:
        return options.external_storage_namespace
    return cluster.metadata.annotations.get(labels.EXTERNAL_STORAGE_NAMESPACE, cluster.metadata.uid)


def _redis_env(options: GcsFaultToleranceOptions) -> list[Body]:
    envs = [literal("RAY_REDIS_ADDRESS", options.redis_address)]
    if options.redis_username is not None:
        envs.append(_credential("REDIS_USERNAME", options.redis_username))
    if options.redis_password is not None:
        envs.append(_credential("REDIS_PASSWORD", options.redis_password))
    return envs


def _credential(name: str, credential: RedisCredential) -> Body:
    env: Body = {"name": name}
    if credential.value:
        env["value"] = credential.value
    if credential.value_from is not None:
        env["valueFrom"] = credential.value_from
    return env


def _mount_store(pod: Body, cluster: RayCluster) -> None:
    container = pod_json.ray_container(pod)
    pod_json.add_missing_env(
        container, literal("RAY_gcs_storage", "rocksdb"), literal("RAY_gcs_storage_path", STORAGE_PATH)
    )
    mount: Body = {"name": STORAGE_VOLUME, "mountPath": STORAGE_PATH}
    if sub_path := gcs_storage_pvc.options(cluster).sub_path:
        mount["subPath"] = sub_path
    pod_json.ensure_list(container, "volumeMounts").append(mount)
    claim = {"claimName": gcs_storage_pvc.name(cluster)}
    pod_json.ensure_list(pod["spec"], "volumes").append({"name": STORAGE_VOLUME, "persistentVolumeClaim": claim})
