"""Traits of a RayCluster, read in one place: its creator, fault tolerance, autoscaler, authentication, the version of Ray.

Validation, pod construction and the other children ask the same questions; each is answered here once.
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
"""The replicas of a group without `maxReplicas`."""
AUTOSCALER_V2_ENV: Final = "RAY_enable_autoscaler_v2"
_CREATORS: Final = frozenset({"RayCluster", "RayJob", "RayService"})

_LONGEST: Final = 20
"""Characters of a port; Python refuses numbers of more than 4,300 digits."""
_NUMBER: Final = re2.compile(r"[+-]?[0-9]+")
_LARGEST: Final = 2**31 - 1
_VERSION: Final = re2.compile(r"\s*v?([0-9]+(?:\.[0-9]+)*)(.*)")
_LONGEST_QUOTE: Final = 100
"""Characters of a version that a message repeats."""
_LONGEST_NUMBER: Final = 19
"""Digits of a number that 64 bits hold."""

Version = tuple[int, ...]
RayGroup = HeadGroupSpec | WorkerGroupSpec
"""The common form of the head and a worker group: template, params, resources, labels."""


def creator_kind(cluster: RayCluster) -> str:
    """Return the kind of the object that made the cluster; a user's own counts as made by a RayCluster."""
    kind = cluster.metadata.labels.get(labels.ORIGIN_KIND, "")
    return kind if kind in _CREATORS else "RayCluster"


def is_for_a_service(cluster: RayCluster) -> bool:
    """Return whether a RayService made the cluster."""
    return creator_kind(cluster) == "RayService"


def worker_groups(cluster: RayCluster) -> list[WorkerGroupSpec]:
    """Return the worker groups in the order of the spec."""
    return cluster.spec.worker_group_specs or []


def named_groups(cluster: RayCluster) -> list[WorkerGroupSpec]:
    """Return the worker groups, of those with one name the first.

    Pods belong to a name: two groups with one name would undo for ever what the other one does.
    """
    found: dict[str, WorkerGroupSpec] = {}
    for group in worker_groups(cluster):
        found.setdefault(group.group_name, group)
    return [*found.values()]


def ray_container(cluster: RayCluster | None, pod: Pod) -> Container | None:
    """Return Ray's container of a pod: the one with the name that the template of its group gives.

    It is the first one of the template, but not always of the pod: a service mesh may put its proxy
    first. Without the cluster or such a container, as after a rename in the template, the first of
    the pod is returned.
    """
    name = ray_container_name(cluster, pod)
    containers = pod.spec.containers
    named = (each for each in containers if each.name == name)
    return next(named, containers[0] if containers else None)


def ray_container_name(cluster: RayCluster | None, pod: Pod) -> str:
    """Return the name of Ray's container in the template of a pod's group; empty when unknown."""
    if cluster is None:
        return ""
    try:
        spec = cluster.spec
    except msgspec.ValidationError:
        return ""
    name = pod.metadata.labels.get(labels.GROUP, "")
    group: RayGroup | None = next(
        (each for each in named_groups(cluster) if each.group_name == name), None
    )
    if pod.metadata.labels.get(labels.NODE_TYPE) == labels.HEAD:
        group = spec.head_group_spec
    return "" if group is None else pod_json.text(pod_json.ray_container(group.template), "name")


def active_groups(cluster: RayCluster) -> list[WorkerGroupSpec]:
    """Return the worker groups that are not suspended."""
    return [group for group in worker_groups(cluster) if not group.suspend]


def hosts(group: WorkerGroupSpec) -> int:
    """Return the pods per replica; absent, 0 or a negative number counts as 1.

    The API server of an older CRD prunes the field: as 0 it would delete all workers of the group.
    """
    return max(1, group.num_of_hosts)


def limits(group: WorkerGroupSpec) -> tuple[int, int]:
    """Return how many replicas a group has at least, and at most."""
    return group.min_replicas or 0, UNBOUNDED if group.max_replicas is None else group.max_replicas


def replicas(group: WorkerGroupSpec) -> int:
    """Return how many replicas a group should have, within their limits; none when suspended."""
    if group.suspend:
        return 0
    least, most = limits(group)
    return least if group.replicas is None or group.replicas < least else min(group.replicas, most)


def target(group: WorkerGroupSpec) -> int:
    """Return how many pods a group should have."""
    return replicas(group) * hosts(group)


def start_params(group: RayGroup) -> dict[str, str]:
    """Return a group's own rayStartParams, for reading."""
    return group.ray_start_params or {}


