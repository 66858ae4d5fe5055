"""Read the configuration of this service: environment, configuration file, and API server.

The settings that all services share are read elsewhere. The file is KubeRay's (`apiVersion:
config.ray.io/v1alpha1`, `kind: Configuration`, spec raycluster §18.1), and a file made for KubeRay
works. Unknown fields are ignored, as in KubeRay. Fields about KubeRay's own process are accepted
without effect, and logged at the start.
"""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Final, Literal

import msgspec
import structlog

from cluster_reconciler import batch
from cluster_reconciler.config import Config, PodAdditions, find_variable
from cluster_reconciler.resources import ingress
from common import pod_json
from common.api.opaque import Body
from common.errors import Forbidden, InvalidSpec, Unavailable
from common.feature_gates import FeatureGate
from common.kube.client import KubeClient
from common.ray import operator_file
from common.settings import Settings
from common.validation import ray_cluster as cluster_rules

log = structlog.get_logger()

PAUSE: Final = 2.0
"""Seconds between attempts to reach an API server that does not answer."""


class OperatorFile(PodAdditions, frozen=True, kw_only=True):
    """The configuration file of the operator.

    The fields after the blank line have no effect. Some name the setting that replaces them.
    """

    api_version: Literal["config.ray.io/v1alpha1"]
    kind: Literal["Configuration"]
    batch_scheduler: str = ""
    enable_batch_scheduler: bool = False
    delete_ray_job_after_job_finishes: bool | None = False
    """Used only by job-reconciler."""

    metrics_addr: Annotated[str | None, "RAYBUS_HTTP_PORT"] = None
    probe_addr: Annotated[str | None, "RAYBUS_HTTP_PORT"] = None
    reconcile_concurrency: Annotated[int | None, "RAYBUS_WORKERS"] = None
    watch_namespace: Annotated[str | None, "RAYBUS_WATCH_NAMESPACES"] = None
    use_kubernetes_proxy: Annotated[bool | None, "RAYBUS_USE_KUBERNETES_PROXY"] = None
    leader_election_namespace: Annotated[str | None, "RAYBUS_NAMESPACE"] = None
    enable_leader_election: bool | None = None
    log_file: str | None = None
    log_file_encoder: str | None = None
    log_stdout_encoder: str | None = None
    enable_metrics: bool | None = None
    qps: float | None = None
    burst: int | None = None


def configure(settings: Settings, environ: Mapping[str, str]) -> Config:
    """Return the configuration from environment variables, the file and the shared settings.

    Raises `InvalidSpec` if the file cannot be read or the scheduler is unknown.
    """
    config = Config.from_environment(environ, settings.feature_gates)
    if environ.get("RAYBUS_CLUSTER_DOMAIN", "").strip():
        config = msgspec.structs.replace(config, cluster_domain=settings.cluster_domain)
    if (path_and_text := operator_file.read_text(environ)) is not None:
        path, text = path_and_text
        file = parse(text, path=path)
        if ignored := find_ineffective_fields(file):
            log.warning("fields of the configuration file have no effect here", fields=ignored)
        config = apply(config, file)
    name = config.batch_scheduler or operator_file.choose_batch_scheduler(
        environ.get(operator_file.BATCH_SCHEDULER, "").strip(), gates=config.gates
    )
    return msgspec.structs.replace(config, batch_scheduler=name)


def parse(text: str, *, path: str) -> OperatorFile:
    """Parse the configuration file at `path`. Raises `InvalidSpec`, which names the wrong field."""
    return operator_file.parse(text, OperatorFile, path=path)


def find_ineffective_fields(file: OperatorFile) -> tuple[str, ...]:
    """Return the fields that are set but have no effect, each with the setting to use instead."""
    fields = (field for field in msgspec.structs.fields(OperatorFile) if field.default is None)
    unused = {
        field.encode_name: find_variable(field)
        for field in fields
        if getattr(file, field.name) is not None
    }
    return tuple(f"{name} (set {instead})" if instead else name for name, instead in unused.items())


def apply(config: Config, file: OperatorFile) -> Config:
    """Add the settings of the file to the configuration.

    Raises `InvalidSpec`, which names the field, if a value is wrong.
    """
    for where, items in (
        ("headSidecarContainers", file.head_sidecars),
        ("workerSidecarContainers", file.worker_sidecars),
        ("defaultContainerEnvs", file.default_container_envs),
    ):
        for index, item in enumerate(items):
            if not isinstance(name := item.get("name"), str) or not name:
                raise InvalidSpec(
                    f"failed to decode config file: {where}[{index}].name is missing; give it a "
                    "name"
                )
            path = f"{where}[{index}].resources"
            resources = pod_json.body(item, "resources")
            if problem := next(cluster_rules.of_resources(path, resources), None):
                raise InvalidSpec(f"failed to decode config file: {problem}")
    scheduler = operator_file.choose_batch_scheduler(
        file.batch_scheduler, is_enabled=file.enable_batch_scheduler, gates=config.gates
    )
    added = {field: getattr(file, field) for field in PodAdditions.__struct_fields__}
    return msgspec.structs.replace(config, batch_scheduler=scheduler, **added)


async def list_served_versions(kube: KubeClient) -> frozenset[str]:
    """Return the API versions that the API server serves, such as `route.openshift.io/v1`.

    Retries until the API server answers. Empty if raybus may not list them (spec raycluster §17.5,
    §18.2).
    """
    while True:
        try:
            groups: list[Body] = msgspec.json.decode(await kube.request("GET", "/apis"))["groups"]
            return frozenset(
                version["groupVersion"] for group in groups for version in group["versions"]
            )
        except Unavailable as problem:
            log.warning("waiting for the API server", error=str(problem))
            await asyncio.sleep(PAUSE)
        except Forbidden as problem:
            log.warning("cannot list API groups; OpenShift not detected", error=str(problem))
            return frozenset()


def adapt(config: Config, versions: frozenset[str]) -> Config:
    """Return the configuration, adapted to the API versions that the API server serves.

    Raises `InvalidSpec` if the API server lacks a version that an enabled gate needs.
    """
    if FeatureGate.KUBERNETES_WAS in config.gates and batch.WORKLOAD.api_version not in versions:
        raise InvalidSpec(
            "no served scheduling.k8s.io API version available for kubernetes-was-v1alpha2: "
            f"{batch.WORKLOAD.api_version} is not served; switch the KubernetesWAS feature gate off"
        )
    is_openshift = any(
        version.partition("/")[0] in ingress.OPENSHIFT_GROUPS for version in versions
    )
    return msgspec.structs.replace(config, is_openshift=is_openshift)
