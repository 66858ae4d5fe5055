"""What is around RayServices besides their controllers: an API server, RayClusters that come up, Serve, endpoints."""

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


class Surroundings:
    """A namespace of RayServices; the methods let it move on, a moment at a time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.kube = FakeKube(now=clock.now)
        self.serve = FakeServe(clock)
        self.start_seconds = 1.0
        """How long a cluster takes until its head is ready."""
        self.holds_pods = False
        """With it no new cluster gets a ready head."""
        self.sidecars: list[Json] = []
        """Containers that come before Ray's in the pods as they run, as a mesh puts its proxy."""
        self.freezes_endpoints = False
        """With it the test alone writes EndpointSlices."""
        self._born: dict[str, float] = {}
        self._followed = 0
        """The last change that endpoints have followed."""

    def clusters_move_on(self) -> None:
        """Give each cluster its pods, and in its time a ready head."""
        for cluster in self.kube.all(RAY_CLUSTER):
            name = cluster["metadata"]["name"]
            born = self._born.setdefault(cluster["metadata"]["uid"], self._clock.monotonic())
            if (POD.kind, NAMESPACE, f"{name}-head") not in self.kube.objects:
                self._create_parts(cluster)
            age = self._clock.monotonic() - born
            if (
                age >= self.start_seconds
                and not self.holds_pods
                and not cluster.get("status", {}).get("conditions")
            ):
                self._become_ready(name)
            self._probe_worker(cluster)

    def _probe_worker(self, cluster: Body) -> None:
        """Take a worker's readiness away once its node has no proxy at the port that is asked."""
        name = cluster["metadata"]["name"]
        pod: Json = self.kube.objects.get((POD.kind, NAMESPACE, f"{name}-worker"), {})
        status: Json = pod.get("status", {})
        if status.get("conditions") != READY:
            return
        port = serve_proxies.port_of(pod["spec"]["containers"][len(self.sidecars)])
        head = self.serve.head(f"{name}-head-svc")
        if not head.listens(port, on_head=False):
            not_ready = {**status, "conditions": [{"type": "Ready", "status": "False"}]}
            self.kube.set_status(POD, NAMESPACE, f"{name}-worker", not_ready)

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
        self.kube.put(
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
            self.kube.put(POD, pod)
        head = self.serve.head(f"{name}-head-svc")
        head.nodes, head.head_node = [f"ip-{name}-worker"], f"ip-{name}-head"

    def _become_ready(self, name: str) -> None:
        now = rfc3339(self._clock.now())
        for role in ("head", "worker"):
            status = {
                "phase": "Running",
                "podIP": f"ip-{name}-{role}",
                "conditions": READY,
            }
            self.kube.set_status(POD, NAMESPACE, f"{name}-{role}", status)
        ready = {
            "type": "HeadPodReady",
            "status": "True",
            "reason": "HeadPodRunningAndReady",
            "message": "",
            "lastTransitionTime": now,
        }
        status = {"state": "ready", "conditions": [ready], "head": {"podIP": f"ip-{name}-head"}}
        self.kube.set_status(RAY_CLUSTER, NAMESPACE, name, status)

    def endpoints_follow(self) -> None:
        """Let each Service of a head or for requests list the running pods that it selects."""
        if self.freezes_endpoints or self._followed == self.kube.version:
            return
        pods = self.kube.all(POD)
        for service in self.kube.all(SERVICE):
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
            self.kube.put(ENDPOINT_SLICE, body)
        self._followed = self.kube.version


def _containers(cluster: Body, role: str) -> list[Json]:
    spec = cluster["spec"]
    group = spec["headGroupSpec"] if role == "head" else spec["workerGroupSpecs"][0]
    return group["template"]["spec"]["containers"]
