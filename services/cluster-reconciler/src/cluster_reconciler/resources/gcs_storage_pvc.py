"""The volume claim of an embedded GCS store.

Behaviour: spec raycluster §8.7, §12.6; acceptance cases 35, 39-41.
"""

from typing import Final

from cluster_reconciler.resources import owner
from common import labels
from common.api.opaque import Body
from common.api.ray_cluster import GcsEmbeddedStorage, RayCluster

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
    """Build our claim; it outlives the cluster when the policy says Retain."""
    wanted = options(cluster)
    metadata = owner.metadata(cluster, name=name(cluster), labels={labels.CLUSTER: cluster.metadata.name})
    if wanted.deletion_policy == "Retain":
        del metadata["ownerReferences"]
    spec: Body = {
        "accessModes": list(wanted.access_modes or DEFAULT_ACCESS_MODES),
        "resources": {"requests": {"storage": DEFAULT_SIZE if wanted.size is None else wanted.size}},
    }
    if wanted.storage_class_name is not None:
        spec["storageClassName"] = wanted.storage_class_name
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec}
