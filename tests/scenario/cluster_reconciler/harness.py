"""cluster-reconciler on a fake API server and a fake clock: state in → key → state out.

`settle` reconciles enqueued keys until nothing changes any more; `kubelet` lets pods run; `pass_time` lets requeued keys become due.
What was written, and why, stands in `trace`.
"""

from collections import deque
from datetime import datetime
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from cluster_reconciler import wiring
from cluster_reconciler.config import Config
from cluster_reconciler.wiring import keys_of
from common import errors, labels
from common.api import ray_cluster
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import POD, RAY_CLUSTER
from common.runtime.key import Key
from support.builders.ray_cluster import a_ray_cluster
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube
from support.plans import checked

NAMESPACE = "ns"
LIMIT = 100
"""Reconciles after which a harness that does not settle counts as a hot loop."""


class Harness:
    """One replica of the service and everything around it."""

    def __init__(self, config: Config | None = None, *, kube: FakeKube | None = None) -> None:
        self.clock = FakeClock()
        self.kube = kube or FakeKube(now=self.clock.now)
        self.kube.on_change.append(self.deliver)
        self.config = config or Config()
        self.trace: list[str] = []
        self.errors: list[errors.RaybusError] = []
        self.is_deaf = False
        """Whether changes do not reach the service, because the bus is late."""
        self.start()

    def start(self) -> None:
        """Start a replica that knows what the API server holds."""
        self.registry = CollectorRegistry()
        self.app = checked(
            wiring.assemble(
                self.kube, self.config, clock=self.clock, instance="test", registry=self.registry
            )
        )
        self._enqueued: deque[Key] = deque()
        self.promised: dict[Key, datetime] = {}
        for (kind, _, _), body in self.kube.objects.items():
            self.deliver(kind, body)

    # --- what users and the cluster do ---------------------------------------------------------------------------------

    def apply(self, cluster: RayCluster) -> None:
        """Create or change a RayCluster as a user does."""
        meta = cluster.metadata
        body: Body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {
                "name": meta.name,
                "namespace": meta.namespace,
                "labels": meta.labels,
                "annotations": meta.annotations,
            },
            "spec": cluster.raw_spec,
        }
        known = self.kube.objects.get(("RayCluster", meta.namespace, meta.name))
        if known is not None:
            body["status"] = known.get("status", {})
        self.kube.put(RAY_CLUSTER, body)

    def kubelet(self, **status: Any) -> None:
        """Let every pod that has no status yet run and be ready."""
        for number, pod in enumerate(self.pods()):
            if pod.get("status", {}).get("phase") is None:
                ready: Body = {"type": "Ready", "status": "True"}
                running: Body = {
                    "phase": "Running",
                    "podIP": f"10.0.0.{number}",
                    "conditions": [ready],
                    **status,
                }
                self.kube.set_status(POD, NAMESPACE, pod["metadata"]["name"], running)

    def fail(self, name: str, phase: str = "Failed") -> None:
        """Let a pod end."""
        self.kube.set_status(POD, NAMESPACE, name, {"phase": phase})

    def finish_deletions(self) -> None:
        """Let every pod go that is Terminating."""
        for pod in self.pods():
            if "deletionTimestamp" in pod["metadata"]:
                self.kube.finish_deletion(POD, NAMESPACE, pod["metadata"]["name"])

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and reconcile the keys that were requeued for it."""
        self.clock.advance(seconds)
        due = [key for key, when in self.promised.items() if when <= self.clock.now()]
        self._enqueued.extend(due)
        await self.settle()

    # --- what the service does -----------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Reconcile enqueued keys until there are none; a failed reconcile is repeated when something changes."""
        for _ in range(LIMIT):
            if not self._enqueued:
                return
            await self.reconcile(self._enqueued.popleft())
        raise AssertionError(f"not at rest after {LIMIT} reconciles: {self.trace[-10:]}")

    async def reconcile(self, key: Key | None = None) -> None:
        """Reconcile one key once."""
        key = key or Key(NAMESPACE, "c")
        seen = len(self.kube.requests)
        self.promised.pop(key, None)
        try:
            again = await self.app.reconciler(key, self.clock.now())
        except errors.RaybusError as problem:
            self.errors.append(problem)
            self.trace.append(f"error {type(problem).__name__}: {problem}")
        else:
            self._promise(key, again)
        self._note(seen)

    def deliver(self, kind: str, body: Body, is_gone: bool = False) -> None:
        """Deliver the state of an object to the service, as the bus does."""
        view = wiring.KINDS.get(kind)
        if view is None or self.is_deaf:
            return
        obj = msgspec.json.decode(msgspec.json.encode(body), type=view)
        meta = obj.metadata
        cache = self.app.observer.cache
        if is_gone:
            changed = cache.remove(
                view, meta.namespace, meta.name, version=int(meta.resource_version)
            )
        else:
            changed = cache.put(obj)
        if changed:
            self._enqueued.extend(key for key in keys_of(obj) if key not in self._enqueued)

    # --- what is to be seen --------------------------------------------------------------------------------------------

    def cluster(self, name: str = "c") -> RayCluster:
        """Return a RayCluster as the API server holds it."""
        return ray_cluster.decode(self.kube.objects["RayCluster", NAMESPACE, name])

    def conditions(self) -> dict[str, tuple[str, str]]:
        """Return status and reason by type."""
        return {each.type: (each.status, each.reason) for each in self.cluster().status.conditions}

    def pods(self, kind: str | None = None, group: str | None = None) -> list[Body]:
        """Return the pods, by name."""
        return [
            pod
            for pod in self.kube.all(POD, NAMESPACE)
            if kind in {None, pod["metadata"]["labels"].get(labels.NODE_TYPE)}
            and group in {None, pod["metadata"]["labels"].get(labels.GROUP)}
        ]

    def names(self, kind: str | None = None, group: str | None = None) -> list[str]:
        """Return the names of the pods."""
        return [pod["metadata"]["name"] for pod in self.pods(kind, group)]

    def reasons(self) -> list[str]:
        """Return the reasons of all Events, in order."""
        return [reason for _, reason, _ in self.kube.events()]

    # --- inside --------------------------------------------------------------------------------------------------------

    def _promise(self, key: Key, again: datetime | None) -> None:
        if again is None:
            return
        if again <= self.clock.now():
            self._enqueued.append(key)
        else:
            self.promised[key] = again

    def _note(self, seen: int) -> None:
        for request in self.kube.requests[seen:]:
            if request.verb not in {"get", "list"}:
                is_event = request.kind == "Event" and request.verb == "create"
                self.trace.append(f"event {request.body['reason']}" if is_event else str(request))


async def a_running_harness(
    cluster: RayCluster | None = None, config: Config | None = None
) -> Harness:
    """Return a harness with a cluster that has all its pods running."""
    harness = Harness(config)
    harness.apply(cluster or a_ray_cluster())
    await harness.settle()
    harness.kubelet()
    await harness.settle()
    harness.trace.clear()
    harness.kube.requests.clear()
    return harness
