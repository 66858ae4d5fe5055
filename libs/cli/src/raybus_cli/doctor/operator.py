"""The configuration of an operator, as its Deployment describes it. Does no I/O.

A KubeRay operator is recognized by the label of its Helm chart and manifests, or by its image.
"""

from collections.abc import Iterable, Mapping
from typing import Final, cast

import msgspec

from common.api.opaque import Json
from common.settings import OPERATOR_FILE
from raybus_cli.doctor.facts import Workload

NAME_LABEL: Final = "app.kubernetes.io/name"
KUBERAY: Final = "kuberay-operator"
_IMAGES: Final = ("kuberay/operator", "kuberay-operator")
_SWITCHES: Final = frozenset(
    {
        "enable-leader-election",
        "forced-cluster-upgrade",
        "enable-batch-scheduler",
        "use-kubernetes-proxy",
        "enable-metrics",
    }
)
"""Boolean flags of KubeRay's operator, which need no value."""
RAYBUS: Final = (
    "watcher",
    "cluster-reconciler",
    "service-reconciler",
    "traffic-manager",
    "job-reconciler",
)


class MountedKey(msgspec.Struct, frozen=True):
    """Key of a ConfigMap that is mounted as a file."""

    config_map: str
    key: str


class InstalledOperator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's Deployment and its configuration."""

    namespace: str
    name: str
    image: str
    version: str
    """Tag of the operator's image, or its digest if it has no tag."""
    replicas: int
    ready: int
    flags: dict[str, str] = {}
    """Command line flags without leading dashes."""
    environment: dict[str, str] = {}
    """Variables with a literal value or from a ConfigMap; variables from other sources are left
    out.
    """
    file: MountedKey | None = None
    """ConfigMap and key of the configuration file; None if the operator names no file."""

    @property
    def place(self) -> str:
        """Namespace and name, separated by a slash."""
        return f"{self.namespace}/{self.name}"

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces that a flag or an environment variable tells the operator to watch.

        Empty if neither is set: the operator then watches all namespaces, or those that its
        configuration file lists.
        """
        given = (
            self.flags.get("watch-namespace")
            or self.environment.get("RAYBUS_WATCH_NAMESPACES")
            or ""
        )
        return frozenset(filter(None, map(str.strip, given.split(","))))

    @property
    def is_running(self) -> bool:
        return self.ready > 0


def select_kuberay(deployments: Iterable[Workload]) -> list[Workload]:
    """Return the KubeRay operators among some Deployments."""
    return [deployment for deployment in deployments if _is_kuberay(deployment)]


def select_raybus(deployments: Iterable[Workload], namespace: str) -> list[Workload]:
    """Return the raybus services in a namespace, among some Deployments."""
    return [
        deployment
        for deployment in deployments
        if deployment.metadata.namespace == namespace and deployment.metadata.name in RAYBUS
    ]


def list_config_maps(workload: Workload) -> list[str]:
    """Return the ConfigMaps that a Deployment's container uses with `envFrom`."""
    references = (
        cast("Json", item.get("configMapRef") or {})
        for item in _get_items(_get_container(workload), "envFrom")
    )
    return [str(reference["name"]) for reference in references if "name" in reference]


def read_operator(
    workload: Workload, more: Mapping[str, str] | None = None, *, file_variable: str = OPERATOR_FILE
) -> InstalledOperator:
    """Return the operator that a Deployment runs.

    `more` are the variables from its ConfigMaps. `file_variable` is the environment variable that
    names the configuration file, for an operator without the flag `--config`.
    """
    container = _get_container(workload)
    image = str(container.get("image") or "")
    flags = parse_flags(_get_texts(container, "args") + _get_texts(container, "command")[1:])
    own = {
        str(variable["name"]): str(variable.get("value") or "")
        for variable in _get_items(container, "env")
        if "valueFrom" not in variable
    }
    environment = {**(more or {}), **own}
    path = flags.get("config") or environment.get(file_variable, "")
    return InstalledOperator(
        namespace=workload.metadata.namespace,
        name=workload.metadata.name,
        image=image,
        version=_split_image(image)[1],
        replicas=workload.spec.replicas,
        ready=workload.status.ready_replicas,
        flags=flags,
        environment=environment,
        file=_find_mounted(workload, container, path) if path else None,
    )


def parse_flags(arguments: Iterable[str]) -> dict[str, str]:
    """Parse flags as Go does: one or two dashes, the value after `=` or as the next argument."""
    flags: dict[str, str] = {}
    waiting = ""
    for argument in arguments:
        if waiting and not argument.startswith("-"):
            flags[waiting], waiting = argument, ""
            continue
        name, equals, value = argument.lstrip("-").partition("=")
        flags[name] = value if equals else "true"
        waiting = "" if equals or name in _SWITCHES else name
    return flags


def _is_kuberay(workload: Workload) -> bool:
    repository = _split_image(str(_get_container(workload).get("image") or ""))[0]
    return workload.metadata.labels.get(NAME_LABEL) == KUBERAY or repository.endswith(_IMAGES)


def _get_container(workload: Workload) -> Json:
    containers = _get_items(_get_pod_spec(workload), "containers")
    return containers[0] if containers else {}


def _get_pod_spec(workload: Workload) -> Json:
    return workload.spec.template.get("spec") or {}


def _split_image(image: str) -> tuple[str, str]:
    """Return an image's repository and its tag, or its digest if it has no tag."""
    name, _, digest = image.partition("@")
    folder, slash, last = name.rpartition("/")
    base, _, tag = last.partition(":")
    return f"{folder}{slash}{base}", tag or digest or "unknown"


def _find_mounted(workload: Workload, container: Json, path: str) -> MountedKey | None:
    for mount in _get_items(container, "volumeMounts"):
        root, part = str(mount.get("mountPath", "")).rstrip("/"), str(mount.get("subPath") or "")
        key = (
            part
            if path == root and part
            else path.removeprefix(f"{root}/")
            if path.startswith(f"{root}/")
            else ""
        )
        named = (
            volume
            for volume in _get_items(_get_pod_spec(workload), "volumes")
            if volume.get("name") == mount.get("name")
        )
        volume: Json | None = next(named, None)
        source = cast("Mapping[str, object]", (volume or {}).get("configMap") or {})
        if key and source.get("name"):
            renamed = {
                str(item["path"]): str(item["key"]) for item in _get_items(dict(source), "items")
            }
            return MountedKey(str(source["name"]), renamed.get(key, key))
    return None


def _get_items(body: Json, field: str) -> list[Json]:
    return cast("list[Json]", body.get(field) or [])


def _get_texts(body: Json, field: str) -> list[str]:
    return [str(item) for item in cast("list[object]", body.get(field) or [])]
