"""All reads of a reconcile, into one frozen value.

The state from the bus is enough for most of it. Two things are read at the API server itself: children that the state
stream does not carry, now and then; and the list of pods, once before this replica first creates or deletes one of a cluster
that is not brand-new, because the state may be old just after a start (design rules 3 and 5).
"""

from datetime import datetime

import msgspec

from cluster_reconciler import batch, children, refusals
from cluster_reconciler.actions import ClusterPlan
from cluster_reconciler.config import Config
from cluster_reconciler.memory import Memories, Memory
from cluster_reconciler.metrics import ClusterMetrics
from cluster_reconciler.observed import Child, Observed
from cluster_reconciler.resources import owner, services
from common import errors, labels, names
from common.api.core import Job, Pod, Service
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.clock import Clock
from common.feature_gates import Gate
from common.kube.client import Kube
from common.kube.resources import NETWORK_POLICY, POD, Resource, label_selector
from common.runtime.cache import Cache, version_of
from common.runtime.executor import Executor
from common.runtime.key import Key

_RAY_NODES = frozenset({labels.HEAD, labels.WORKER, labels.REDIS_CLEANUP})
_CLEANUP = {labels.NODE_TYPE: labels.REDIS_CLEANUP}


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """What a reconcile needs from outside: the API server, the state from the bus, and the rest."""

    kube: Kube
    cache: Cache
    executor: Executor
    config: Config
    clock: Clock
    memories: Memories
    metrics: ClusterMetrics


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a list."""

    resource_version: str = "0"


class PodList(msgspec.Struct, frozen=True):
    """The answer to a list of pods."""

    items: list[Pod]
    metadata: ListMeta = ListMeta()


class LookedUp(msgspec.Struct, frozen=True, kw_only=True):
    """The results of live reads of children outside the state stream."""

    absent: frozenset[Child] = frozenset()
    found: dict[Resource, Body] = {}
    predecessors: frozenset[Child] = frozenset()
    network_policies: tuple[Body, ...] | None = None


async def observe(key: Key, io: Ports, *, now: datetime) -> Observed | None:
    """Return a cluster and what belongs to it; None when it is gone."""
    cluster = io.cache.get(RayCluster, key.namespace, key.name)
    if cluster is None:
        io.memories.forget(key)
        io.metrics.forget(key)
        return None
    live = LookedUp()
    if cluster.metadata.deletion_timestamp is None and refusals.find(cluster, io.config) is None:
        live = await _look_up(cluster, io, now=now)
    return from_state(cluster, io, live)


def from_state(cluster: RayCluster, io: Ports, live: "LookedUp | Observed | None" = None) -> Observed:
    """Return what the state holds about a cluster, our own writes included."""
    meta = cluster.metadata
    memory = memory_of(cluster, io)
    live = live or LookedUp()
    pods = tuple(
        pod
        for pod in io.cache.list(Pod, meta.namespace, {labels.CLUSTER: meta.name})
        if pod.metadata.labels.get(labels.NODE_TYPE) in _RAY_NODES
    )
    return Observed(
        cluster=cluster,
        pods=pods,
        head_services=tuple(io.cache.list(Service, meta.namespace, services.head_list_labels(cluster))),
        headless_service=io.cache.get(Service, meta.namespace, names.headless_service(meta.name)),
        serve_service=io.cache.get(Service, meta.namespace, names.serve_service(meta.name)),
        cleanup_jobs=tuple(io.cache.list(Job, meta.namespace, _CLEANUP | {labels.CLUSTER: meta.name})),
        absent=live.absent,
        found=live.found,
        predecessors=live.predecessors,
        network_policies=live.network_policies,
        awaited=memory.awaited(frozenset(pod.metadata.uid for pod in pods)),
        taken=frozenset(memory.taken),
    )


async def recheck(observed: Observed, plan: ClusterPlan, io: Ports) -> Observed | None:
    """Read again what a plan for pods relies on; None when the plan holds.

    Before the first change to pods, the state may be stale. And a new pod gets another name when a deleted pod had its own: only
    the plan shows which names to ask about.
    """
    if plan.touches_pods and not has_current_pods(observed, io):
        await refresh_pods(observed.cluster, io)
        return from_state(observed.cluster, io, observed)
    names_to_ask = plan.new_pods
    deleted = deleted_pods(observed.cluster, io) if names_to_ask else frozenset[str]()
    if deleted.isdisjoint(names_to_ask):
        return None
    return msgspec.structs.replace(observed, taken=observed.taken | deleted)


def memory_of(cluster: RayCluster, io: Ports) -> Memory:
    """Return what this replica remembers of a cluster."""
    return io.memories.of(Key(cluster.metadata.namespace, cluster.metadata.name), cluster.metadata.uid)


def deleted_pods(cluster: RayCluster, io: Ports) -> frozenset[str]:
    """Return the names of pods that are gone and could have been this cluster's."""
    return io.cache.deleted(
        Pod, cluster.metadata.namespace, prefix=names.pod_prefix(cluster.metadata.name, "").rstrip("-")
    )


def has_current_pods(observed: Observed, io: Ports) -> bool:
    """Return whether the pods are known well enough to create and delete some.

    They are when they were listed, and when the cluster has neither pods nor a status: if an owner before us made pods and
    died before it wrote a status, we want the very names that it took.
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
    """Read the children that the state stream does not carry and that were not observed lately."""
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
    return LookedUp(
        absent=frozenset(absent),
        found=found,
        predecessors=frozenset(predecessors),
        network_policies=await _listed_policies(cluster, io, now=now),
    )


async def _listed_policies(cluster: RayCluster, io: Ports, *, now: datetime) -> tuple[Body, ...] | None:
    """List the cluster's NetworkPolicies, unless they were observed lately to be as they should be.

    A spec without any that never changed had none before.
    """
    memory, meta = memory_of(cluster, io), cluster.metadata
    may_exist = cluster.spec.network_policy is not None or meta.generation > 1
    if not io.config.has(Gate.NETWORK_POLICY) or not may_exist:
        return None
    all_of_them = Child(NETWORK_POLICY, "", str(meta.generation))
    if memory.trusts(all_of_them, now=now):
        return None
    answer = await io.kube.list(
        NETWORK_POLICY, meta.namespace, label_selector=label_selector({labels.CLUSTER: meta.name})
    )
    listed: tuple[Body, ...] = tuple(msgspec.json.decode(answer)["items"])
    if children.policies(cluster, listed):
        return listed
    memory.saw(all_of_them, now=now)
    return None
