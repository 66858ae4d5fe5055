"""The operator's configuration file: `apiVersion: config.ray.io/v1alpha1`, `kind: Configuration` (spec raycluster §18.1).

A file made for KubeRay works. Fields that we do not know are ignored, as there; fields of KubeRay's own process that mean
nothing here (`without_effect`) are accepted, and the service logs them at its start.
"""

from typing import Final, Literal

import msgspec

from cluster_reconciler.config import BatchSchedulerName, Config
from common.api.opaque import Body
from common.errors import InvalidSpec
from common.feature_gates import Gate, Gates

_BOTH_FLAGS: Final = (
    "both feature flags enable-batch-scheduler (deprecated) and batch-scheduler are set. "
    "Please use batch-scheduler only"
)
_GATE_AND_FLAG: Final = (
    "the KubernetesWAS feature gate cannot be combined with --batch-scheduler or --enable-batch-scheduler"
)


class OperatorFile(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The whole file."""

    api_version: Literal["config.ray.io/v1alpha1"]
    kind: Literal["Configuration"]
    head_sidecar_containers: list[Body] = []
    worker_sidecar_containers: list[Body] = []
    default_container_envs: list[Body] = []
    default_pod_annotations: dict[str, str] = {}
    default_pod_labels: dict[str, str] = {}
    batch_scheduler: str = ""
    enable_batch_scheduler: bool = False

    metrics_addr: str | None = None
    probe_addr: str | None = None
    enable_leader_election: bool | None = None
    leader_election_namespace: str | None = None
    reconcile_concurrency: int | None = None
    watch_namespace: str | None = None
    log_file: str | None = None
    log_file_encoder: str | None = None
    log_stdout_encoder: str | None = None
    use_kubernetes_proxy: bool | None = None
    enable_metrics: bool | None = None
    qps: float | None = None
    burst: int | None = None
    delete_ray_job_after_job_finishes: bool | None = None


_OTHERS: Final = {
    "metricsAddr": "RAYBUS_HTTP_PORT",
    "probeAddr": "RAYBUS_HTTP_PORT",
    "reconcileConcurrency": "RAYBUS_WORKERS",
    "watchNamespace": "RAYBUS_WATCH_NAMESPACES",
    "useKubernetesProxy": "RAYBUS_USE_KUBERNETES_PROXY",
    "leaderElectionNamespace": "RAYBUS_NAMESPACE",
    "enableLeaderElection": "",
    "logFile": "",
    "logFileEncoder": "",
    "logStdoutEncoder": "",
    "enableMetrics": "",
    "qps": "",
    "burst": "",
    "deleteRayJobAfterJobFinishes": "",
}
"""Fields without effect here, and the setting that replaces each."""


def parse(text: str, *, path: str) -> OperatorFile:
    """Read the file's text; raise `InvalidSpec` that names the field."""
    try:
        return msgspec.yaml.decode(text.encode(), type=OperatorFile)
    except msgspec.DecodeError as problem:
        what = " ".join(str(problem).split())
        raise InvalidSpec(f"failed to decode config file {path}: {what}; correct the file") from problem


def without_effect(file: OperatorFile) -> tuple[str, ...]:
    """Return the fields that are set and mean nothing here, each with what to set in its place."""
    written = msgspec.to_builtins(file)
    return tuple(
        f"{field} (set {instead})" if instead else field
        for field, instead in _OTHERS.items()
        if written[field] is not None
    )


def apply(config: Config, file: OperatorFile) -> Config:
    """Return the configuration with what the file adds to it."""
    for where, containers in (
        ("headSidecarContainers", file.head_sidecar_containers),
        ("workerSidecarContainers", file.worker_sidecar_containers),
        ("defaultContainerEnvs", file.default_container_envs),
    ):
        _require_names(where, containers)
    return msgspec.structs.replace(
        config,
        batch_scheduler=scheduler_name(
            file.batch_scheduler, is_enabled=file.enable_batch_scheduler, gates=config.gates
        ),
        head_sidecars=tuple(file.head_sidecar_containers),
        worker_sidecars=tuple(file.worker_sidecar_containers),
        default_container_envs=tuple(file.default_container_envs),
        default_pod_annotations=file.default_pod_annotations,
        default_pod_labels=file.default_pod_labels,
    )


def scheduler_name(name: str, *, is_enabled: bool = False, gates: Gates) -> BatchSchedulerName:
    """Return the batch scheduler of that name; `is_enabled` is KubeRay's old switch for Volcano."""
    if name and is_enabled:
        raise InvalidSpec(_BOTH_FLAGS)
    if Gate.KUBERNETES_WAS in gates and (name or is_enabled):
        raise InvalidSpec(_GATE_AND_FLAG)
    if is_enabled:
        return BatchSchedulerName.VOLCANO
    if name not in frozenset(BatchSchedulerName):
        known = ", ".join(each for each in BatchSchedulerName if each)
        raise InvalidSpec(f"scheduler is not supported, name={name}; known: {known}")
    return BatchSchedulerName(name)


def _require_names(where: str, items: list[Body]) -> None:
    for index, item in enumerate(items):
        name = item.get("name")
        if not isinstance(name, str) or not name:
            raise InvalidSpec(f"failed to decode config file: {where}[{index}].name is missing; give it a name")
