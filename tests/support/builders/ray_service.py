"""RayServices for tests: `demo` in namespace `default`, one worker group, one Serve application."""

from typing import Any

from common.api.opaque import Json

NAME = "demo"
NAMESPACE = "default"


def a_serve_config(*, import_path: str = "app:main", name: str = "app", message: str = "v1") -> str:
    """Return YAML as users write it."""
    return (
        f"applications:\n- name: {name}\n  import_path: {import_path}\n  route_prefix: /\n"
        f"  runtime_env:\n    env_vars: {{MESSAGE: {message}}}\n"
    )


def a_group(name: str = "small", **fields: Any) -> Json:
    """Return a worker group."""
    container = {"name": "ray-worker", "image": "rayproject/ray:2.52.0"}
    return {
        "groupName": name,
        "replicas": 1,
        "minReplicas": 1,
        "maxReplicas": 5,
        "numOfHosts": 1,
        "priority": 0,
        "rayStartParams": {},
        "template": {"spec": {"containers": [container]}},
        **fields,
    }


def a_cluster_config(*groups: Json, image: str = "rayproject/ray:2.52.0", **fields: Any) -> Json:
    """Return a `rayClusterConfig`."""
    container = {"name": "ray-head", "image": image}
    return {
        "rayVersion": "2.52.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container]}}},
        "workerGroupSpecs": list(groups) or [a_group()],
        **fields,
    }


def a_strategy(
    *, surge: int | None = 20, step: int = 5, interval: int = 10, gateway_class: str = "fast"
) -> Json:
    """Return an upgrade strategy with traffic in steps, `interval` seconds apart."""
    options: Json = {
        "stepSizePercent": step,
        "intervalSeconds": interval,
        "gatewayClassName": gateway_class,
    }
    if surge is not None:
        options["maxSurgePercent"] = surge
    return {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options}


def a_ray_service(
    *,
    name: str = NAME,
    config: Json | None = None,
    serve: str | None = None,
    annotations: dict[str, str] | None = None,
    **spec: Any,
) -> Json:
    """Return a RayService as a user applies it; further keywords are fields of the spec."""
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": annotations or {},
            "labels": {"team": "a"},
        },
        "spec": {
            "serveConfigV2": a_serve_config() if serve is None else serve,
            "rayClusterConfig": config or a_cluster_config(),
            **spec,
        },
    }
