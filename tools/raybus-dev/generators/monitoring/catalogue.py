"""Finds every metric that raybus's code declares, and generates docs/metrics.md.

The source files are searched for declarations, so the page cannot lack a new metric.
"""

import importlib
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import Final, cast

import msgspec
from prometheus_client.metrics import MetricWrapperBase

from common.observability.metrics import MetricFamily
from support.manifests import ROOT

OWNERS: Final = {
    "common": "Every service",
    "watcher": "watcher",
    "cluster_reconciler": "cluster-reconciler",
    "service_reconciler": "service-reconciler",
    "traffic_manager": "traffic-manager",
    "job_reconciler": "job-reconciler",
    "nats_admin": "The container keeper beside each NATS server",
    "notifications": "notifications",
}
"""The title of each package's section on the metrics page, in the order of the page."""
_DECLARES: Final = re.compile(
    r"^[A-Z_]+: Final = (Counter|Gauge|Histogram|MetricFamily)\(", re.MULTILINE
)
_UNITS: Final = {
    "_timestamp_seconds": "Unix time in seconds",
    "_seconds": "seconds",
    "_bytes": "bytes",
    "_percent": "percent",
}
_HEAD: Final = """\
# Metrics

Each service, and the container beside each NATS server, answers `GET /metrics` on its HTTP port
(8080 in the cluster) in Prometheus' text format. `make golden` generates this page from the code.
`deploy/monitoring/` contains a scrape configuration, alerts and dashboards; [alerts](alerts.md)
lists the actions.

Names that begin with `kuberay_`, `controller_runtime_`, `workqueue_`, `rest_client_` and
`leader_election_` are KubeRay's, with its labels, so its dashboards continue to work. `raybus_` is
raybus's. Scrape with `honor_labels: true`, as with KubeRay, because Prometheus must keep the
object's label `namespace`.

A series about an object ends with the object. Only the replica that owns the object exports the
series, so sums over replicas are correct. Each scrape computes these series from the objects, so a
restart loses none.

Each process also exports the metrics of the Python client: `process_cpu_seconds_total`,
`process_resident_memory_bytes`, `process_open_fds`, `process_max_fds`,
`process_start_time_seconds`, `process_virtual_memory_bytes`, `python_info`, `python_gc_*`. Of
KubeRay's metrics, raybus lacks `go_*`, and the `rest_client_*` metrics of a rate limiter, of DNS
lookups and of retries, because its client has none of these.
"""


class MetricRow(msgspec.Struct, frozen=True, kw_only=True):
    """A metric: one row of the metrics page."""

    name: str
    type: str
    labels: tuple[str, ...]
    text: str

    @property
    def unit(self) -> str:
        """The unit, according to the end of the metric's name; empty if the name has none."""
        bare = self.name.removesuffix("_total")
        return next((unit for ending, unit in _UNITS.items() if bare.endswith(ending)), "")


def metrics() -> dict[str, list[MetricRow]]:
    """Return all metrics by the title of their section."""
    rows: dict[str, list[MetricRow]] = {title: [] for title in OWNERS.values()}
    for path in _sources():
        package = path.relative_to(
            next(parent for parent in path.parents if parent.name == "src")
        ).with_suffix("")
        module = ".".join(package.parts)
        rows[OWNERS[package.parts[0]]] += _of(importlib.import_module(module))
    return rows


def names() -> set[str]:
    """Return the names under which Prometheus stores the metrics. A histogram has three names."""
    rows = [row for part in metrics().values() for row in part]
    return {name for row in rows for name in _exposed(row)}


def _exposed(metric: MetricRow) -> list[str]:
    if metric.type != "histogram":
        return [metric.name]
    return [f"{metric.name}_{end}" for end in ("bucket", "sum", "count")]


def page() -> str:
    """Return the text of the metrics page."""
    lines = [_HEAD]
    for title, part in metrics().items():
        lines += [
            f"## {title}",
            "",
            "| metric | type | labels | unit | meaning |",
            "|---|---|---|---|---|",
        ]
        for metric in part:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(
                f"| `{metric.name}` | {metric.type} | {labels} | {metric.unit} | {metric.text} |"
            )
        lines.append("")
    return "\n".join(lines)


def _sources() -> Iterator[Path]:
    shared = (
        ROOT / "libs" / package / "src" for package in ("common", "nats-admin", "notifications")
    )
    for folder in sorted((*shared, *(ROOT / "services").glob("*/src"))):
        for path in sorted(folder.rglob("*.py")):
            if _DECLARES.search(path.read_text()):
                yield path


def _of(module: ModuleType) -> Iterator[MetricRow]:
    held = [
        list(cast("dict[object, object]", attribute).values())
        if isinstance(attribute, dict)
        else [attribute]
        for attribute in vars(module).values()
    ]
    for declared in chain.from_iterable(held):
        if isinstance(declared, MetricFamily):
            kind = "counter" if declared.is_counter else "gauge"
            yield MetricRow(
                name=declared.name, type=kind, labels=declared.labels, text=declared.text
            )
        elif isinstance(declared, MetricWrapperBase):
            (reported,) = declared.describe()
            labels = cast("tuple[str, ...]", vars(declared)["_labelnames"])  # not public elsewhere
            ending = "_total" if reported.type == "counter" else ""
            yield MetricRow(
                name=reported.name + ending,
                type=reported.type,
                labels=labels,
                text=reported.documentation,
            )
