"""Derived properties of a RayCluster: groups, replicas, ports, optional features, Ray version.

Validation, pod construction and the builders of the other children use the same functions.
Behaviour: spec raycluster §4.2 (S14, S17), §7, §11.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import re2

from common import feature_gates, labels, names, pod_json
from common.api.core import Container, Pod
from common.api.ray_cluster import GcsEmbeddedStorage, HeadGroupSpec, RayCluster, WorkerGroupSpec
from common.ray import ports

UNBOUNDED: Final = 2**31 - 1
"""Maximum replicas of a group without `maxReplicas`."""
AUTOSCALER_V2_ENV: Final = "RAY_enable_autoscaler_v2"
_CREATORS: Final = frozenset({"RayCluster", "RayJob", "RayService"})

_MAX_LENGTH: Final = 20
"""Maximum characters of a port that is parsed, because Python rejects more than 4,300 digits."""
_NUMBER: Final = re2.compile(r"[+-]?[0-9]+")
_MAX_NUMBER: Final = 2**31 - 1
_VERSION: Final = re2.compile(r"\s*v?([0-9]+(?:\.[0-9]+)*)(.*)")
_MAX_QUOTE_LENGTH: Final = 100
"""Characters after which messages cut off a version that they quote."""
_MAX_NUMBER_LENGTH: Final = 19
"""Maximum digits of a number in a version; any such number fits into 64 bits."""

Version = tuple[int, ...]
RayGroup = HeadGroupSpec | WorkerGroupSpec
"""The head group or a worker group."""


def creator_kind(cluster: RayCluster) -> str:
    """Return the kind that created the cluster: RayCluster (a user's own), RayJob or RayService."""
    kind = cluster.metadata.labels.get(labels.ORIGIN_KIND, "")
    return kind if kind in _CREATORS else "RayCluster"


def is_for_a_service(cluster: RayCluster) -> bool:
    """Return whether a RayService created the cluster."""
    return creator_kind(cluster) == "RayService"


def worker_groups(cluster: RayCluster) -> list[WorkerGroupSpec]:
    """Return the worker groups in the order of the spec, including suspended and duplicate ones."""
    return cluster.spec.worker_group_specs or []


def named_groups(cluster: RayCluster) -> list[WorkerGroupSpec]:
    """Return the worker groups; of several groups with the same name only the first.

    Pods belong to a group by its name, so two groups with the same name would undo each other's
    changes for ever.
    """
    groups: dict[str, WorkerGroupSpec] = {}
    for group in worker_groups(cluster):
        groups.setdefault(group.group_name, group)
    return [*groups.values()]


def ray_container(cluster: RayCluster | None, pod: Pod) -> Container | None:
    """Return Ray's container of a pod.

    It is found by the name of the first container in the group's template, because a service mesh
    may put its proxy first in the pod. If the cluster is None or no container has this name (for
    example after a rename in the template), return the first container of the pod.
    """
    name = ray_container_name(cluster, pod)
    containers = pod.spec.containers
    named = (container for container in containers if container.name == name)
    return next(named, containers[0] if containers else None)


def ray_container_name(cluster: RayCluster | None, pod: Pod) -> str:
    """Return the name that the template of a pod's group gives Ray's container; "" if unknown."""
    if cluster is None:
        return ""
    try:
        spec = cluster.spec
    except msgspec.ValidationError:
        return ""
    name = pod.metadata.labels.get(labels.GROUP, "")
    group: RayGroup | None = next(
        (group for group in named_groups(cluster) if group.group_name == name), None
    )
    if pod.metadata.labels.get(labels.NODE_TYPE) == labels.HEAD:
        group = spec.head_group_spec
    return "" if group is None else pod_json.text(pod_json.ray_container(group.template), "name")


def active_groups(cluster: RayCluster) -> list[WorkerGroupSpec]:
    """Return the worker groups that are not suspended."""
    return [group for group in worker_groups(cluster) if not group.suspend]


def hosts(group: WorkerGroupSpec) -> int:
    """Return the number of pods per replica; absent, 0 or negative values count as 1.

    The API server drops the field if its CRD is older. If that counted as 0, all workers of the
    group would be deleted.
    """
    return max(1, group.num_of_hosts)


def limits(group: WorkerGroupSpec) -> tuple[int, int]:
    """Return the minimum and maximum replicas of a group."""
    return group.min_replicas or 0, UNBOUNDED if group.max_replicas is None else group.max_replicas


def replicas(group: WorkerGroupSpec) -> int:
    """Return the desired replicas of a group within its limits; 0 if suspended."""
    if group.suspend:
        return 0
    least, most = limits(group)
    return least if group.replicas is None or group.replicas < least else min(group.replicas, most)


def target(group: WorkerGroupSpec) -> int:
    """Return the desired number of pods of a group."""
    return replicas(group) * hosts(group)


def desired_workers(cluster: RayCluster) -> int:
    """Return the desired number of worker pods."""
    return sum(map(target, worker_groups(cluster)))


def least_workers(cluster: RayCluster) -> int:
    """Return the number of worker pods if every group has its minimum number of replicas."""
    return sum(limits(group)[0] * hosts(group) for group in active_groups(cluster))


def start_params(group: RayGroup) -> dict[str, str]:
    """Return the group's rayStartParams; do not modify them."""
    return group.ray_start_params or {}


def port_param(params: Mapping[str, str], name: str, default: int) -> int:
    """Read a port in rayStartParams as Go does; `default` if it is not a 32-bit number."""
    text = params.get(name, "")
    if (
        len(text) > _MAX_LENGTH
        or not _NUMBER.fullmatch(text)
        or not -_MAX_NUMBER - 1 <= int(text) <= _MAX_NUMBER
    ):
        return default
    return int(text)


def gcs_port(cluster: RayCluster) -> str:
    """Return the port at which workers connect to the GCS."""
    return start_params(cluster.spec.head_group_spec).get("port", str(ports.GCS_SERVER))


def is_autoscaling(cluster: RayCluster) -> bool:
    """Return whether the autoscaler runs in the head pod."""
    return cluster.spec.enable_in_tree_autoscaling is True


def autoscaler_version(cluster: RayCluster) -> str | None:
    """Return the version in the autoscaler options, even if autoscaling is off."""
    options = cluster.spec.autoscaler_options
    return options.version if options else None


def is_fault_tolerant(cluster: RayCluster) -> bool:
    """Return whether the GCS state survives the head pod."""
    asked_by_annotation = feature_gates.is_on(cluster.metadata.annotations, labels.FT_ENABLED)
    return asked_by_annotation or cluster.spec.gcs_fault_tolerance_options is not None


def has_embedded_storage(cluster: RayCluster) -> bool:
    """Return whether the GCS stores its state in a volume (RocksDB), not in Redis."""
    options = cluster.spec.gcs_fault_tolerance_options
    return options is not None and options.backend == "rocksdb"


def embedded_storage(cluster: RayCluster) -> GcsEmbeddedStorage:
    """Return the volume options of the GCS, with defaults for unset fields."""
    options = cluster.spec.gcs_fault_tolerance_options
    return (options.storage if options else None) or GcsEmbeddedStorage()


def has_token_auth(cluster: RayCluster) -> bool:
    """Return whether Ray's processes authenticate each other by token."""
    options = cluster.spec.auth_options
    return options is not None and options.mode == "token"


def token_secret(cluster: RayCluster) -> str:
    """Return the name of the Secret with a cluster's token: the user's, or else raybus's own."""
    options = cluster.spec.auth_options
    return (options.secret_name if options else None) or names.checked(cluster.metadata.name)


def has_kubernetes_auth(cluster: RayCluster) -> bool:
    """Return whether the tokens are Kubernetes ServiceAccount tokens."""
    options = cluster.spec.auth_options
    return options is not None and options.enable_k8s_token_auth is True


def has_tls(cluster: RayCluster) -> bool:
    """Return whether Ray's processes use mutual TLS.

    Validation rejects TLS while its feature gate is off.
    """
    options = cluster.spec.tls_options
    return options is not None and options.enabled is True


def head_env_value(cluster: RayCluster, name: str) -> str | None:
    """Return the literal value of an environment variable of the head's Ray container.

    None if the variable is not set; empty if its value is not literal, such as a Secret's.
    """
    env = pod_json.named(pod_json.ray_container(cluster.spec.head_group_spec.template), "env", name)
    return None if env is None else pod_json.text(env, "value")


class VersionError(ValueError):
    """A text is not a version; the error message is the same as in Kubernetes' parser."""


def parse_version(text: str) -> Version:
    """Parse a Ray version as Kubernetes' generic version parser does: `2.52.0rc1` is (2, 52).

    Leading blanks and a `v` are allowed, and at least two numbers are required. The text after the
    numbers is ignored, and trailing zeros are dropped. Raises `VersionError`.
    """
    quoted = json.dumps(text[:_MAX_QUOTE_LENGTH], ensure_ascii=False)
    match = _VERSION.fullmatch(text)
    if match is None:
        raise VersionError(f"could not parse {quoted} as version")
    parts = match[1].split(".")
    if len(parts) < 2:
        raise VersionError(f"illegal version string {quoted}")
    if parts[0].startswith("0") and parts[0] != "0":
        raise VersionError(
            f"illegal zero-prefixed version component {json.dumps(parts[0])} in {quoted}"
        )
    if any(len(part) > _MAX_NUMBER_LENGTH for part in parts):
        raise VersionError(
            f"illegal version string {quoted}: a number of more than {_MAX_NUMBER_LENGTH} digits"
        )
    version = tuple(int(part) for part in parts)
    return version[: max((at for at, number in enumerate(version, start=1) if number), default=0)]


def is_version_at_least(text: str, minimum: Version) -> bool:
    """Return whether a text is a version of at least `minimum`; False if it is not a version."""
    try:
        return (*parse_version(text), 0, 0) >= minimum
    except VersionError:
        return False


def version_problems(text: str, minimum: Version, feature: str) -> Iterator[str]:
    """Yield the problem if Ray version `text` is below `minimum`, missing or malformed.

    Each message begins with `feature`.
    """
    least = f"{minimum[0]}.{minimum[1]}.0"
    try:
        if not text:
            yield (
                f"{feature} RayVersion was not specified. Ray version {least} or later is required"
            )
        elif parse_version(text) < minimum:
            yield f"{feature} minimum Ray version is {least}, got {text}"
    except VersionError as problem:
        yield f"{feature} RayVersion format is invalid: {text}, {problem}"
