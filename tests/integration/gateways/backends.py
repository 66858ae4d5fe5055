"""The HTTP servers of all pods: each answers at the address of its pod, while the pod exists.

They stand in for Ray Serve's proxies. A request at an address without a pod is not answered, as on
a node where the pod has gone.
"""

import asyncio
from collections import Counter, defaultdict
from typing import Final

import msgspec
from aiohttp import web

from bench.heads import Heads
from common import labels
from common.bus.messages import ObjectMessage, ObjectState
from common.kube.resources import POD
from support.fakes.listener import Recorder

REQUEST: Final = "x-request"
"""Header with the number of a request. A copy of a request has the same number."""


class Answer(msgspec.Struct, frozen=True):
    """The body of an answer."""

    cluster: str


class PodStatus(msgspec.Struct, rename="camel", frozen=True):
    """The address of a pod."""

    pod_ip: str = msgspec.field(name="podIP", default="")


class PodMetadata(msgspec.Struct, frozen=True):
    """Name and labels of a pod."""

    name: str
    labels: dict[str, str] = {}


class PodBody(msgspec.Struct, frozen=True):
    """The part of a pod that its server depends on."""

    metadata: PodMetadata
    status: PodStatus = PodStatus()


class Backends(Recorder):
    """The servers of all pods of a namespace, and the requests that they got."""

    def __init__(self, heads: Heads) -> None:
        super().__init__()
        self.clusters: dict[str, str] = {}
        """The cluster of each pod by the pod's address. More addresses may be added."""
        self.takers: defaultdict[str, list[str]] = defaultdict(list)
        """The clusters that got a request, by the number of the request."""
        self._pods: dict[str, str] = {}
        """Addresses by the pod's name."""
        self._ongoing: Counter[str] = Counter()
        self._answered: Counter[str] = Counter()
        heads.answer_user = self.answer
        heads.write_metrics = self.write_metrics

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        super().take(message, trace=trace)
        if message.kind != POD.kind:
            return
        former = self._pods.pop(message.name, None)
        if former is not None:
            self.clusters.pop(former, None)
        if isinstance(message, ObjectState):
            pod = msgspec.json.decode(message.body, type=PodBody)
            if pod.status.pod_ip:
                self._pods[pod.metadata.name] = pod.status.pod_ip
                self.clusters[pod.status.pod_ip] = pod.metadata.labels.get(labels.CLUSTER, "")

    async def answer(self, address: str, request: web.Request) -> web.Response:
        """Answer with the name of the cluster, after `?seconds=` seconds."""
        cluster = self.clusters.get(address)
        if cluster is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        self.takers[request.headers.get(REQUEST, "")].append(cluster)
        self._ongoing[address] += 1
        try:
            await asyncio.sleep(float(request.query.get("seconds", "0")))
        finally:
            self._ongoing[address] -= 1
            self._answered[address] += 1
        return web.json_response(msgspec.to_builtins(Answer(cluster)))

    def write_metrics(self, pod: str) -> str:
        """Return the metrics of a pod as Ray exports them: its ongoing and its answered requests."""
        address = self._pods.get(pod, "")
        answered = f'application="app",route="/",status_code="200",WorkerId="{pod}"'
        return (
            f'ray_serve_num_ongoing_http_requests{{node_id="{pod}"}} {self._ongoing[address]}.0\n'
            f"ray_serve_num_http_requests_total{{{answered}}} {self._answered[address]}.0\n"
        )
