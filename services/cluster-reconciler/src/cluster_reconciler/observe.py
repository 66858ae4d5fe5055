"""Reads everything for one reconcile of a RayCluster into one frozen `Observed`.

Most of it comes from the cache, which the bus fills. Two things are read from the API server: from
time to time the children that are not on the bus; and the list of pods, once, before this replica
first creates or deletes a pod of a cluster that is not brand-new. The cache may be stale just after
a start.
"""

import base64
import itertools
import secrets
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec

from cluster_reconciler import batch, children, pki, refusals
from cluster_reconciler.actions import ClusterPlan, CreateWorker, is_of_pod
from cluster_reconciler.config import Config
from cluster_reconciler.observed import Child, Observed, Pki, Place
from cluster_reconciler.resources import disruption_budget, owner, services, tls
from common import errors, labels, names, pod_json
from common.api.core import Job, Pod, Service
from common.api.meta import Items
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import Gate
from common.kube.answers import is_gone
from common.kube.client import Kube
from common.kube.resources import (
    NETWORK_POLICY,
    POD,
    POD_DISRUPTION_BUDGET,
    SECRET,
    Resource,
    format_selector,
)
from common.ray import cluster_traits as traits
from common.runtime.actions import Create, Parallel
from common.runtime.cache import Cache, Objects
from common.runtime.key import Key

