"""The example controller on a fake API server, with the kit's own queue and workers in virtual time.

A change reaches the controller at once, unless the bus is late: then messages wait until `deliver`.
"""

import asyncio
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Final

import msgspec

from common.api.opaque import Body, Json
from common.clock import SystemClock
from common.kube.resources import RAY_CLUSTER, SERVICE
from common.runtime.replica import ReconcilerParts
from support.builders.messages import a_state, a_tombstone
from support.builders.ray_cluster import a_ray_cluster
from support.fakes.kube import FakeKube, Request
from support.manifests import ROOT

EXAMPLE: Final = ROOT / "examples" / "controller" / "dashboard_annotation.py"
NAMESPACE: Final = "ns"
SETTLE_SECONDS: Final = 1.0
"""Virtual seconds in which a change is reconciled and a few failures are retried."""


def _load(path: Path) -> ModuleType:
    found = importlib.util.spec_from_file_location(path.stem, path)
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


example: Final = _load(EXAMPLE)


class Harness:
    """One replica of the example controller that holds a partition, and everything around it."""

    def __init__(self) -> None:
        self.kube = FakeKube()
        self.is_bus_late = False
        self._waiting: list[tuple[str, Body, bool]] = []
        with example.assemble(self.kube, SystemClock()) as app:
            self.app: ReconcilerParts = app
        self._listener = self.app.controller.informer.hold(0)
        self._listener.synced(0)
        self.kube.on_change.append(self._receive)

    # --- what users and other controllers do ---------------------------------------------------------------------------

    def apply_cluster(
        self, name: str = "c", *, spec: Json | None = None, **metadata: object
    ) -> None:
        """Create or change a RayCluster; its other metadata stays."""
        known = self.kube.objects.get(("RayCluster", NAMESPACE, name), {})
        meta: Body = {**known.get("metadata", {}), "name": name, "namespace": NAMESPACE, **metadata}
        meta.pop("resourceVersion", None)
        body: Body = {"metadata": meta, "spec": {**a_ray_cluster(name).raw_spec, **(spec or {})}}
        self.kube.put(RAY_CLUSTER, body | {"status": known.get("status", {})})

    def apply_head_service(
        self,
        cluster: str = "c",
        *,
        port: int = 8265,
        metadata: Body | None = None,
        spec: Body | None = None,
    ) -> None:
        """Create or change the head Service of a RayCluster, as cluster-reconciler does."""
        uid = self.kube.objects["RayCluster", NAMESPACE, cluster]["metadata"]["uid"]
        owner: Body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "name": cluster,
            "uid": uid,
            "controller": True,
        }
        meta: Body = {
            "name": f"{cluster}-head-svc",
            "namespace": NAMESPACE,
            "ownerReferences": [owner],
            **(metadata or {}),
        }
        ports: list[Body] = [
            {"name": "dashboard", "port": port},
            {"name": "gcs-server", "port": 6379},
        ]
        self.kube.put(
            SERVICE,
            {"metadata": meta, "spec": {"selector": {"a": "b"}, "ports": ports, **(spec or {})}},
        )

    async def delete_head_service(self, cluster: str = "c") -> None:
        """Delete the head Service of a RayCluster."""
        await self.kube.delete(SERVICE, NAMESPACE, f"{cluster}-head-svc")

    # --- what the controller does --------------------------------------------------------------------------------------

    async def settle(self, seconds: float = SETTLE_SECONDS) -> None:
        """Let the workers run for some virtual seconds."""
        try:
            async with asyncio.timeout(seconds):
                await self.app.run(workers=2)
        except TimeoutError:
            pass

    def enqueue(self, name: str = "c") -> None:
        """Enqueue a key without a change."""
        self.app.controller.queue.add(example.Key(NAMESPACE, name))

    def deliver(self) -> None:
        """Deliver the messages that wait: the bus is in time again."""
        self.is_bus_late = False
        waiting, self._waiting = self._waiting, []
        for kind, body, is_gone in waiting:
            self._receive(kind, body, is_gone)

    # --- what is to be seen --------------------------------------------------------------------------------------------

    def address(self, cluster: str = "c") -> str | None:
        """Return the annotation of a RayCluster as the API server holds it; None without one."""
        annotations: Mapping[str, str] = self._metadata(cluster).get("annotations", {})
        return annotations.get(example.ANNOTATION)

    def labels(self, cluster: str = "c") -> Mapping[str, str]:
        """Return the labels of a RayCluster as the API server holds them."""
        return self._metadata(cluster).get("labels", {})

    def writes(self) -> list[str]:
        """Return the writes of the controller since the last call."""
        writes = [str(each) for each in self.kube.requests if _is_ours(each)]
        self.kube.requests.clear()
        return writes

    def _metadata(self, cluster: str) -> Body:
        return self.kube.objects["RayCluster", NAMESPACE, cluster]["metadata"]

    def _receive(self, kind: str, body: Body, is_gone: bool) -> None:
        if self.is_bus_late:
            self._waiting.append((kind, body, is_gone))
        else:
            self._listener.take(
                (a_tombstone if is_gone else a_state)(kind, msgspec.json.encode(body)), trace=""
            )


def _is_ours(request: Request) -> bool:
    """Return whether a request comes from the controller and changes something; tests delete Services alone by requests."""
    return request.verb not in {"get", "list"} and (request.verb, request.kind) != (
        "delete",
        "Service",
    )


async def a_harness_at_rest() -> Harness:
    """Return a harness with the RayCluster `c`, its head Service and its annotation."""
    harness = Harness()
    harness.apply_cluster()
    harness.apply_head_service()
    await harness.settle()
    harness.writes()
    return harness
