"""The resources that clusters request before, during and after an upgrade, and the quotas.

Amounts are counted as in the RayCluster's status: requests, or limits where there is no request.
During an upgrade in steps, the workers of a cluster are assumed to follow its capacity, as they do
if Ray's autoscaler removes idle Ray nodes in time. `at_most` is the amount if no Ray node is
removed before the upgrade ends. Amounts are compared with the ResourceQuotas of the namespace.
"""

from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from common import quantity
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster, WorkerGroupSpec
from common.quantity import QuantityError
from common.ray import cluster_traits as traits
from common.ray import desired_resources
from common.upgrade.traffic_record import WHOLE
from raybus_cli.planning.steps import Rollout
from raybus_cli.reading.snapshot import Quota

PODS_RESOURCE: Final = "pods"
Amounts = dict[str, str]


class Peak(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The largest amounts of resources that are requested during an upgrade.

    `expected` assumes that idle Ray nodes are removed in time, `at_most` that none is removed.
    """

    expected: Amounts
    at_most: Amounts


def compute_demand(
    cluster: RayCluster, percent: int = WHOLE, *, sizes: Mapping[str, int] | None = None
) -> Amounts:
    """Return the resource requests of a cluster at `percent` of its capacity.

    The number of pods is included as `pods`. `sizes` maps group names to numbers of replicas that
    replace those in the spec.
    """
    count = _build_worker_counter(percent, sizes or {})
    pods = 1 + sum(traits.hosts(group) * count(group) for group in traits.active_groups(cluster))
    return {**desired_resources.totals(cluster, count), PODS_RESOURCE: str(pods)}


def build_cluster(config: Json) -> RayCluster:
    """Return a RayCluster with a `rayClusterConfig` as its spec."""
    return RayCluster(metadata=ObjectMeta(), spec_json=msgspec.Raw(msgspec.json.encode(config)))


def list_group_sizes(cluster: RayCluster, goal: Json) -> dict[str, int]:
    """Return the present replicas by group if the new config (`goal`) enables Ray's autoscaler.

    The numbers in the manifest do not apply then, because the autoscaler decides on replicas.
    Without the autoscaler, the result is empty.
    """
    if not goal.get("enableInTreeAutoscaling"):
        return {}
    return {group.group_name: group.replicas or 0 for group in traits.worker_groups(cluster)}


def compute_peak_at_once(old: RayCluster, new: RayCluster) -> Peak:
    """Return the peak of an upgrade that starts a complete new cluster beside the old one."""
    total = add_amounts(compute_demand(old), compute_demand(new))
    return Peak(expected=total, at_most=total)


def compute_peak_in_steps(
    old: RayCluster, new: RayCluster, rollout: Rollout, sizes: Mapping[str, int]
) -> Peak:
    """Return the peak of an upgrade that moves traffic and capacity in steps.

    `rollout` is the simulated upgrade. `sizes` maps names of the new cluster's groups to replicas.
    """
    moments = [
        add_amounts(
            compute_demand(old, moment.active_capacity),
            compute_demand(new, moment.pending_capacity, sizes=sizes),
        )
        for moment in rollout.moments
    ]
    names = sorted({name for amounts in moments for name in amounts})
    expected = {
        name: _find_largest([amounts[name] for amounts in moments if name in amounts])
        for name in names
    }
    return Peak(
        expected=expected,
        at_most=add_amounts(compute_demand(old), compute_demand(new, sizes=sizes)),
    )


def add_amounts(first: Amounts, second: Amounts) -> Amounts:
    """Return the sums of two sets of amounts, resource by resource."""
    return {
        name: str(quantity.parse(first.get(name, "0")).add(quantity.parse(second.get(name, "0"))))
        for name in sorted({*first, *second})
    }


def _build_worker_counter(
    percent: int, sizes: Mapping[str, int]
) -> Callable[[WorkerGroupSpec], int]:
    def count(group: WorkerGroupSpec) -> int:
        written = sizes.get(group.group_name, group.replicas)
        wanted, (least, _) = (
            traits.replicas(msgspec.structs.replace(group, replicas=written)),
            traits.limits(group),
        )
        return min(wanted, max(least, -(-wanted * percent // WHOLE)))

    return count


def _find_largest(amounts: list[str]) -> str:
    largest = quantity.parse(amounts[0])
    for text in amounts[1:]:
        amount = quantity.parse(text)
        largest = amount if amount.compare(largest) > 0 else largest
    return str(largest)


REQUESTS: Final = "requests."


class QuotaCheck(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The check of one quota on one resource, of which the upgrade needs more."""

    quota: str
    resource: str
    hard: str
    used: str
    more: str
    """How much more the upgrade requests at its peak than is requested before."""
    is_enough: bool


def judge(quotas: tuple[Quota, ...], now: Amounts, peak: Amounts) -> list[QuotaCheck]:
    """Return for each limited resource whether its quota has room for an upgrade.

    `now` and `peak` are the requests before and during the upgrade. A resource is left out if the
    upgrade needs no more of it. Quotas on `limits.*` are not checked.
    """
    checks: list[QuotaCheck] = []
    for quota in quotas:
        for resource, hard in sorted(quota.status.hard.items()):
            name = resource.removeprefix(REQUESTS)
            if name not in peak:
                continue
            try:
                verdict = _judge_quota(quota, resource, hard, now.get(name, "0"), peak[name])
            except QuantityError:
                continue
            if verdict is not None:
                checks.append(verdict)
    return checks


def _judge_quota(quota: Quota, resource: str, hard: str, now: str, peak: str) -> QuotaCheck | None:
    used = quota.status.used.get(resource, "0")
    more = quantity.parse(peak).add(quantity.parse(now).times(-1))
    if more.compare(quantity.ZERO) <= 0:
        return None
    wanted = quantity.parse(used).add(more)
    return QuotaCheck(
        quota=quota.metadata.name,
        resource=resource,
        hard=hard,
        used=used,
        more=str(more),
        is_enough=wanted.compare(quantity.parse(hard)) <= 0,
    )
