"""Reads the request metrics of pods through the API server's proxy, with the rights of the caller."""

import asyncio
from typing import Final

import msgspec

from common import errors, labels, ports
from common.api.core import Pod
from common.api.meta import Items
from common.kube.client import KubeClient
from common.kube.resources import POD, label_selector
from common.ray import dashboard, request_metrics
from common.ray.request_metrics import Sample
from common.ray.serve_api import address
from raybus_cli.policy.trial import Measured, Unread

AT_ONCE: Final = 16
SECONDS: Final = 10.0
"""For the metrics of one pod."""


async def measure(kube: KubeClient, namespace: str, cluster: str) -> Measured:
    """Return what the pods of a cluster report; raise `Rejected` where none of them does."""
    body = await kube.list(POD, namespace, label_selector=label_selector({labels.CLUSTER: cluster}))
    pods = sorted(msgspec.json.decode(body, type=Items[Pod]).items, key=lambda each: each.metadata.name)
    gate, found, unread = asyncio.Semaphore(AT_ONCE), list[Sample](), list[Unread]()

    async def ask(pod: Pod) -> None:
        async with gate:
            try:
                found.append(await _sample(kube, pod))
            except errors.RaybusError as problem:
                unread.append(Unread(pod=pod.metadata.name, problem=str(problem)))

    async with asyncio.TaskGroup() as group:
        for pod in pods:
            group.create_task(ask(pod))
    unread.sort(key=lambda each: each.pod)
    if not found:
        why = f"{unread[0].pod}: {unread[0].problem}" if unread else "it has no pods"
        raise errors.Rejected(f"no pod of RayCluster {cluster} reports its requests ({why})")
    return Measured(cluster=cluster, sample=request_metrics.total(found), unread=tuple(unread))


async def _sample(kube: KubeClient, pod: Pod) -> Sample:
    port = address(pod, "metrics", ports.METRICS).port
    path = POD.proxy(pod.metadata.namespace, pod.metadata.name, port, dashboard.METRICS)
    try:
        async with asyncio.timeout(SECONDS):
            body = await kube.request("GET", path, most=dashboard.LARGEST_METRICS)
    except TimeoutError as problem:
        raise errors.Unavailable(f"no answer within {SECONDS:g} s") from problem
    sample = request_metrics.parse(body)
    if sample is None:
        raise errors.Unavailable(f"port {port} has no metrics of Ray that can be read")
    return sample
