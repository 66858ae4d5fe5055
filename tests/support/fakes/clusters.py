"""Plays cluster-reconciler, the kubelets and the endpoint controller for the RayClusters of a
namespace.
"""

from collections.abc import Callable
from typing import Final

from common import labels
from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from common.clock import Clock
from common.kube.resources import ENDPOINT_SLICE, POD, RAY_CLUSTER, SERVICE
from common.ray import serve_proxies
from support.builders.ray_service import NAMESPACE
from support.fakes.kube import FakeKube
from support.fakes.serve import FakeServe

READY: Final[list[Json]] = [{"type": "Ready", "status": "True"}]


class FakeClusters:
    """Gives RayClusters their pods and ready heads, and Services their EndpointSlices."""

    def __init__(self, kube: FakeKube, serve: FakeServe, clock: Clock) -> None:
        self._kube = kube
        self._clock = clock
        self._serve = serve
        self.start_seconds = 1.0
        """Seconds until the head of a new cluster is ready."""
        self.holds_pods = False
        """Whether the heads of new clusters never become ready."""
        self.sidecars: list[Json] = []
        """Containers that run before Ray's container in the running pods, like the proxy of a
        service mesh."""
        self.freezes_endpoints = False
        """Whether only the test writes EndpointSlices."""
        self.on_create: list[Callable[[str], None]] = []
        """Functions that are called with the name of each cluster whose pods were just created."""
        self._born: dict[str, float] = {}
        self._followed = 0
        """Number of the API server's last change that EndpointSlices already reflect."""

    def move_on(self) -> None:
        """Create the pods of each cluster, and make its head ready after `start_seconds`."""
        for cluster in self._kube.all(RAY_CLUSTER):
            name = cluster["metadata"]["name"]
            born = self._born.setdefault(cluster["metadata"]["uid"], self._clock.monotonic())
            if (POD.kind, NAMESPACE, f"{name}-head") not in self._kube.objects and not (
                _stays_dead(cluster)
            ):
                self._create_parts(cluster)
            age = self._clock.monotonic() - born
            if (
                age >= self.start_seconds
                and not self.holds_pods
                and not cluster.get("status", {}).get("conditions")
            ):
                self.make_ready(name)
            self._probe_worker(cluster)

    def _probe_worker(self, cluster: Body) -> None:
        """Make a worker unready if its node has no proxy at the probed port."""
        name = cluster["metadata"]["name"]
        pod: Json = self._kube.objects.get((POD.kind, NAMESPACE, f"{name}-worker"), {})
        status: Json = pod.get("status", {})
        if status.get("conditions") != READY:
            return
        port = serve_proxies.port_of(pod["spec"]["containers"][len(self.sidecars)])
        head = self._serve.head(f"{name}-head-svc")
        if not head.listens(port, on_head=False):
            not_ready = {**status, "conditions": [{"type": "Ready", "status": "False"}]}
            self._kube.set_status(POD, NAMESPACE, f"{name}-worker", not_ready)

    def _create_parts(self, cluster: Body) -> None:
        meta = cluster["metadata"]
        owner = [
            {
                "apiVersion": "ray.io/v1",
                "kind": "RayCluster",
                "name": meta["name"],
                "uid": meta["uid"],
                "controller": True,
            }
        ]
        name = meta["name"]
        self._kube.put(
            SERVICE,
            {
                "metadata": {
                    "name": f"{name}-head-svc",
                    "labels": {labels.CLUSTER: name},
                    "ownerReferences": owner,
                },
                "spec": {
                    "selector": {labels.CLUSTER: name},
                    "ports": [{"name": "dashboard", "port": 8265}],
                },
            },
        )
        for role, serve in (("head", "false"), ("worker", "true")):
            marks = {labels.CLUSTER: name, labels.NODE_TYPE: role, labels.SERVE: serve}
            asked = meta.get("annotations", {}).get(labels.GRACEFUL_DRAIN)
            pod = {
                "metadata": {
                    "name": f"{name}-{role}",
                    "labels": marks,
                    "annotations": {labels.GRACEFUL_DRAIN: asked} if asked else {},
                    "ownerReferences": owner,
                },
                "spec": {"containers": [*self.sidecars, *_containers(cluster, role)]},
            }
            self._kube.put(POD, pod)
        head = self._serve.head(f"{name}-head-svc")
        head.nodes, head.head_node = [f"ip-{name}-worker"], f"ip-{name}-head"
        for callback in self.on_create:
            callback(name)

    def replace_head(self, name: str) -> None:
        """Replace the head pod of a cluster; without fault tolerance of its GCS, Ray's jobs are
        lost.
        """
        old = self._kube.objects[POD.kind, NAMESPACE, f"{name}-head"]
        self._kube.finish_deletion(POD, NAMESPACE, f"{name}-head")
        kept = ("name", "namespace", "labels", "ownerReferences")
        metadata = {field: old["metadata"][field] for field in kept}
        new = self._kube.put(POD, {**old, "metadata": metadata})
        assert new["metadata"]["uid"] != old["metadata"]["uid"]
        self._serve.head(f"{name}-head-svc").jobs.forget()

    def make_ready(self, name: str) -> None:
        """Set a cluster's pods to running and its head to ready."""
        now = rfc3339(self._clock.now())
        for role in ("head", "worker"):
            status = {"phase": "Running", "podIP": f"ip-{name}-{role}", "conditions": READY}
            self._kube.set_status(POD, NAMESPACE, f"{name}-{role}", status)
        ready = {
            "type": "HeadPodReady",
            "status": "True",
            "reason": "HeadPodRunningAndReady",
            "message": "",
            "lastTransitionTime": now,
        }
        status = {"state": "ready", "conditions": [ready], "head": {"podIP": f"ip-{name}-head"}}
        self._kube.set_status(RAY_CLUSTER, NAMESPACE, name, status)

    def endpoints_follow(self) -> None:
        """Update the EndpointSlices of each head Service and Serve Service to the running pods that
        it selects.
        """
        if self.freezes_endpoints or self._followed == self._kube.version:
            return
        pods = self._kube.all(POD)
        for service in self._kube.all(SERVICE):
            selector = service["spec"]["selector"]
            if not {labels.SERVE, labels.NODE_TYPE, labels.CLUSTER} & selector.keys():
                continue
            name = service["metadata"]["name"]
            endpoints = [
                {
                    "addresses": [pod["status"]["podIP"]],
                    "conditions": {"ready": pod["status"].get("conditions") == READY},
                    "targetRef": {
                        "kind": "Pod",
                        "name": pod["metadata"]["name"],
                        "uid": pod["metadata"]["uid"],
                    },
                }
                for pod in pods
                if all(
                    pod["metadata"]["labels"].get(key) == value for key, value in selector.items()
                )
                and pod.get("status", {}).get("phase") == "Running"
            ]
            body = {
                "metadata": {
                    "name": f"{name}-1",
                    "labels": {labels.SERVICE_NAME: name},
                    "ownerReferences": [
                        {"kind": "Service", "name": name, "uid": service["metadata"]["uid"]}
                    ],
                },
                "endpoints": endpoints,
            }
            self._kube.put(ENDPOINT_SLICE, body)
        self._followed = self._kube.version


def _stays_dead(cluster: Body) -> bool:
    """Return whether the head of a provisioned cluster is not created again after its deletion."""
    annotations = cluster["metadata"].get("annotations", {})
    is_provisioned = bool(cluster.get("status", {}).get("conditions"))
    return is_provisioned and annotations.get(labels.DISABLE_PROVISIONED_HEAD_RESTART) == "true"


def _containers(cluster: Body, role: str) -> list[Json]:
    spec = cluster["spec"]
    group = spec["headGroupSpec"] if role == "head" else spec["workerGroupSpecs"][0]
    return group["template"]["spec"]["containers"]
