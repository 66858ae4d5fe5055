"""Marks on pods that are the same for several batch schedulers."""

from typing import Final

from common import pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster

GANG: Final = "ray.io/gang-scheduling-enabled"
"""A label of the RayCluster: all its pods are placed together, or none."""


def copy_label(cluster: RayCluster, pod: Body, label: str, *, into: str | None = None) -> None:
    """Copy a label of the cluster to a pod, unless it is empty."""
    value = cluster.metadata.labels.get(label, "")
    if value:
        pod_json.ensure_body(pod["metadata"], "labels")[into or label] = value


def annotate(pod: Body, annotations: dict[str, str]) -> None:
    """Set annotations of a pod."""
    pod_json.ensure_body(pod["metadata"], "annotations").update(annotations)
