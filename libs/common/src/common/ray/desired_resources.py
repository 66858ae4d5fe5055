"""What the cluster would use if it had all its replicas.

Replicas count as written, not clamped to their limits, and only the template's own containers count
(spec raycluster §13.3; acceptance cases 52, 114).
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from common import pod_json, quantity
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.quantity import Quantity
from common.ray import cluster_traits as traits

TPU: Final = "google.com/tpu"
_MIG: Final = re.compile(r"nvidia\.com/mig-\d+g\.\d+gb$")

Amounts = dict[str, Quantity]


class Desired(msgspec.Struct, frozen=True, kw_only=True):
    """The sums that the status shows, as text."""

    cpu: str
    memory: str
    gpu: str
    tpu: str


def compute(cluster: RayCluster) -> Desired:
    """Add up head and worker groups."""
    total = _total(cluster, _as_written)
    gpu = quantity.ZERO
    for name in sorted(total):
        gpu = gpu.add(total[name]) if is_gpu(name) else gpu
    return Desired(cpu=_text(total, "cpu"), memory=_text(total, "memory"), gpu=str(gpu), tpu=_text(total, TPU))


def is_gpu(key: str) -> bool:
    """Return whether a resource's name means GPUs, a slice of one included."""
    return key.endswith("gpu") or _MIG.search(key) is not None


def totals(cluster: RayCluster, replicas: Callable[[WorkerGroupSpec], int] | None = None) -> dict[str, str]:
    """Return the sum of every resource, for replicas as written or as counted by the caller."""
    return _as_text(_total(cluster, replicas or _as_written))


def of_template(template: Body) -> dict[str, str]:
    """Return what one pod of a template asks for."""
    return _as_text(_of_template(template))


def _as_written(group: WorkerGroupSpec) -> int:
    return group.replicas or 0


def _total(cluster: RayCluster, replicas: Callable[[WorkerGroupSpec], int]) -> Amounts:
    total = _of_template(cluster.spec.head_group_spec.template)
    for group in traits.worker_groups(cluster):
        if not group.suspend:
            pods = max(0, group.num_of_hosts) * replicas(group)
            _add(total, ((name, amount.times(pods)) for name, amount in _of_template(group.template).items()))
    return total


def _as_text(total: Amounts) -> dict[str, str]:
    return {name: str(total[name]) for name in sorted(total)}


def _of_template(template: Body) -> Amounts:
    """Add up requests, or limits where there is no request, of a template's containers."""
    total: Amounts = {}
    for container in pod_json.bodies(pod_json.body(template, "spec"), "containers"):
        resources = pod_json.body(container, "resources")
        wanted = pod_json.mapping(resources, "limits") | pod_json.mapping(resources, "requests")
        _add(total, ((name, quantity.parse(value)) for name, value in wanted.items()))
    return total


def _add(total: Amounts, more: Iterable[tuple[str, Quantity]]) -> None:
    for name, amount in more:
        total[name] = total.get(name, quantity.ZERO).add(amount)


def _text(total: Amounts, name: str) -> str:
    return str(total.get(name, quantity.ZERO))
