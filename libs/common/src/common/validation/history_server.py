"""Rules on the history server's collector (spec raycluster §4.2, S32-S36, and §4.2.2)."""

from typing import Final

from common import pod_json
from common.api.opaque import Body
from common.api.ray_cluster import CollectorOptions, RayCluster
from common.feature_gates import Gate, Gates
from common.ray import cluster_traits as traits
from common.validation.rules import Rule

CONTAINER: Final = "ray-history-collector"
_FIELD: Final = "historyServerOptions.collectorOptions"
_MANAGED: Final = (
    "POD_IP",
    "FQ_RAY_IP",
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_ROLE",
    "OWNER_KIND",
    "OWNER_NAME",
    "EVENTS_PORT",
)
_REQUIRED: Final = {
    "GCS": ("GCS_BUCKET",),
    "S3": ("S3_REGION",),
    "ALIYUNOSS": ("OSS_BUCKET", "OSS_ENDPOINT", "OSS_REGION"),
}
"""Backend to the variables that it cannot do without."""


def gate_off(cluster: RayCluster, gates: Gates) -> str | None:
    """S32."""
    if cluster.spec.history_server_options is None or Gate.HISTORY_SERVER in gates:
        return None
    return "RayClusterHistoryServer feature gate is not enabled"


def no_collector(cluster: RayCluster, _: Gates) -> str | None:
    """S33."""
    options = cluster.spec.history_server_options
    if options is None or options.collector_options is not None:
        return None
    return f"{_FIELD} must be set"


def collector(cluster: RayCluster, _: Gates) -> str | None:
    """S34, §4.2.2."""
    options = _collector(cluster)
    if options is None:
        return None
    if not options.image:
        return f"{_FIELD}.image must be set"
    env: dict[str, Body] = {pod_json.text(entry, "name"): entry for entry in options.env or []}
    return _managed_env(env) or _backend(env)


def head_container_of_that_name(cluster: RayCluster, _: Gates) -> str | None:
    """S35."""
    if _collector(cluster) is None or not _has_collector(cluster.spec.head_group_spec.template):
        return None
    return f"head pod template must not define a container with name '{CONTAINER}' {_WHEN}"


def worker_container_of_that_name(cluster: RayCluster, _: Gates) -> str | None:
    """S36."""
    if _collector(cluster) is None:
        return None
    wrong = next((g.group_name for g in traits.worker_groups(cluster) if _has_collector(g.template)), None)
    if wrong is None:
        return None
    return f"worker group {wrong} pod template must not define a container with name '{CONTAINER}' {_WHEN}"


_WHEN: Final = "when history server collector options are enabled"


def _collector(cluster: RayCluster) -> CollectorOptions | None:
    options = cluster.spec.history_server_options
    return options.collector_options if options else None


def _has_collector(template: Body) -> bool:
    return any(container.get("name") == CONTAINER for container in pod_json.containers(template))


def _managed_env(env: dict[str, Body]) -> str | None:
    wrong = next((name for name in _MANAGED if name in env), None)
    if wrong is None:
        return None
    return (
        f"{_FIELD}.env must not contain {wrong}: "
        "it is managed by KubeRay and injected automatically into the collector container"
    )


def _backend(env: dict[str, Body]) -> str | None:
    backend = pod_json.text(env.get("STORAGE_BACKEND", {}), "value").upper()
    if not backend:
        return f"STORAGE_BACKEND environment variable must be set with a literal string value in {_FIELD}.env"
    if backend == "AZUREBLOB":
        return _azure(env)
    missing = next((name for name in _REQUIRED.get(backend, ()) if not _is_given(env, name)), None)
    return f"{missing} environment variable must be set when STORAGE_BACKEND is {backend}" if missing else None


def _azure(env: dict[str, Body]) -> str | None:
    mode = pod_json.text(env.get("AZURE_STORAGE_AUTH_MODE", {}), "value").strip().lower()
    connection, account = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_URL"
    when = "environment variable must be set when STORAGE_BACKEND is AZUREBLOB"
    if mode in {"connection_string", "workload_identity", "default"}:
        needed = connection if mode == "connection_string" else account
        return None if _is_given(env, needed) else f"{needed} {when} and AZURE_STORAGE_AUTH_MODE is {mode}"
    if _is_given(env, connection) or _is_given(env, account):
        return None
    return f"either {connection} or {account} {when}"


def _is_given(env: dict[str, Body], name: str) -> bool:
    entry = env.get(name, {})
    return bool(entry.get("value") or entry.get("valueFrom"))


RULES: Final[tuple[Rule, ...]] = (
    gate_off,
    no_collector,
    collector,
    head_container_of_that_name,
    worker_container_of_that_name,
)
