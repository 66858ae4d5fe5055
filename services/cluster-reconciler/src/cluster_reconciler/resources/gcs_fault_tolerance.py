"""GCS fault tolerance of a head: annotations, Redis access or a volume, and its claim.

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


def head_params(cluster: RayCluster) -> dict[str, str]:
    """Return the rayStartParams that refer to Redis credentials in the environment."""
    options = cluster.spec.gcs_fault_tolerance_options
    if options is None or traits.has_embedded_storage(cluster):
        return {}
    return {name.lower().replace("_", "-"): f"${name}" for name in _credentials(options)}


def _credentials(options: GcsFaultToleranceOptions) -> dict[str, RedisCredential]:
    """Return the Redis user name and password that the user set, by environment variable."""
    given = {"REDIS_USERNAME": options.redis_username, "REDIS_PASSWORD": options.redis_password}
    return {name: credential for name, credential in given.items() if credential is not None}


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
            "persistentVolumeClaim": {"claimName": claim_name(cluster)},
        }
        pod_json.ensure_list(pod["spec"], "volumes").append(volume)
        return
    options, namespace = cluster.spec.gcs_fault_tolerance_options, storage_namespace(cluster)
    annotations[labels.EXTERNAL_STORAGE_NAMESPACE] = namespace
    pod_json.add_missing_env(container, literal("RAY_external_storage_namespace", namespace))
    if options is not None:
        pod_json.add_env(container, literal("RAY_REDIS_ADDRESS", options.redis_address))
        for name, credential in _credentials(options).items():
            value: Body = {"value": credential.value} if credential.value else {}
            source: Body = (
                {} if credential.value_from is None else {"valueFrom": credential.value_from}
            )
            pod_json.add_env(container, {"name": name, **value, **source})
    elif (
        password := traits.start_params(cluster.spec.head_group_spec).get("redis-password")
    ) is not None:
        pod_json.add_missing_env(container, literal("REDIS_PASSWORD", password))


def storage_namespace(cluster: RayCluster) -> str:
    """Return the storage namespace in Redis, with which the cluster's keys begin after `RAY`.

    The spec need not be valid. A deleted cluster has the namespace in an annotation.
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


def claim_name(cluster: RayCluster) -> str:
    """Return the name of the volume claim: the user's own, else raybus's."""
    return traits.embedded_storage(cluster).claim_name or f"{cluster.metadata.name}-gcs-pvc"


def build_claim(cluster: RayCluster) -> Body:
    """Build the volume claim; with policy Retain it has no owner and outlives the cluster."""
    wanted = traits.embedded_storage(cluster)
    spec: Body = {
        "accessModes": list(wanted.access_modes or DEFAULT_ACCESS_MODES),
        "resources": {
            "requests": {"storage": DEFAULT_SIZE if wanted.size is None else wanted.size}
        },
    }
    if wanted.storage_class_name is not None:
        spec["storageClassName"] = wanted.storage_class_name
    claim = owner.child(cluster, PERSISTENT_VOLUME_CLAIM, name=claim_name(cluster), spec=spec)
    if wanted.deletion_policy == "Retain":
        del claim["metadata"]["ownerReferences"]
    return claim


def claim_drift(cluster: RayCluster, have: Body) -> str:
    """Return the differences between an existing claim, which is immutable, and the options."""
    wanted, spec, found = build_claim(cluster)["spec"], pod_json.body(have, "spec"), list[str]()
    requests = (
        pod_json.mapping(pod_json.body(each, "resources"), "requests") for each in (wanted, spec)
    )
    size, current = (quantity.parse(each.get("storage", "0")) for each in requests)
    if size.compare(current) != 0:
        found.append(f"requested size {size} != current {current}")
    # An empty storageClassName means "no class", which is not the default class.
    has_class = spec.get("storageClassName", "<default>")
    if (storage_class := wanted.get("storageClassName")) not in {None, has_class}:
        found.append(f"storageClassName {storage_class} != current {has_class}")
    modes, has_modes = (pod_json.strings(each, "accessModes") for each in (wanted, spec))
    if sorted(modes) != sorted(has_modes):
        found.append(f"accessModes [{' '.join(modes)}] != current [{' '.join(has_modes)}]")
    return "; ".join(found)


def realigned_claim(cluster: RayCluster, have: Body) -> Body | None:
    """Return the claim with the owner that the deletion policy requires; None if it is right."""
    outlives = traits.embedded_storage(cluster).deletion_policy == "Retain"
    if owner.controls(cluster, have) is not outlives:
        return None
    known = pod_json.bodies(have["metadata"], "ownerReferences")
    others = [each for each in known if each.get("uid") != cluster.metadata.uid]
    references = others if outlives else others + owner.references(cluster)
    return {**have, "metadata": {**have["metadata"], "ownerReferences": references}}
