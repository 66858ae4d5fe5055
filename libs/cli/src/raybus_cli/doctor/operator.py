"""An operator as its Deployment describes it: version, flags, environment and file; no I/O.

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
"""Boolean flags, which need no value."""
RAYBUS: Final = ("watcher", "cluster-reconciler", "service-reconciler", "traffic-manager")


class Mounted(msgspec.Struct, frozen=True):
    """Key of a ConfigMap that is mounted as a file."""

    config_map: str
    key: str


class Operator(msgspec.Struct, frozen=True, kw_only=True):
    """An operator's Deployment and its configuration."""

    namespace: str
    name: str
    image: str
    version: str
    """Tag of the image, or its digest."""
    replicas: int
    ready: int
    flags: dict[str, str] = {}
    """Command line flags without leading dashes."""
    environment: dict[str, str] = {}
    """Variables with a literal value or from a ConfigMap.

    Variables from other sources are not included.
    """
    file: Mounted | None = None
    """ConfigMap key of the configuration file; None if no file is named."""

    @property
    def place(self) -> str:
        """Namespace and name, separated by a slash."""
        return f"{self.namespace}/{self.name}"

    @property
    def namespaces(self) -> frozenset[str]:
        """Watched namespaces; empty for all, and if a configuration file lists them."""
        given = (
            self.flags.get("watch-namespace")
            or self.environment.get("RAYBUS_WATCH_NAMESPACES")
            or ""
        )
        return frozenset(filter(None, map(str.strip, given.split(","))))

    @property
    def is_running(self) -> bool:
        return self.ready > 0


def kuberay(deployments: Iterable[Workload]) -> list[Workload]:
    """Return the KubeRay operators among some Deployments."""
    return [each for each in deployments if _is_kuberay(each)]


def raybus(deployments: Iterable[Workload], namespace: str) -> list[Workload]:
    """Return the raybus services in a namespace, among some Deployments."""
    return [
        each
        for each in deployments
        if each.metadata.namespace == namespace and each.metadata.name in RAYBUS
    ]


def sources(found: Workload) -> list[str]:
    """Return the ConfigMaps that a Deployment's container uses with `envFrom`."""
    held = (
        cast("Json", each.get("configMapRef") or {})
        for each in _items(_container(found), "envFrom")
    )
    return [str(each["name"]) for each in held if "name" in each]


def of(
    found: Workload, more: Mapping[str, str] | None = None, *, file_variable: str = OPERATOR_FILE
) -> Operator:
    """Read the operator in a Deployment; `more` are the variables from its ConfigMaps."""
    container = _container(found)
    image = str(container.get("image") or "")
    flags = parse_flags(_texts(container, "args") + _texts(container, "command")[1:])
    own = {
        str(each["name"]): str(each.get("value") or "")
        for each in _items(container, "env")
        if "valueFrom" not in each
    }
    environment = {**(more or {}), **own}
    path = flags.get("config") or environment.get(file_variable, "")
    return Operator(
        namespace=found.metadata.namespace,
        name=found.metadata.name,
        image=image,
        version=_split(image)[1],
        replicas=found.spec.replicas,
        ready=found.status.ready_replicas,
        flags=flags,
        environment=environment,
        file=_mounted(found, container, path) if path else None,
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


def _is_kuberay(found: Workload) -> bool:
    repository = _split(str(_container(found).get("image") or ""))[0]
    return found.metadata.labels.get(NAME_LABEL) == KUBERAY or repository.endswith(_IMAGES)


def _container(found: Workload) -> Json:
    containers = _items(_pod(found), "containers")
    return containers[0] if containers else {}


def _pod(found: Workload) -> Json:
    return found.spec.template.get("spec") or {}


def _split(image: str) -> tuple[str, str]:
    """Return an image's repository and its tag, or its digest if it has no tag."""
    name, _, digest = image.partition("@")
    folder, slash, last = name.rpartition("/")
    base, _, tag = last.partition(":")
    return f"{folder}{slash}{base}", tag or digest or "unknown"


def _mounted(found: Workload, container: Json, path: str) -> Mounted | None:
    """Return the ConfigMap key that is mounted at a path; None if there is none."""
    for mount in _items(container, "volumeMounts"):
        root, part = str(mount.get("mountPath", "")).rstrip("/"), str(mount.get("subPath") or "")
        key = (
            part
            if path == root and part
            else path.removeprefix(f"{root}/")
            if path.startswith(f"{root}/")
            else ""
        )
        named = (
            each for each in _items(_pod(found), "volumes") if each.get("name") == mount.get("name")
        )
        volume: Json | None = next(named, None)
        source = cast("Mapping[str, object]", (volume or {}).get("configMap") or {})
        if key and source.get("name"):
            renamed = {
                str(each["path"]): str(each["key"]) for each in _items(dict(source), "items")
            }
            return Mounted(str(source["name"]), renamed.get(key, key))
    return None


def _items(body: Json, field: str) -> list[Json]:
    return cast("list[Json]", body.get(field) or [])


def _texts(body: Json, field: str) -> list[str]:
    return [str(each) for each in cast("list[object]", body.get(field) or [])]
