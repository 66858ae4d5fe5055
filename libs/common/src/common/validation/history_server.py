"""Rules on the history server's collector (spec raycluster §4.2, S32-S36, and §4.2.2)."""

from collections.abc import Iterator
from typing import Final

from common import pod_json
from common.api.opaque import Body
from common.api.ray_cluster import CollectorOptions, RayCluster
from common.feature_gates import Gate, Gates
from common.ray import cluster_traits as traits

CONTAINER: Final = "ray-history-collector"
_FIELD: Final = "historyServerOptions.collectorOptions"
_MANAGED: Final = (
    *("POD_IP", "FQ_RAY_IP", "RAY_CLUSTER_NAME", "RAY_CLUSTER_NAMESPACE"),
    *("RAY_ROLE", "OWNER_KIND", "OWNER_NAME", "EVENTS_PORT"),
)
_REQUIRED: Final = {
    "GCS": ("GCS_BUCKET",),
    "S3": ("S3_REGION",),
    "ALIYUNOSS": ("OSS_BUCKET", "OSS_ENDPOINT", "OSS_REGION"),
}
"""Backend to the variables that it cannot do without."""


def problems(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield what is wrong with the options, and containers that bear the collector's name."""
    options = cluster.spec.history_server_options
    if options is None:
        return
    if Gate.HISTORY_SERVER not in gates:  # S32
        yield "RayClusterHistoryServer feature gate is not enabled"
    if options.collector_options is None:  # S33
        yield f"{_FIELD} must be set"
        return
    yield from _of_collector(options.collector_options)  # S34
    pods = [("head", cluster.spec.head_group_spec.template)]  # S35-S36
    pods += [(f"worker group {group.group_name}", group.template) for group in traits.worker_groups(cluster)]
    for pod, template in pods:
        if any(container.get("name") == CONTAINER for container in pod_json.containers(template)):
            yield (
                f"{pod} pod template must not define a container with name '{CONTAINER}' "
                "when history server collector options are enabled"
            )


def _of_collector(options: CollectorOptions) -> Iterator[str]:
    """Yield what is wrong with the collector's image and environment, §4.2.2."""
    if not options.image:
        yield f"{_FIELD}.image must be set"
    env: dict[str, Body] = {pod_json.text(entry, "name"): entry for entry in options.env or []}
    given = {name for name, entry in env.items() if entry.get("value") or entry.get("valueFrom")}
    for name in _MANAGED:
        if name in env:
            yield (
                f"{_FIELD}.env must not contain {name}: "
                "it is managed by KubeRay and injected automatically into the collector container"
            )
    backend = pod_json.text(env.get("STORAGE_BACKEND", {}), "value").upper()
    if not backend:
        yield f"STORAGE_BACKEND environment variable must be set with a literal string value in {_FIELD}.env"
    if backend == "AZUREBLOB":
        mode = pod_json.text(env.get("AZURE_STORAGE_AUTH_MODE", {}), "value").strip().lower()
        yield from _of_azure(mode, given)
    for name in _REQUIRED.get(backend, ()):
        if name not in given:
            yield f"{name} environment variable must be set when STORAGE_BACKEND is {backend}"


def _of_azure(mode: str, given: set[str]) -> Iterator[str]:
    connection, account = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_URL"
    when = "environment variable must be set when STORAGE_BACKEND is AZUREBLOB"
    needed = {"connection_string": connection, "workload_identity": account, "default": account}.get(mode)
    if needed is None and given.isdisjoint({connection, account}):
        yield f"either {connection} or {account} {when}"
    if needed is not None and needed not in given:
        yield f"{needed} {when} and AZURE_STORAGE_AUTH_MODE is {mode}"
