"""A run as its evidence records it, built state by state and write by write; each test then changes
one thing.
"""

from typing import Any

import msgspec

from chaos.checker.evidence import EvidenceObject, ObservedState, Write
from common.bus.subjects import ObjectRef

NAMESPACE = "ns"


class HistoryBuilder:
    """Builds states and writes in the order in which they are added; versions count up."""

    def __init__(self) -> None:
        self.seen: list[ObservedState] = []
        self.writes: list[Write] = []
        self._version = 0

    def state(
        self, kind: str, name: str, *, at: float = 0.0, is_gone: bool = False, **fields: Any
    ) -> "HistoryBuilder":
        """Add a state; `labels`, `annotations`, `spec` and `status` as JSON."""
        self._version += 1
        meta = {
            "name": name,
            "namespace": NAMESPACE,
            "uid": f"uid-{name}",
            "labels": fields.get("labels", {}),
            "annotations": fields.get("annotations", {}),
            "deletionTimestamp": "2026-01-01T00:00:00Z" if fields.get("is_going") else None,
        }
        body = {
            "metadata": meta,
            "spec": fields.get("spec", {}),
            "status": fields.get("status", {}),
        }
        found = msgspec.convert(body, EvidenceObject)
        self.seen.append(
            ObservedState(kind=kind, version=self._version, at=at, object=found, is_gone=is_gone)
        )
        return self

    def cluster(
        self, name: str, *, workers: int = 1, service: str = "", spec_hash: str = "h", **more: Any
    ) -> "HistoryBuilder":
        """Add a RayCluster, of a RayService if one is named."""
        labels = {
            "ray.io/originated-from-cr-name": service,
            "ray.io/originated-from-crd": "RayService",
        }
        group = {"groupName": "g", "replicas": workers, **more.pop("group", {})}
        return self.state(
            "RayCluster",
            name,
            labels=labels if service else {},
            annotations={"ray.io/hash-without-replicas-and-workers-to-delete": spec_hash},
            spec={"workerGroupSpecs": [group], **more.pop("spec", {})},
            **more,
        )

    def pod(
        self,
        name: str,
        *,
        cluster: str = "c",
        node: str = "worker",
        phase: str = "Running",
        index: str = "",
        **more: Any,
    ) -> "HistoryBuilder":
        """Add a pod; `index` is that of its replica, if it has one."""
        labels = {
            "ray.io/cluster": cluster,
            "ray.io/node-type": node,
            "ray.io/group": "g" if node == "worker" else "headgroup",
        }
        if index:
            labels["ray.io/worker-group-replica-index"] = index
        return self.state("Pod", name, labels=labels, status={"phase": phase}, **more)

    def service(
        self,
        name: str = "s",
        *,
        active: str = "",
        pending: str = "",
        generation: int = 1,
        **more: Any,
    ) -> "HistoryBuilder":
        """Add a RayService."""
        status = {
            "activeServiceStatus": {"rayClusterName": active},
            "pendingServiceStatus": {"rayClusterName": pending},
            "observedGeneration": generation,
        }
        return self.state("RayService", name, status=status, **more)

    def route(
        self, weights: dict[str, int], *, service: str = "s", **more: Any
    ) -> "HistoryBuilder":
        """Add the HTTPRoute of a RayService; weights by cluster."""
        backends = [
            {"name": f"{cluster}-serve-svc", "weight": weight}
            for cluster, weight in weights.items()
        ]
        return self.state(
            "HTTPRoute", f"{service}-httproute", spec={"rules": [{"backendRefs": backends}]}, **more
        )

    def lease(
        self,
        replica: str,
        partitions: str,
        *,
        is_gone: bool = False,
        service: str = "cluster-reconciler",
    ) -> "HistoryBuilder":
        """Add a Lease of a replica, and the write that made it."""
        name = f"raybus-{service}-{replica}"
        is_new = all(each.object.metadata.name != name for each in self.seen)
        self.state("Lease", name, annotations={"p": partitions}, is_gone=is_gone)
        if is_new:
            self.writes.append(
                a_write(
                    version=self._version,
                    resource="leases",
                    name=name,
                    replica=replica,
                    verb="create",
                    top_owner=None,
                )
            )
        return self

    def write(self, **fields: Any) -> "HistoryBuilder":
        """Add a write."""
        self._version += 1
        self.writes.append(a_write(**{"version": self._version, **fields}))
        return self


def a_write(**fields: Any) -> Write:
    """Return an update of cluster `c` by replica `a`."""
    defaults: dict[str, Any] = {
        "version": 1,
        "at": 0.0,
        "service": "cluster-reconciler",
        "replica": "a",
        "verb": "update",
        "resource": "rayclusters/status",
        "namespace": NAMESPACE,
        "name": "c",
        "based_on": "1",
        "top_owner": ObjectRef("RayCluster", NAMESPACE, "c"),
    }
    return Write(**{**defaults, **fields})


def partitions_of(lease: ObservedState) -> frozenset[int]:
    """Read the partitions of our Leases."""
    return frozenset(
        int(each) for each in lease.object.metadata.annotations["p"].split(",") if each
    )
