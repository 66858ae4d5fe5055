"""GCS fault tolerance of a head: annotations, access to Redis or a volume, and the volume claim.

Spec raycluster §8.7, §11.13, §12.6; acceptance cases 35, 39-42, 105.
"""

from typing import Final, cast

from cluster_reconciler.resources import owner
from common import labels, pod_json, quantity
from common.api.opaque import Body
from common.api.ray_cluster import GcsFaultToleranceOptions, RayCluster, RedisCredential
from common.kube.resources import PERSISTENT_VOLUME_CLAIM
from common.pod_json import literal
from common.ray import cluster_traits as traits

STORAGE_VOLUME: Final = "gcs-storage"
STORAGE_PATH: Final = "/data/gcs"
DEFAULT_SIZE: Final = "1Gi"
DEFAULT_ACCESS_MODES: Final = ("ReadWriteOnce",)


def build_head_params(cluster: RayCluster) -> dict[str, str]:
    """Return the rayStartParams that refer to Redis credentials in the environment."""
    options = cluster.spec.gcs_fault_tolerance_options
    if options is None or traits.has_embedded_storage(cluster):
        return {}
    return {name.lower().replace("_", "-"): f"${name}" for name in _read_credentials(options)}


def _read_credentials(options: GcsFaultToleranceOptions) -> dict[str, RedisCredential]:
    """Return the Redis user name and password that the user set, by environment variable."""
    variables = {"REDIS_USERNAME": options.redis_username, "REDIS_PASSWORD": options.redis_password}
    return {name: credential for name, credential in variables.items() if credential is not None}


def configure_head(pod: Body, cluster: RayCluster) -> None:
    """Annotate the head with its fault tolerance, and connect its GCS to Redis or the volume."""
    annotations = pod_json.ensure_body(pod["metadata"], "annotations")
    annotations[labels.FT_ENABLED] = "true" if traits.is_fault_tolerant(cluster) else "false"
    if not traits.is_fault_tolerant(cluster):
        return
    container = pod_json.ray_container(pod)
    if traits.has_embedded_storage(cluster):
        gcs = literal("RAY_gcs_storage", "rocksdb"), literal("RAY_gcs_storage_path", STORAGE_PATH)
        pod_json.add_missing_env(container, *gcs)
        sub_path = traits.embedded_storage(cluster).sub_path
        mount = {"name": STORAGE_VOLUME, "mountPath": STORAGE_PATH} | (
            {"subPath": sub_path} if sub_path else {}
        )
        pod_json.ensure_list(container, "volumeMounts").append(mount)
        volume = {
            "name": STORAGE_VOLUME,
            "persistentVolumeClaim": {"claimName": get_claim_name(cluster)},
        }
        pod_json.ensure_list(pod["spec"], "volumes").append(volume)
        return
    options, namespace = cluster.spec.gcs_fault_tolerance_options, get_storage_namespace(cluster)
    annotations[labels.EXTERNAL_STORAGE_NAMESPACE] = namespace
    pod_json.add_missing_env(container, literal("RAY_external_storage_namespace", namespace))
    if options is not None:
        pod_json.add_env(container, literal("RAY_REDIS_ADDRESS", options.redis_address))
        for name, credential in _read_credentials(options).items():
            value: Body = {"value": credential.value} if credential.value else {}
            source: Body = (
                {} if credential.value_from is None else {"valueFrom": credential.value_from}
            )
            pod_json.add_env(container, {"name": name, **value, **source})
    elif (
        password := traits.start_params(cluster.spec.head_group_spec).get("redis-password")
    ) is not None:
        pod_json.add_missing_env(container, literal("REDIS_PASSWORD", password))


def get_storage_namespace(cluster: RayCluster) -> str:
    """Return the storage namespace: the cluster's keys in Redis begin with `RAY` and this name.

    The spec need not be valid. For a deleted cluster, an annotation with the namespace takes
    precedence.
    """
    annotations, options = (
        cluster.metadata.annotations,
        cluster.raw_spec.get("gcsFaultToleranceOptions"),
    )
    if cluster.metadata.deletion_timestamp is not None and (
        recorded := annotations.get(labels.REDIS_STORAGE_NAMESPACE)
    ):
        return recorded
    own = (
        cast("Body", options).get("externalStorageNamespace") if isinstance(options, dict) else None
    )
    return (own if isinstance(own, str) else "") or annotations.get(
        labels.EXTERNAL_STORAGE_NAMESPACE, cluster.metadata.uid
    )


def get_claim_name(cluster: RayCluster) -> str:
    """Return the name of the volume claim: the name in the spec, else raybus's default name."""
    return traits.embedded_storage(cluster).claim_name or f"{cluster.metadata.name}-gcs-pvc"


def build_claim(cluster: RayCluster) -> Body:
    """Return the volume claim; with policy Retain it has no owner and outlives the cluster."""
    storage = traits.embedded_storage(cluster)
    spec: Body = {
        "accessModes": list(storage.access_modes or DEFAULT_ACCESS_MODES),
        "resources": {
            "requests": {"storage": DEFAULT_SIZE if storage.size is None else storage.size}
        },
    }
    if storage.storage_class_name is not None:
        spec["storageClassName"] = storage.storage_class_name
    claim = owner.build_child(
        cluster, PERSISTENT_VOLUME_CLAIM, name=get_claim_name(cluster), spec=spec
    )
    if storage.deletion_policy == "Retain":
        del claim["metadata"]["ownerReferences"]
    return claim


def find_claim_drift(cluster: RayCluster, have: Body) -> str:
    """Return how an existing volume claim differs from the cluster's spec; empty if equal."""
    expected, spec, differences = (
        build_claim(cluster)["spec"],
        pod_json.body(have, "spec"),
        list[str](),
    )
    requests = (
        pod_json.mapping(pod_json.body(claim_spec, "resources"), "requests")
        for claim_spec in (expected, spec)
    )
    size, current = (quantity.parse(amounts.get("storage", "0")) for amounts in requests)
    if size.compare(current) != 0:
        differences.append(f"requested size {size} != current {current}")
    # An empty storageClassName means "no class", which is not the default class.
    has_class = spec.get("storageClassName", "<default>")
    if (storage_class := expected.get("storageClassName")) not in {None, has_class}:
        differences.append(f"storageClassName {storage_class} != current {has_class}")
    modes, has_modes = (
        pod_json.strings(claim_spec, "accessModes") for claim_spec in (expected, spec)
    )
    if sorted(modes) != sorted(has_modes):
        differences.append(f"accessModes [{' '.join(modes)}] != current [{' '.join(has_modes)}]")
    return "; ".join(differences)


def realign_claim(cluster: RayCluster, have: Body) -> Body | None:
    """Return the claim with the owner that the deletion policy requires; None if unchanged."""
    outlives = traits.embedded_storage(cluster).deletion_policy == "Retain"
    if owner.controls(cluster, have) is not outlives:
        return None
    current_references = pod_json.bodies(have["metadata"], "ownerReferences")
    foreign_references = [
        reference
        for reference in current_references
        if reference.get("uid") != cluster.metadata.uid
    ]
    references = (
        foreign_references if outlives else foreign_references + owner.build_references(cluster)
    )
    return {**have, "metadata": {**have["metadata"], "ownerReferences": references}}
