"""What the cluster would use if it had all its replicas.

Replicas count as written, not clamped to their limits, and only the template's own containers count
(spec raycluster §13.3; acceptance cases 52, 114).
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
    """Return the sums of head and worker groups by the field of the status that shows them."""
    total = _total(cluster, _as_written)
    gpu = quantity.ZERO
    for name in sorted(filter(is_gpu, total)):
        gpu = gpu.add(total[name])
    fields = {"desired_cpu": "cpu", "desired_memory": "memory", "desired_tpu": "google.com/tpu"}
    shown = {field: str(total.get(name, quantity.ZERO)) for field, name in fields.items()}
    return {**shown, "desired_gpu": str(gpu)}


def is_gpu(key: str) -> bool:
    """Return whether a resource's name means GPUs, a slice of one included."""
    return key.endswith("gpu") or _MIG.search(key) is not None


def totals(
    cluster: RayCluster, replicas: Callable[[WorkerGroupSpec], int] | None = None
) -> dict[str, str]:
    """Return the sum of every resource, for replicas as written or as counted by the caller."""
    return _as_text(_total(cluster, replicas or _as_written))


def of_template(template: Body) -> dict[str, str]:
    """Return what one pod of a template asks for."""
    total: Amounts = {}
    _add(total, template, pods=1)
    return _as_text(total)


def _as_written(group: WorkerGroupSpec) -> int:
    return group.replicas or 0


def _total(cluster: RayCluster, replicas: Callable[[WorkerGroupSpec], int]) -> Amounts:
    total: Amounts = {}
    _add(total, cluster.spec.head_group_spec.template, pods=1)
    for group in traits.active_groups(cluster):
        _add(total, group.template, pods=traits.hosts(group) * replicas(group))
    return total


def _as_text(total: Amounts) -> dict[str, str]:
    return {name: str(total[name]) for name in sorted(total)}


def _add(total: Amounts, template: Body, *, pods: int) -> None:
    """Add requests, or limits where there is no request, of the containers of so many pods."""
    for container in pod_json.containers(template):
        resources = pod_json.body(container, "resources")
        wanted = pod_json.mapping(resources, "limits") | pod_json.mapping(resources, "requests")
        for name, value in wanted.items():
            total[name] = total.get(name, quantity.ZERO).add(quantity.parse(value).times(pods))
