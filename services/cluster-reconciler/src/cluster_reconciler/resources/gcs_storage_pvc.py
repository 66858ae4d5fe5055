"""The volume claim of an embedded GCS store.

Behaviour: spec raycluster §8.7, §12.6; acceptance cases 35, 39-41.
"""

from typing import Final

from cluster_reconciler.resources import owner
from common import labels, pod_json, quantity
from common.api.opaque import Body
from common.api.ray_cluster import GcsEmbeddedStorage, RayCluster
from common.kube.resources import PERSISTENT_VOLUME_CLAIM

DEFAULT_SIZE: Final = "1Gi"
DEFAULT_ACCESS_MODES: Final = ("ReadWriteOnce",)


def options(cluster: RayCluster) -> GcsEmbeddedStorage:
    """Return what the user asked of the volume; all defaults when nothing was."""
    tolerance = cluster.spec.gcs_fault_tolerance_options
    return (tolerance.storage if tolerance else None) or GcsEmbeddedStorage()


def name(cluster: RayCluster) -> str:
    """Return the claim's name: the user's own claim, or ours."""
    return options(cluster).claim_name or f"{cluster.metadata.name}-gcs-pvc"


def build(cluster: RayCluster) -> Body:
    """Build our claim; it outlives the cluster under the policy Retain."""
    wanted = options(cluster)
    spec: Body = {
        "accessModes": list(wanted.access_modes or DEFAULT_ACCESS_MODES),
        "resources": {"requests": {"storage": DEFAULT_SIZE if wanted.size is None else wanted.size}},
    }
    if wanted.storage_class_name is not None:
        spec["storageClassName"] = wanted.storage_class_name
    own = {labels.CLUSTER: cluster.metadata.name}
    claim = owner.child(cluster, PERSISTENT_VOLUME_CLAIM, name=name(cluster), labels=own, spec=spec)
    if wanted.deletion_policy == "Retain":
        del claim["metadata"]["ownerReferences"]
    return claim


def drift(cluster: RayCluster, have: Body) -> str:
    """Return the differences between a claim as read and the user's options; a claim cannot be changed."""
    wanted, spec = options(cluster), pod_json.body(have, "spec")
    found: list[str] = []
    size = quantity.parse(DEFAULT_SIZE if wanted.size is None else wanted.size)
    current = quantity.parse(pod_json.mapping(pod_json.body(spec, "resources"), "requests").get("storage", "0"))
    if size.compare(current) != 0:
        found.append(f"requested size {size} != current {current}")
    has_class = pod_json.text(spec, "storageClassName") or "<default>"
    if wanted.storage_class_name is not None and wanted.storage_class_name != has_class:
        found.append(f"storageClassName {wanted.storage_class_name} != current {has_class}")
    modes, has_modes = list(wanted.access_modes or DEFAULT_ACCESS_MODES), pod_json.strings(spec, "accessModes")
    if sorted(modes) != sorted(has_modes):
        found.append(f"accessModes [{' '.join(modes)}] != current [{' '.join(has_modes)}]")
    return "; ".join(found)


def realigned(cluster: RayCluster, have: Body) -> Body | None:
    """Return a claim as read, with the owner that the deletion policy asks for; None when it has it."""
    is_ours, outlives = owner.controls(cluster, have), options(cluster).deletion_policy == "Retain"
    if is_ours is not outlives:
        return None
    references = [
        each for each in pod_json.bodies(have["metadata"], "ownerReferences") if each.get("uid") != cluster.metadata.uid
    ]
    if not outlives:
        references.append(owner.reference(cluster))
    return {**have, "metadata": {**have["metadata"], "ownerReferences": references}}
