"""RayClusters for tests: cluster `c` in namespace `ns` with a head and one group `g` of three workers.

A row of a test states only what matters to it. Keywords are the spec's fields in snake case; values are plain JSON.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from common.api import ray_cluster
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster, WorkerGroupSpec

IMAGE = "rayproject/ray:2.52.0"


def a_container(name: str = "ray", **fields: Any) -> Json:
    """Build a container; `resources` and all else as in a manifest, keywords in snake case."""
    return {"name": name, "image": IMAGE, **_camel(fields)}


def a_template(
    *containers: Json,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    name: str | None = None,
    **spec: Any,
) -> Json:
    """Build a pod template, by default of one Ray container."""
    metadata = {"name": name, "labels": labels, "annotations": annotations}
    return {
        "metadata": {field: value for field, value in metadata.items() if value is not None},
        "spec": {"containers": list(containers) or [a_container()], **_camel(spec)},
    }


def a_head(*, template: Json | None = None, **fields: Any) -> Json:
    """Build a `headGroupSpec`."""
    return {
        "template": template if template is not None else a_template(a_container("ray-head")),
        **_camel(fields),
    }


def a_group(name: str = "g", *, template: Json | None = None, **fields: Any) -> Json:
    """Build one of `workerGroupSpecs`; a field given as None is left out."""
    defaults = {"replicas": 3, "min_replicas": 0, "max_replicas": 10, "num_of_hosts": 1}
    given = {field: value for field, value in {**defaults, **fields}.items() if value is not None}
    return {
        "groupName": name,
        "template": template if template is not None else a_template(a_container("ray-worker")),
        **_camel(given),
    }


def a_ray_cluster(
    name: str = "c",
    *,
    head: Json | None = None,
    groups: Sequence[Json] | None = None,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    status: Json | None = None,
    metadata: Json | None = None,
    **spec: Any,
) -> RayCluster:
    """Build a RayCluster as it is read; `metadata` adds to or replaces name, namespace, uid and generation."""
    default_metadata = {
        "name": name,
        "namespace": "ns",
        "uid": "uid-of-c",
        "generation": 1,
        "resourceVersion": "1",
    }
    return ray_cluster.decode(
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {
                **default_metadata,
                "labels": dict(labels or {}),
                "annotations": dict(annotations or {}),
                **(metadata or {}),
            },
            "spec": {
                "headGroupSpec": head if head is not None else a_head(),
                "workerGroupSpecs": list(groups) if groups is not None else [a_group()],
                **_camel(spec),
            },
            "status": status or {},
        }
    )


def first_group(cluster: RayCluster) -> WorkerGroupSpec:
    """Return the first worker group as read."""
    return (cluster.spec.worker_group_specs or [])[0]


def _camel(fields: Mapping[str, Any]) -> Json:
    return {_camel_name(field): value for field, value in fields.items()}


def _camel_name(field: str) -> str:
    first, *rest = field.split("_")
    return first + "".join(part.capitalize() for part in rest)
