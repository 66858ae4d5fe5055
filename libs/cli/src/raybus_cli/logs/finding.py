"""Finds the logs that the options select: of a cluster's pods, or of Serve replicas.

A deleted cluster has no logs.
"""

import contextlib
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from common import errors, labels
from common.api.core import Pod
from common.api.meta import Items, rfc3339
from common.api.ray_cluster import RayCluster
from common.api.ray_job import RayJob
from common.api.ray_service import RayService
from common.kube.client import KubeClient
from common.kube.resources import (
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    format_selector,
)
from common.ray import owner
from common.ray.dashboard import APPLICATIONS, MAX_STATUS_SIZE
from common.upgrade.receipt import Receipt, UpgradeOutcome, receipt_of
from raybus_cli import session
from raybus_cli.logs import replicas, selection, submitters
from raybus_cli.logs.selection import Log, LogChoice, LogExtent
from raybus_cli.reading import reader
from raybus_cli.reading.kinds import NamedTarget

BUNDLE_HINT = "its logs went with its pods; --bundle FILE reads those that 'raybus bundle' kept"


def build_gone_error(
    cluster: str, services: Iterable[RayService], instead: str = ""
) -> errors.Rejected | None:
    """Return the error for a cluster that an upgrade replaced or gave up.

    The result is None if no RayService in `services` has a final record of such an upgrade.
    `instead` is a remedy that the message includes.
    """
    for service in services:
        if (receipt := receipt_of(service)) is not None and (
            why := _explain_absence(cluster, receipt)
        ):
            since = f"RayCluster {cluster} is gone since {rfc3339(receipt.finished)}: {why}"
            return errors.Rejected("; ".join(filter(None, (since, instead, BUNDLE_HINT))))
    return None


def _explain_absence(cluster: str, receipt: Receipt) -> str:
    if cluster == receipt.old and receipt.outcome is UpgradeOutcome.PROMOTED:
        return f"the upgrade to {receipt.new} replaced it"
    if cluster == receipt.new and receipt.outcome is not UpgradeOutcome.PROMOTED:
        return f"the upgrade to it from {receipt.old} ended as {receipt.outcome}"
    return ""


DECLARATIVE_API: Final = {"api_type": "declarative"}
Report = Callable[[str], None]
"""Function that receives a message for the user about the selected logs."""


class SelectedLogs(msgspec.Struct, frozen=True):
    """The selected logs; at least one."""

    logs: list[Log]
    headers: dict[str, str] = {}
    """HTTP headers of requests to Ray's dashboard; they contain its token."""


async def find(
    kube: KubeClient,
    namespace: str,
    target: NamedTarget,
    choice: LogChoice,
    extent: LogExtent,
    *,
    report: Report,
) -> SelectedLogs:
    """Return the selected logs of a RayService or RayCluster.

    Raises `Rejected` if there are none or too many.
    """
    name = target.name
    if target.resource is RAY_SERVICE:
        name = await _find_cluster(kube, namespace, target, choice, report)
    if choice.is_of_serve or target.resource is RAY_CLUSTER:
        cluster = await _read_cluster(kube, namespace, name)
        if choice.is_of_serve:
            return await _find_replica_logs(kube, namespace, cluster, choice, extent)
    body = await kube.list(POD, namespace, label_selector=format_selector({labels.CLUSTER: name}))
    pods = selection.select_pods(
        msgspec.json.decode(body, type=Items[Pod]).items, choice, name, target
    )
    of = None
    if choice.container is None and any(len(pod.spec.containers) > 1 for pod in pods):
        # Without the right to read the RayCluster, the first container counts as Ray's.
        with contextlib.suppress(errors.RaybusError):
            of = await reader.read_ray_cluster(kube, namespace, name)
    return SelectedLogs(selection.select_logs(namespace, pods, choice, extent, of))


async def find_driver_logs(
    kube: KubeClient, namespace: str, job: RayJob, choice: LogChoice, extent: LogExtent
) -> SelectedLogs:
    """Return the logs of the pods that submit a RayJob; raise `Rejected` if there are none."""
    if not submitters.has_submitter(job):
        raise errors.Rejected(
            f"no pod has the log of the driver of RayJob {job.metadata.name}: its submissionMode "
            f"is {job.spec.submission_mode}"
        )
    pods: list[Pod] = []
    if selector := submitters.build_selector(job):
        body = await kube.list(POD, namespace, label_selector=selector)
        pods = msgspec.json.decode(body, type=Items[Pod]).items
    return SelectedLogs(submitters.select_logs(namespace, job, pods, choice, extent))


async def _find_cluster(
    kube: KubeClient, namespace: str, target: NamedTarget, choice: LogChoice, report: Report
) -> str:
    service, known = await reader.read_ray_service(kube, namespace, target.name), list[str]()
    if choice.cluster not in {None, selection.ACTIVE, selection.PENDING}:
        body = await kube.list(
            RAY_CLUSTER, namespace, label_selector=format_selector(owner.marks(target.name))
        )
        known = [
            item.metadata.name for item in msgspec.json.decode(body, type=Items[RayCluster]).items
        ]
        if (
            choice.cluster not in known
            and (problem := build_gone_error(choice.cluster or "", [service])) is not None
        ):
            raise problem
    name = selection.select_cluster(service, choice.cluster, known)
    if choice.cluster is None and name != service.status.active_service_status.ray_cluster_name:
        report(f"no cluster is active yet; these are the logs of the pending one, {name}")
    return name


async def _read_cluster(kube: KubeClient, namespace: str, name: str) -> RayCluster:
    """Read a RayCluster.

    If the cluster was deleted and a RayService's upgrade record names it, the error says when.
    """
    try:
        return await reader.read_ray_cluster(kube, namespace, name)
    except session.NoSuchObject as problem:
        services: list[RayService] = []
        with contextlib.suppress(errors.RaybusError):
            services = await reader.list_objects(kube, RAY_SERVICE, RayService, namespace, "")
        raise build_gone_error(name, services) or problem from problem


async def _find_replica_logs(
    kube: KubeClient, namespace: str, cluster: RayCluster, choice: LogChoice, extent: LogExtent
) -> SelectedLogs:
    head = await session.find_dashboard(kube, cluster)
    service, path = head.name, SERVICE.proxy(namespace, head.name, replicas.PORT, APPLICATIONS)
    try:
        body = await kube.request(
            "GET", path, query=DECLARATIVE_API, headers=head.headers, max_size=MAX_STATUS_SIZE
        )
    except errors.Unauthenticated as problem:
        raise session.build_token_error(problem, head, cluster) from problem
    except (errors.NotFound, errors.Unavailable) as problem:
        raise errors.Rejected(
            f"the dashboard at {service} cannot be reached through the API server: {problem}; is "
            "the head ready? Its log: --head"
        ) from problem
    logs = selection.limit_logs(
        replicas.select_logs(replicas.decode(body), namespace, service, choice, extent)
    )
    return SelectedLogs(logs, head.headers)
