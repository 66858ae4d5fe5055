"""The metrics and labels that KubeRay's own operator dashboard reads.

Tests check that raybus has these metrics. They concern RayClusters, RayServices and controllers.
Two groups are left out: metrics of the Go runtime, and metrics of RayJobs, which have series only
while there are RayJobs.
"""

from collections.abc import Iterator
from typing import Final

import msgspec

_POD: Final = frozenset({"namespace", "pod", "controller"})
_CONDITION: Final = frozenset({"namespace", "name", "condition"})


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """What KubeRay's dashboard reads of a metric."""

    labels: frozenset[str]
    """Labels that the dashboard selects or groups by."""
    values: dict[str, tuple[str, ...]] = {}
    """Label values that the dashboard selects, by label."""
    is_counter: bool = False
    is_histogram: bool = False


READ: Final = {
    "workqueue_depth": Read(labels=_POD),
    "controller_runtime_active_workers": Read(labels=_POD),
    "controller_runtime_reconcile_total": Read(labels=_POD | {"result"}, is_counter=True),
    "controller_runtime_reconcile_time_seconds_bucket": Read(
        labels=_POD | {"le"}, is_histogram=True
    ),
    "kuberay_cluster_info": Read(labels=frozenset({"namespace", "name", "owner_kind"})),
    "kuberay_cluster_provisioned_duration_seconds": Read(labels=frozenset({"namespace", "name"})),
    "kuberay_cluster_condition_provisioned": Read(
        labels=_CONDITION, values={"condition": ("false",)}
    ),
    "kuberay_service_info": Read(labels=frozenset({"namespace", "name"})),
    "kuberay_service_condition_ready": Read(labels=_CONDITION, values={"condition": ("false",)}),
    "kuberay_service_condition_upgrade_in_progress": Read(
        labels=_CONDITION, values={"condition": ("true",)}
    ),
}
LABELS: Final = {metric: read.labels for metric, read in READ.items()}


def questions() -> list[str]:
    """Return queries that give results only if each metric has the labels that KubeRay reads."""
    return [question for metric, read in READ.items() for question in _questions(metric, read)]


def _questions(metric: str, read: Read) -> Iterator[str]:
    chosen = ", ".join(f'{label}=~".+"' for label in sorted(read.labels))
    by = ", ".join(sorted(read.labels - {"le"}))
    for label, values in read.values.items():
        for value in values:
            yield f'{metric}{{{chosen}, {label}="{value}"}}'
    if read.is_histogram:
        yield from (
            f"histogram_quantile({q}, sum by (le, {by}) (rate({metric}{{{chosen}}}[5m])))"
            for q in (0.5, 0.99)
        )
    elif read.is_counter:
        yield f"irate({metric}{{{chosen}}}[10s])"
    else:
        yield f"count by ({by}) ({metric}{{{chosen}}})"
