"""Build RayJobs for tests: valid by default, each field can be replaced."""

from collections.abc import Mapping
from typing import Any

from common.api import ray_job
from common.api.opaque import Json
from common.api.ray_job import RayJob
from support.builders.ray_cluster import a_group, a_head


def a_cluster_spec(**fields: Any) -> Json:
    """Build a `rayClusterSpec`; fields are named as in a manifest."""
    return {"headGroupSpec": a_head(), "workerGroupSpecs": [a_group()], **fields}


def a_ray_job(
    name: str = "train",
    *,
    annotations: Mapping[str, str] | None = None,
    status: Json | None = None,
    **spec: Any,
) -> RayJob:
    """Build a RayJob as it is read; fields are named as in a manifest, None leaves one out."""
    fields = {"entrypoint": "python main.py", "rayClusterSpec": a_cluster_spec(), **spec}
    return ray_job.decode(
        {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {
                "name": name,
                "namespace": "ns",
                "uid": "uid-of-train",
                "annotations": dict(annotations or {}),
            },
            "spec": {field: value for field, value in fields.items() if value is not None},
            "status": status or {},
        }
    )