TRUSTED_FOR: Final = timedelta(seconds=300)
"""Time for which a child that is not on the bus is not read again (spec raycluster §5.1)."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_RAY_NODES = frozenset({labels.HEAD, labels.WORKER, labels.REDIS_CLEANUP})
Bodies = tuple[Body, ...]
Changes = Callable[[Observed, Bodies], tuple[Parallel, ...]]
"""Computes the changes of all children of a kind from the observed state and their list."""
_ALL_BUDGETS: Final[Place] = (POD_DISRUPTION_BUDGET, "")


class Memory(msgspec.Struct):
    """What this replica remembers about one RayCluster, identified by its uid.

    No decision depends on it: after a restart or a hand-over of the key it is read again.
    """

    uid: str
    has_listed_pods: bool = False
    """Whether the pods were listed at the API server since the start.

    Reset when an answer to a write is lost, because the cache may then be stale."""
    taken: set[str] = set()
    """Wanted pod names that are unavailable, because pods of other owners have them."""
    deleted: set[str] = set()
    """Uids of pods that this replica deleted."""
    provisioned_after: float | None = None
    """Seconds from creation until all pods ran, if this process has measured them."""
    pki: Pki | None = None
    """The certificates as last read."""
    children: dict[Place, tuple[Body | None, datetime]] = {}
    """Wanted content and read time of each child that was read.

    A child without an entry is read in the next reconcile."""

    def changed_pki(self, *, is_leaf_change: bool, now: datetime) -> None:
        """Record that an object of the certificates was written, so that they are read again."""
        if self.pki is not None:
            changed_at = now if is_leaf_change else self.pki.changed_at
            self.pki = msgspec.structs.replace(self.pki, read_at=_NEVER, changed_at=changed_at)

    def trusts(self, place: Place, wanted: Body | None, *, now: datetime) -> bool:
        """Return whether a child was read within `TRUSTED_FOR` with the same wanted content."""
        known = self.children.get(place)
        return known is not None and known[0] == wanted and now - known[1] < TRUSTED_FOR


class Observer:
    """Reads everything that a plan is decided from, and remembers reads and writes."""

    def __init__(self, kube: Kube, cache: Cache, config: Config) -> None:
        self.kube = kube
        self.cache = cache
        self.config = config
        self.memories: dict[Key, Memory] = {}
        self.in_progress: dict[Key, datetime] = {}
        """Clusters whose progress waits for a status update, and since when."""

    def forget(self, objects: Objects) -> None:
        """Forget deleted clusters, and clusters that another replica reconciles from now on.

        A new cluster with the name of a deleted cluster is not forgotten.
        """
        for meta in (each.metadata for each in objects if isinstance(each, RayCluster)):
            known = self.memories.get(key := Key(meta.namespace, meta.name))
            if known is None or known.uid == meta.uid:
                self._drop(key)

    def _drop(self, key: Key) -> None:
        self.memories.pop(key, None)
        self.in_progress.pop(key, None)

    async def observe(self, key: Key, now: datetime) -> Observed | None:
        """Return the state of a cluster and its children; None if the cluster does not exist."""
        cluster = self.cache.get(RayCluster, key.namespace, key.name)
        if cluster is None:
            self._drop(key)
            return None
        is_valid = refusals.find(cluster, self.config) is None
        observed = Observed(cluster=cluster, config=self.config, now=now, is_valid=is_valid)
        if cluster.metadata.deletion_timestamp is not None or refusals.manager(cluster):
            return self.from_state(observed)
        if observed.is_to_be_suspended:
            observed = self.from_state(observed)
        if not is_valid:
            return self.from_state(await self._look_up(observed, batch.looked_up(observed)))
        token = base64.b64encode(secrets.token_bytes(32)).decode()
        own = children.looked_up(cluster, self.config, token=token)
        observed = await self._look_up(observed, (*own, *batch.looked_up(observed)))
        observed = self.from_state(
            msgspec.structs.replace(
                observed,
                network_policies=await self._listed_policies(observed),
                budgets=await self._listed_budgets(observed),
            )
        )
        return await self._with_pki(observed) if traits.has_tls(cluster) else observed

    def from_state(self, observed: Observed) -> Observed:
        """Add the cached state of a cluster, which includes this replica's own writes."""
        cluster, meta = observed.cluster, observed.cluster.metadata
        memory, own = self.memory_of(cluster), {labels.CLUSTER: meta.name}
        known = self.cache.list(Pod, meta.namespace, own)
        pods = tuple(
            pod for pod in known if pod.metadata.labels.get(labels.NODE_TYPE) in _RAY_NODES
        )
        memory.deleted &= {pod.metadata.uid for pod in pods}
        cleanup = {labels.NODE_TYPE: labels.REDIS_CLEANUP} | own
        return msgspec.structs.replace(
            observed,
            pods=pods,
            head_services=tuple(
                self.cache.list(Service, meta.namespace, services.head_list_labels(cluster))
            ),
            headless_service=self.cache.get(
                Service, meta.namespace, names.headless_service(meta.name)
            ),
            serve_service=self.cache.get(Service, meta.namespace, names.serve_service(meta.name)),
            cleanup_jobs=tuple(self.cache.list(Job, meta.namespace, cleanup)),
            awaited=frozenset(memory.deleted),
            taken=frozenset(memory.taken),
        )

    def memory_of(self, cluster: RayCluster) -> Memory:
        """Return the memory of a cluster; a cluster with a reused name starts with an empty one."""
        key = Key(cluster.metadata.namespace, cluster.metadata.name)
        known = self.memories.get(key)
        if known is None or known.uid != cluster.metadata.uid:
            self._drop(key)
            known = self.memories[key] = Memory(cluster.metadata.uid)
        return known

    async def recheck(self, observed: Observed, plan: ClusterPlan) -> Observed | None:
        """Read again the facts that a plan for pods relies on; None if no read is needed.

        Before this replica first changes pods of a cluster, it lists them, because the cache may be
        stale. It does not list the pods of a cluster without pods and status: if an earlier owner
        of the key created pods and died before it wrote a status, the plan must draw the same
        names.

        Certificates are read again before pods are created.

        A new pod must not have the name of a deleted pod. The names of new pods are known only from
        the plan, so the check is made here. A fixed name, from the user or from a setting, is
        reused even if a deleted pod had it.
        """
        cluster, changes = (
            observed.cluster,
            [each for step in plan.actions for each in step.actions if is_of_pod(each)],
        )
        is_unlisted = changes and not self.memory_of(cluster).has_listed_pods
        if is_unlisted and (observed.pods or cluster.status.last_update_time is not None):
            answer = await self.kube.list(
                POD, cluster.metadata.namespace, label_selector=selector(cluster)
            )
            self.take_pods(cluster, answer)
            return self.from_state(observed)
        created = (each for each in changes if isinstance(each, Create | CreateWorker))
        asked = {
            each.name if isinstance(each, CreateWorker) else each.body["metadata"]["name"]
            for each in created
        }
        if not asked:
            return None
        # No pod is created before its present certificate is read.
        if observed.pki is not None and not observed.pki.is_fresh:
            return await self._with_pki(observed, is_trusted=False)
        prefix = names.pod_prefix(cluster.metadata.name, "").rstrip("-")
        deleted = self.cache.list_deleted_names(Pod, cluster.metadata.namespace, prefix=prefix)
        if deleted & asked <= observed.taken:
            return None
        return msgspec.structs.replace(observed, taken=observed.taken | deleted)

    def take_pods(self, cluster: RayCluster, answer: bytes) -> None:
        """Correct the cached pods of a cluster by a list from the API server."""
        meta, listed = cluster.metadata, msgspec.json.decode(answer, type=Items[Pod])
        version, present = listed.metadata.version, {pod.metadata.uid for pod in listed.items}
        for known in self.cache.list(Pod, meta.namespace, {labels.CLUSTER: meta.name}):
            if known.metadata.uid not in present and known.metadata.version <= version:
                self.cache.remove(Pod, meta.namespace, known.metadata.name, version=version)
        for pod in listed.items:
            self.cache.put(pod)
        self.memory_of(cluster).has_listed_pods = True

    async def _look_up(self, observed: Observed, wanted: Iterable[Child]) -> Observed:
        """Read wanted children from the API server; recently read children are skipped."""
        cluster, memory, now = observed.cluster, self.memory_of(observed.cluster), observed.now
        found, absent = dict[Resource, Body](), dict[Resource, Child]()
        predecessors = list[Place]()
        for child in wanted:
            resource, name = child.place
            if memory.trusts(child.place, child.wanted, now=now):
                continue
            try:
                body: Body = msgspec.json.decode(
                    await self.kube.get(resource, cluster.metadata.namespace, name)
                )
            except errors.NotFound:
                absent[resource] = child
                continue
            if owner.is_predecessors(cluster, body):
                predecessors.append(child.place)
                continue
            memory.children[child.place] = child.wanted, now
            found[resource] = body
        return msgspec.structs.replace(
            observed, absent=absent, found=found, predecessors=tuple(predecessors)
        )

    async def _listed_budgets(self, observed: Observed) -> Bodies | None:
        """List the cluster's PodDisruptionBudgets.

        None if the cluster has none, or if a recent read found them up to date.
        """
        known = self.memory_of(observed.cluster).children
        # A cluster that lost its mark to a `kubectl replace` is found by this entry.
        is_marked = (
            labels.HAS_BUDGETS in observed.cluster.metadata.annotations or _ALL_BUDGETS in known
        )
        if not is_marked and not disruption_budget.is_asked_for(observed.cluster, self.config):
            return None
        observed = self.from_state(observed)
        wanted = children.wanted_budgets(observed)
        listed = await self._listed(_ALL_BUDGETS, wanted, observed, children.budgets)
        if listed is None and not wanted:
            known.pop(_ALL_BUDGETS, None)
        return listed

    async def _listed_policies(self, observed: Observed) -> Bodies | None:
        """List the cluster's NetworkPolicies; None if a recent read found them up to date.

        A spec without policies that never changed has none to delete.
        """
        generation = observed.cluster.metadata.generation
        may_exist = observed.cluster.spec.network_policy is not None or generation > 1
        if Gate.NETWORK_POLICY not in self.config.gates or not may_exist:
            return None
        return await self._listed(
            (NETWORK_POLICY, ""), {"generation": generation}, observed, children.policies
        )

    async def _listed(
        self, place: Place, wanted: Body, observed: Observed, changes: Changes
    ) -> Bodies | None:
        """List the cluster's children of a kind; None if none needs a change.

        Nothing is listed if a recent list needed no change for the same `wanted` content.
        """
        cluster, memory = observed.cluster, self.memory_of(observed.cluster)
        if memory.trusts(place, wanted, now=observed.now):
            return None
        body = await self.kube.list(
            place[0], cluster.metadata.namespace, label_selector=selector(cluster)
        )
        listed: Bodies = tuple(msgspec.json.decode(body)["items"])
        if changes(observed, listed):
            return listed
        memory.children[place] = wanted, observed.now
        return None

    async def _with_pki(self, observed: Observed, *, is_trusted: bool = True) -> Observed:
        """Add the cluster's certificates.

        If `is_trusted`, recently read certificates are used. Certificates that pods cannot use yet,
        or that need a change, are read more often.
        """
        memory, now = self.memory_of(observed.cluster), observed.now
        known = memory.pki or Pki(read_at=_NEVER)
        found = msgspec.structs.replace(known, is_fresh=False)
        trusted = msgspec.structs.replace(observed, pki=found)
        limit = TRUSTED_FOR if pki.is_complete(trusted) else pki.MIN_WAIT
        if not is_trusted or now - known.read_at >= limit:
            was_awaited = memory.pki is not None and bool(pki.missing(trusted))
            fresh = Pki(read_at=now, was_awaited=was_awaited, changed_at=known.changed_at)
            found = await self._read_pki(observed, fresh)
            is_complete = pki.is_complete(msgspec.structs.replace(observed, pki=found))
            since = None if is_complete else known.awaited_since or now
            memory.pki = found = msgspec.structs.replace(found, awaited_since=since)
        left = (
            place
            for place, body in found.objects.items()
            if owner.is_predecessors(observed.cluster, body)
        )
        return msgspec.structs.replace(
            observed, pki=found, predecessors=(*observed.predecessors, *left)
        )

    async def _read_pki(self, observed: Observed, fresh: Pki) -> Pki:
        """Read the Issuers and Certificates, and the Secrets of existing Certificates."""
        cluster, found = observed.cluster, fresh.objects
        parts = tls.chain(cluster, self.config)
        signed = ((SECRET, part.secret) for part in parts if part.secret and part.place in found)
        # The Secrets come last, so `signed` sees the Certificates that were found.
        for resource, name in itertools.chain((part.place for part in parts), signed):
            try:
                body: Body = msgspec.json.decode(
                    await self.kube.get(resource, cluster.metadata.namespace, name)
                )
            except errors.NotFound as problem:
                if resource is not SECRET and not is_gone(problem, name):
                    return msgspec.structs.replace(fresh, is_served=False)
                continue
            except errors.Forbidden as problem:
                return msgspec.structs.replace(fresh, fault=f"{problem}; {pki.RIGHTS}")
            found[resource, name] = _without_values(body) if resource is SECRET else body
        return fresh


def selector(cluster: RayCluster) -> str:
    """Return the label selector of all objects of a cluster."""
    return format_selector({labels.CLUSTER: cluster.metadata.name})


def _without_values(secret: Body) -> Body:
    """Return the parts of a Secret that decisions need: names of its values and some metadata."""
    meta, kept = pod_json.body(secret, "metadata"), ("name", "resourceVersion", "ownerReferences")
    signed_for = pod_json.mapping(meta, "annotations").get(labels.CERTIFICATE_NAME, "")
    return {
        "metadata": {
            **{field: meta[field] for field in kept if field in meta},
            "annotations": {labels.CERTIFICATE_NAME: signed_for},
        },
        "data": dict.fromkeys(pod_json.mapping(secret, "data"), ""),
    }
