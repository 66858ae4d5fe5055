"""Sums of the resources that a RayCluster requests with all its replicas.

The status counts replicas as in the spec, without the limits `minReplicas` and `maxReplicas`. It
counts only the containers in the pod templates (spec raycluster §13.3; acceptance cases 52, 114). A
batch scheduler gets the sums of the complete pod manifests.
"""

from collections.abc import Callable
from typing import Final

import re2

from common import pod_json, quantity
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.quantity import Quantity
from common.ray import cluster_traits as traits

_MIG: Final = re2.compile(r"nvidia\.com/mig-\d+g\.\d+gb$")

Amounts = dict[str, Quantity]


def for_status(cluster: RayCluster) -> dict[str, str]:
    """Return the resources that head and workers request together, by field of the status."""
    total = _total(cluster, _as_written)
    gpu = quantity.ZERO
    for name in sorted(filter(is_gpu, total)):
        gpu = gpu.add(total[name])
    fields = {"desired_cpu": "cpu", "desired_memory": "memory", "desired_tpu": "google.com/tpu"}
    shown = {field: str(total.get(name, quantity.ZERO)) for field, name in fields.items()}
    return {**shown, "desired_gpu": str(gpu)}


def is_gpu(key: str) -> bool:
    """Return whether a resource name means GPUs, including MIG slices."""
    return key.endswith("gpu") or _MIG.search(key) is not None


def totals(
    cluster: RayCluster, replicas: Callable[[WorkerGroupSpec], int] | None = None
) -> dict[str, str]:
    """Return the sum of each resource over the pods of a cluster.

    `replicas` returns the replicas of a group; without it, those in the spec count.
    """
    return as_text(_total(cluster, replicas or _as_written))


def of_pod(pod: Body) -> Amounts:
    """Return the resources that a scheduler reserves for a pod, by Kubernetes' formula.

    All containers run together with all sidecars (init containers with restartPolicy Always). Each
    other init container runs together only with the sidecars that precede it. Requests in the pod's
    own `resources` replace these sums, and the pod's `overhead` is added.
    """
    spec = pod_json.spec(pod)
    sidecars: Amounts = {}
    most: Amounts = {}
    for container in pod_json.bodies(spec, "initContainers"):
        alone = dict(sidecars)
        add(alone, _requests(container))
        if container.get("restartPolicy") == "Always":
            sidecars = alone
        most = _highest(most, alone)
    total = dict(sidecars)
    for container in pod_json.containers(pod):
        add(total, _requests(container))
    total = _highest(total, most) | _requests(spec)
    overhead = pod_json.mapping(spec, "overhead")
    add(total, {name: quantity.parse(value) for name, value in overhead.items()})
    return total


def as_text(total: Amounts) -> dict[str, str]:
    """Format resource amounts as Kubernetes does."""
    return {name: str(total[name]) for name in sorted(total)}


def add(total: Amounts, amounts: Amounts, *, times: int = 1) -> None:
    """Add `amounts`, multiplied by `times`, to `total` in place."""
    for name, amount in amounts.items():
        total[name] = total.get(name, quantity.ZERO).add(amount.times(times))


def _highest(one: Amounts, other: Amounts) -> Amounts:
    highest = dict(one)
    for name, amount in other.items():
        if name not in highest or amount.compare(highest[name]) > 0:
            highest[name] = amount
    return highest


def _requests(owner: Body) -> Amounts:
    """Return the resource requests of a container or a pod; a missing request equals its limit."""
    resources = pod_json.body(owner, "resources")
    wanted = pod_json.mapping(resources, "limits") | pod_json.mapping(resources, "requests")
    return {name: quantity.parse(value) for name, value in wanted.items()}


def _as_written(group: WorkerGroupSpec) -> int:
    return group.replicas or 0


def _total(cluster: RayCluster, replicas: Callable[[WorkerGroupSpec], int]) -> Amounts:
    total: Amounts = {}
    members = [(cluster.spec.head_group_spec.template, 1)] + [
        (group.template, traits.hosts(group) * replicas(group))
        for group in traits.active_groups(cluster)
    ]
    for template, pods in members:
        for container in pod_json.containers(template):
            add(total, _requests(container), times=pods)
    return total
