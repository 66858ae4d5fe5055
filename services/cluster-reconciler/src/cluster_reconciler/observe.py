"""All reads of a look, into one frozen value.

The state that the bus told is enough for most of it. Two things are read at the API server itself: children that the state
stream does not carry, now and then; and the list of pods, once before this replica first creates or deletes one of a cluster
that is not brand-new, because the state may be old just after a start (design rules 3 and 5).
"""

from datetime import datetime

import msgspec

from cluster_reconciler import batch, children, refusals
from cluster_reconciler.memory import Memory
from cluster_reconciler.observed import Child, Observed
from cluster_reconciler.ports import Ports
from cluster_reconciler.resources import head_service, owner
from common import errors, labels, names
from common.api.core import Job, Pod, Service
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.bus.cache import version_of
from common.kube.resources import POD, Resource, label_selector
from common.runtime.key import Key

_RAY_NODES = frozenset({labels.HEAD, labels.WORKER, labels.REDIS_CLEANUP})
_CLEANUP = {labels.NODE_TYPE: labels.REDIS_CLEANUP}


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a list."""

    resource_version: str = "0"


class PodList(msgspec.Struct, frozen=True):
    """The answer to a list of pods."""

    items: list[Pod]
    metadata: ListMeta = ListMeta()


class LookedUp(msgspec.Struct, frozen=True, kw_only=True):
    """What live reads of children outside the state stream have told."""

    absent: frozenset[Child] = frozenset()
    found: dict[Resource, Body] = {}
    predecessors: frozenset[Child] = frozenset()


async def observe(key: Key, io: Ports, *, now: datetime) -> Observed | None:
    """Return a cluster and what belongs to it; None when it is gone."""
    cluster = io.cache.get(RayCluster, key.namespace, key.name)
    if cluster is None:
        return None
    looked = LookedUp()
    if cluster.metadata.deletion_timestamp is None and refusals.find(cluster, io.config) is None:
        looked = await _look_up(cluster, io, now=now)
    return from_state(cluster, io, looked)


def from_state(cluster: RayCluster, io: Ports, looked: "LookedUp | Observed | None" = None) -> Observed:
    """Return what the state holds about a cluster, our own writes included."""
    meta = cluster.metadata
    memory = memory_of(cluster, io)
    looked = looked or LookedUp()
    pods = tuple(
        pod
        for pod in io.cache.list(Pod, meta.namespace, {labels.CLUSTER: meta.name})
        if pod.metadata.labels.get(labels.NODE_TYPE) in _RAY_NODES
    )
    return Observed(
        cluster=cluster,
        pods=pods,
        head_services=tuple(io.cache.list(Service, meta.namespace, head_service.list_labels(cluster))),
        headless_service=io.cache.get(Service, meta.namespace, names.headless_service(meta.name)),
        serve_service=io.cache.get(Service, meta.namespace, names.serve_service(meta.name)),
        cleanup_jobs=tuple(io.cache.list(Job, meta.namespace, _CLEANUP | {labels.CLUSTER: meta.name})),
        absent=looked.absent,
        found=looked.found,
        predecessors=looked.predecessors,
        awaited=memory.awaited(frozenset(pod.metadata.uid for pod in pods)),
        taken=frozenset(memory.taken),
    )


def memory_of(cluster: RayCluster, io: Ports) -> Memory:
    """Return what this replica remembers of a cluster."""
    return io.memories.of(Key(cluster.metadata.namespace, cluster.metadata.name), cluster.metadata.uid)


def deleted_pods(cluster: RayCluster, io: Ports) -> frozenset[str]:
    """Return the names of pods that are gone and could have been this cluster's."""
    return io.cache.deleted(
        Pod, cluster.metadata.namespace, prefix=names.pod_prefix(cluster.metadata.name, "").rstrip("-")
    )


def has_current_pods(observed: Observed, io: Ports) -> bool:
    """Tell whether the pods are known well enough to create and delete some.

    They are when they were listed; and when there are none of a cluster of which nobody has told a status yet: should an
    owner before us have made pods and died before it told, we want the very names that it took.
    """
    if memory_of(observed.cluster, io).has_listed_pods:
        return True
    return not observed.pods and observed.cluster.status.last_update_time is None


async def refresh_pods(cluster: RayCluster, io: Ports) -> None:
    """List a cluster's pods at the API server and put the state right."""
    meta = cluster.metadata
    answer = await io.kube.list(POD, meta.namespace, label_selector=label_selector({labels.CLUSTER: meta.name}))
    listed = msgspec.json.decode(answer, type=PodList)
    version = int(listed.metadata.resource_version)
    present = {pod.metadata.uid for pod in listed.items}
    for known in io.cache.list(Pod, meta.namespace, {labels.CLUSTER: meta.name}):
        if known.metadata.uid not in present and version_of(known.metadata) <= version:
            io.cache.remove(Pod, meta.namespace, known.metadata.name, version=version)
    for pod in listed.items:
        io.cache.put(pod)
    memory_of(cluster, io).has_listed_pods = True


async def _look_up(cluster: RayCluster, io: Ports, *, now: datetime) -> LookedUp:
    """Ask for the children that the state stream does not carry and that were not seen lately."""
    memory = memory_of(cluster, io)
    absent: set[Child] = set()
    found: dict[Resource, Body] = {}
    predecessors: set[Child] = set()
    for child in (*children.looked_up(cluster, io.config), *batch.scheduler(io.config).looked_up(cluster)):
        if memory.trusts(child, now=now):
            continue
        try:
            answer = await io.kube.get(child.resource, cluster.metadata.namespace, child.name)
        except errors.NotFound:
            absent.add(child)
            continue
        body: Body = msgspec.json.decode(answer)
        if owner.is_predecessors(cluster, body):
            predecessors.add(child)
            continue
        memory.saw(child, now=now)
        found[child.resource] = body
    return LookedUp(absent=frozenset(absent), found=found, predecessors=frozenset(predecessors))