def port_param(params: Mapping[str, str], name: str, default: int) -> int:
    """Read a port of rayStartParams as Go does; what is no 32-bit number counts as not set."""
    text = params.get(name, "")
    if (
        len(text) > _LONGEST
        or not _NUMBER.fullmatch(text)
        or not -_LARGEST - 1 <= int(text) <= _LARGEST
    ):
        return default
    return int(text)


def gcs_port(cluster: RayCluster) -> str:
    """Return the port of the GCS as workers address it."""
    return start_params(cluster.spec.head_group_spec).get("port", str(ports.GCS_SERVER))


def is_autoscaling(cluster: RayCluster) -> bool:
    """Return whether the autoscaler runs in the head pod."""
    return cluster.spec.enable_in_tree_autoscaling is True


def autoscaler_version(cluster: RayCluster) -> str | None:
    """Return the version that the options name, whether or not the cluster is scaled automatically."""
    options = cluster.spec.autoscaler_options
    return options.version if options else None


def is_fault_tolerant(cluster: RayCluster) -> bool:
    """Return whether the GCS survives its pod."""
    asked_by_annotation = feature_gates.is_on(cluster.metadata.annotations, labels.FT_ENABLED)
    return asked_by_annotation or cluster.spec.gcs_fault_tolerance_options is not None


def has_embedded_storage(cluster: RayCluster) -> bool:
    """Return whether the GCS keeps its state in a volume (RocksDB) and not in Redis."""
    options = cluster.spec.gcs_fault_tolerance_options
    return options is not None and options.backend == "rocksdb"


def embedded_storage(cluster: RayCluster) -> GcsEmbeddedStorage:
    """Return what the user asked of the volume for the GCS; all defaults when nothing was."""
    options = cluster.spec.gcs_fault_tolerance_options
    return (options.storage if options else None) or GcsEmbeddedStorage()


def has_token_auth(cluster: RayCluster) -> bool:
    """Return whether Ray's processes ask one another for a token."""
    options = cluster.spec.auth_options
    return options is not None and options.mode == "token"


def token_secret(cluster: RayCluster) -> str:
    """Return the name of the Secret with a cluster's token: the user's own, or ours."""
    options = cluster.spec.auth_options
    return (options.secret_name if options else None) or names.checked(cluster.metadata.name)


def has_kubernetes_auth(cluster: RayCluster) -> bool:
    """Return whether tokens are those of Kubernetes' own ServiceAccounts."""
    options = cluster.spec.auth_options
    return options is not None and options.enable_k8s_token_auth is True


def has_tls(cluster: RayCluster) -> bool:
    """Return whether Ray's processes use mutual TLS; validation refuses it while its gate is off."""
    options = cluster.spec.tls_options
    return options is not None and options.enabled is True


def head_env_value(cluster: RayCluster, name: str) -> str | None:
    """Return the plain value of an environment variable of the head's Ray container; None when it is not named."""
    env = pod_json.named(pod_json.ray_container(cluster.spec.head_group_spec.template), "env", name)
    return None if env is None else pod_json.text(env, "value")


class VersionError(ValueError):
    """The text is not a version; the message is Kubernetes' own."""


def parse_version(text: str) -> Version:
    """Read a Ray version as Kubernetes' generic version parser does: `2.52.0rc1` is (2, 52).

    Optional blanks and a `v`, then at least two numbers with dots between; whatever follows is ignored, and a missing number counts as 0.
    """
    quoted = json.dumps(text[:_LONGEST_QUOTE], ensure_ascii=False)
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
    if any(len(part) > _LONGEST_NUMBER for part in parts):
        raise VersionError(
            f"illegal version string {quoted}: a number of more than {_LONGEST_NUMBER} digits"
        )
    version = tuple(int(part) for part in parts)
    return version[: max((at for at, number in enumerate(version, start=1) if number), default=0)]


def is_version_at_least(text: str, minimum: Version) -> bool:
    """Return whether a text is a version not older than the minimum; no version at all is not."""
    try:
        return (*parse_version(text), 0, 0) >= minimum
    except VersionError:
        return False


def version_problems(text: str, minimum: Version, feature: str) -> Iterator[str]:
    """Yield why a feature cannot be used with a Ray version; `feature` begins the message."""
    least = f"{minimum[0]}.{minimum[1]}.0"
    try:
        if not text:
            yield f"{feature} RayVersion was not specified. Ray version {least} or later is required"
        elif parse_version(text) < minimum:
            yield f"{feature} minimum Ray version is {least}, got {text}"
    except VersionError as problem:
        yield f"{feature} RayVersion format is invalid: {text}, {problem}"
