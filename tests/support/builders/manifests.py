"""Manifests as users write them, for a real API server."""

from typing import Any


def a_ray_cluster(
    name: str = "demo", *, service: str | None = None, ballast: str = ""
) -> dict[str, Any]:
    """Return a RayCluster that our CRD takes; `ballast` makes it as large as you like."""
    origin = (
        {"ray.io/originated-from-cr-name": service, "ray.io/originated-from-crd": "RayService"}
        if service
        else {}
    )
    container: dict[str, Any] = {"name": "ray-head", "image": "example.org/ray:1"}
    if ballast:
        container["env"] = [{"name": "BALLAST", "value": ballast}]
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "labels": origin},
        "spec": {
            "headGroupSpec": {
                "rayStartParams": {},
                "template": {"spec": {"containers": [container]}},
            }
        },
    }


def a_pod(name: str = "demo-head", *, cluster: str = "demo") -> dict[str, Any]:
    """Return a pod that belongs to a cluster by its labels."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"ray.io/cluster": cluster, "ray.io/node-type": "worker"},
        },
        "spec": {
            "containers": [{"name": "ray", "image": "example.org/ray:1"}],
            "nodeName": "nowhere",
        },
    }
