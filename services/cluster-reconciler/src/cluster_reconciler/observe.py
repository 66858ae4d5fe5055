"""Read everything for one reconcile of a RayCluster into one frozen `Observed`.

Most objects come from the cache, which is filled from the bus. Children that are not on the bus are
read from the API server from time to time. Pods are listed once, before this replica first creates
or deletes a pod of a cluster that is not brand-new, because the cache may be stale just after a
start.
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
from cluster_reconciler.observed import ChildAddress, ChildCreation, Observed, PkiState
from cluster_reconciler.resources import disruption_budget, owner, services, tls
from common import errors, labels, names, pod_json
from common.api.core import Job, Pod, Service
from common.api.meta import Items
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import FeatureGate
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

CHILD_MAX_AGE: Final = timedelta(seconds=300)
"""Time for which a child that is not on the bus is not read again (spec raycluster §5.1)."""
_NEVER: Final = datetime.min.replace(tzinfo=UTC)
_RAY_NODES = frozenset({labels.HEAD, labels.WORKER, labels.REDIS_CLEANUP})
Bodies = tuple[Body, ...]
Changes = Callable[[Observed, Bodies], tuple[Parallel, ...]]
"""Function that takes all children of one kind and returns the actions that they need."""
_ALL_BUDGETS: Final[ChildAddress] = (POD_DISRUPTION_BUDGET, "")


class ClusterMemory(msgspec.Struct):
    """What this replica remembers about one RayCluster, identified by its uid.

    After a restart, or in the next replica that reconciles the cluster, everything is read again,
    so no decision depends on this memory.
    """

    uid: str
    has_listed_pods: bool = False
    """Whether the pods were listed at the API server since the start.

    Reset when an answer to a write is lost, because the cache may then be stale.
    """
    unavailable_names: set[str] = set()
    """Names that new pods cannot get, because pods of other owners have them."""
    deleted: set[str] = set()
    """Uids of pods that this replica deleted."""
    provisioned_after: float | None = None
    """Seconds from creation until all pods ran; None if this process has not measured that time."""
    pki: PkiState | None = None
    """The certificates as last read; None before the first read."""
    children: dict[ChildAddress, tuple[Body | None, datetime]] = {}
    """Desired content and read time of each child that was read.

    A child without an entry is read in the next reconcile.
    """

    def changed_pki(self, *, is_leaf_change: bool, now: datetime) -> None:
        """Record that an Issuer or Certificate was written, so that all are read again.

        `is_leaf_change` is True if the certificate of the head or of the workers changed.
        """
        if self.pki is not None:
            changed_at = now if is_leaf_change else self.pki.changed_at
            self.pki = msgspec.structs.replace(self.pki, read_at=_NEVER, changed_at=changed_at)

    def trusts(self, address: ChildAddress, expected: Body | None, *, now: datetime) -> bool:
        """Return whether a child was read within `CHILD_MAX_AGE` with the same desired content."""
        last_read = self.children.get(address)
        return (
            last_read is not None
            and last_read[0] == expected
            and now - last_read[1] < CHILD_MAX_AGE
        )


class Observer:
    """Reads everything from which a plan is made, and remembers reads and writes."""

    def __init__(self, kube: Kube, cache: Cache, config: Config) -> None:
        self.kube = kube
        self.cache = cache
        self.config = config
        self.memories: dict[Key, ClusterMemory] = {}
        self.in_progress: dict[Key, datetime] = {}
        """Clusters whose status write waits for more progress of their pods, and since when."""

    def forget(self, objects: Objects) -> None:
        """Drop the memory of clusters that were deleted or that another replica now reconciles.

        If a new cluster has the name of a deleted cluster, the memory of the new cluster is kept.
        """
        for meta in (obj.metadata for obj in objects if isinstance(obj, RayCluster)):
            memory = self.memories.get(key := Key(meta.namespace, meta.name))
            if memory is None or memory.uid == meta.uid:
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
        is_valid = refusals.find_violation_plan(cluster, self.config) is None
        observed = Observed(cluster=cluster, config=self.config, now=now, is_valid=is_valid)
        if cluster.metadata.deletion_timestamp is not None or refusals.get_foreign_manager(cluster):
            return self.read_cache(observed)
        if observed.is_to_be_suspended:
            observed = self.read_cache(observed)
        if not is_valid:
            return self.read_cache(
                await self._read_children(observed, batch.list_children_to_read(observed))
            )
        token = base64.b64encode(secrets.token_bytes(32)).decode()
        own = children.list_children_to_read(cluster, self.config, token=token)
        observed = await self._read_children(
            observed, (*own, *batch.list_children_to_read(observed))
        )
        observed = self.read_cache(
            msgspec.structs.replace(
                observed,
                network_policies=await self._list_policies(observed),
                budgets=await self._list_budgets(observed),
            )
        )
        return await self._add_pki(observed) if traits.has_tls(cluster) else observed

    def read_cache(self, observed: Observed) -> Observed:
        """Return `observed` with the cluster's cached children, including this replica's writes."""
        cluster, meta = observed.cluster, observed.cluster.metadata
        memory, own = self.get_memory(cluster), {labels.CLUSTER: meta.name}
        cached_pods = self.cache.list(Pod, meta.namespace, own)
        pods = tuple(
            pod for pod in cached_pods if pod.metadata.labels.get(labels.NODE_TYPE) in _RAY_NODES
        )
        memory.deleted &= {pod.metadata.uid for pod in pods}
        cleanup = {labels.NODE_TYPE: labels.REDIS_CLEANUP} | own
        return msgspec.structs.replace(
            observed,
            pods=pods,
            head_services=tuple(
                self.cache.list(Service, meta.namespace, services.build_head_list_labels(cluster))
            ),
            headless_service=self.cache.get(
                Service, meta.namespace, names.headless_service(meta.name)
            ),
            serve_service=self.cache.get(Service, meta.namespace, names.serve_service(meta.name)),
            cleanup_jobs=tuple(self.cache.list(Job, meta.namespace, cleanup)),
            pending_deletions=frozenset(memory.deleted),
            unavailable_names=frozenset(memory.unavailable_names),
        )

    def get_memory(self, cluster: RayCluster) -> ClusterMemory:
        """Return what this process remembers about a cluster between two reconciles.

        For a new cluster that reuses the name of a deleted cluster, the memory is empty.
        """
        key = Key(cluster.metadata.namespace, cluster.metadata.name)
        memory = self.memories.get(key)
        if memory is None or memory.uid != cluster.metadata.uid:
            self._drop(key)
            memory = self.memories[key] = ClusterMemory(cluster.metadata.uid)
        return memory

    async def recheck(self, observed: Observed, plan: ClusterPlan) -> Observed | None:
        """Return newer facts if a plan that changes pods needs them; None if it can be executed.

        Before this replica first changes the pods of a cluster, it lists them, because the cache
        may be stale. A new cluster, without cached pods and without a status, is not listed: if a
        crashed replica has already created pods of the cluster, the new plan contains the same pod
        names.

        Certificates are read again before pods are created.

        A new pod must not have the name of a deleted pod. Only the plan contains the names of new
        pods, so they are checked here. A fixed name, from the user or from a setting, may be used
        again.
        """
        cluster, changes = (
            observed.cluster,
            [action for step in plan.actions for action in step.actions if is_of_pod(action)],
        )
        is_unlisted = changes and not self.get_memory(cluster).has_listed_pods
        if is_unlisted and (observed.pods or cluster.status.last_update_time is not None):
            answer = await self.kube.list(
                POD, cluster.metadata.namespace, label_selector=build_selector(cluster)
            )
            self.take_pods(cluster, answer)
            return self.read_cache(observed)
        created = (action for action in changes if isinstance(action, Create | CreateWorker))
        groups = {
            action.name if isinstance(action, CreateWorker) else action.body["metadata"]["name"]
            for action in created
        }
        if not groups:
            return None
        # No pod is created before its present certificate is read.
        if observed.pki is not None and not observed.pki.is_fresh:
            return await self._add_pki(observed, is_trusted=False)
        prefix = names.pod_prefix(cluster.metadata.name, "").rstrip("-")
        deleted = self.cache.list_deleted_names(Pod, cluster.metadata.namespace, prefix=prefix)
        if deleted & groups <= observed.unavailable_names:
            return None
        return msgspec.structs.replace(
            observed, unavailable_names=observed.unavailable_names | deleted
        )

    def take_pods(self, cluster: RayCluster, answer: bytes) -> None:
        """Replace the cached pods of a cluster by `answer`, a list from the API server."""
        meta, listed = cluster.metadata, msgspec.json.decode(answer, type=Items[Pod])
        version, present = listed.metadata.version, {pod.metadata.uid for pod in listed.items}
        for cached in self.cache.list(Pod, meta.namespace, {labels.CLUSTER: meta.name}):
            if cached.metadata.uid not in present and cached.metadata.version <= version:
                self.cache.remove(Pod, meta.namespace, cached.metadata.name, version=version)
        for pod in listed.items:
            self.cache.put(pod)
        self.get_memory(cluster).has_listed_pods = True

    async def _read_children(
        self, observed: Observed, children: Iterable[ChildCreation]
    ) -> Observed:
        """Read children from the API server, except those that were read recently."""
        cluster, memory, now = observed.cluster, self.get_memory(observed.cluster), observed.now
        bodies, absent = dict[Resource, Body](), dict[Resource, ChildCreation]()
        predecessors = list[ChildAddress]()
        for child in children:
            resource, name = child.address
            if memory.trusts(child.address, child.expected, now=now):
                continue
            try:
                body: Body = msgspec.json.decode(
                    await self.kube.get(resource, cluster.metadata.namespace, name)
                )
            except errors.NotFound:
                absent[resource] = child
                continue
            if owner.is_predecessors(cluster, body):
                predecessors.append(child.address)
                continue
            memory.children[child.address] = child.expected, now
            bodies[resource] = body
        return msgspec.structs.replace(
            observed, absent=absent, live_children=bodies, predecessors=tuple(predecessors)
        )

    async def _list_budgets(self, observed: Observed) -> Bodies | None:
        """Return the cluster's PodDisruptionBudgets.

        None if the cluster needs none and has none, or if they were up to date at a recent read.
        """
        known_children = self.get_memory(observed.cluster).children
        # The entry finds a cluster that lost its annotation to a `kubectl replace`.
        is_marked = (
            labels.HAS_BUDGETS in observed.cluster.metadata.annotations
            or _ALL_BUDGETS in known_children
        )
        if not is_marked and not disruption_budget.is_asked_for(observed.cluster, self.config):
            return None
        observed = self.read_cache(observed)
        budgets = children.build_budgets(observed)
        listed = await self._list_children(_ALL_BUDGETS, budgets, observed, children.update_budgets)
        if listed is None and not budgets:
            known_children.pop(_ALL_BUDGETS, None)
        return listed

    async def _list_policies(self, observed: Observed) -> Bodies | None:
        """Return the cluster's NetworkPolicies; None if they were up to date at a recent read.

        Also None for a cluster that cannot have any: its spec has no policies and has never
        changed.
        """
        generation = observed.cluster.metadata.generation
        may_exist = observed.cluster.spec.network_policy is not None or generation > 1
        if FeatureGate.NETWORK_POLICY not in self.config.gates or not may_exist:
            return None
        return await self._list_children(
            (NETWORK_POLICY, ""), {"generation": generation}, observed, children.update_policies
        )

    async def _list_children(
        self, address: ChildAddress, expected: Body, observed: Observed, changes: Changes
    ) -> Bodies | None:
        """Return the children of the kind in `address`; None if `changes` has no action for them.

        Nothing is read if a recent list needed no change and `expected` was the same then.
        """
        cluster, memory = observed.cluster, self.get_memory(observed.cluster)
        if memory.trusts(address, expected, now=observed.now):
            return None
        body = await self.kube.list(
            address[0], cluster.metadata.namespace, label_selector=build_selector(cluster)
        )
        listed: Bodies = tuple(msgspec.json.decode(body)["items"])
        if changes(observed, listed):
            return listed
        memory.children[address] = expected, observed.now
        return None

    async def _add_pki(self, observed: Observed, *, is_trusted: bool = True) -> Observed:
        """Return `observed` with the cluster's certificates.

        With `is_trusted`, certificates that were read recently are not read again. They are read
        more often while pods cannot use them yet or while they need a change.
        """
        memory, now = self.get_memory(observed.cluster), observed.now
        previous = memory.pki or PkiState(read_at=_NEVER)
        current = msgspec.structs.replace(previous, is_fresh=False)
        trusted = msgspec.structs.replace(observed, pki=current)
        limit = CHILD_MAX_AGE if pki.is_complete(trusted) else pki.MIN_WAIT
        if not is_trusted or now - previous.read_at >= limit:
            was_awaited = memory.pki is not None and bool(pki.explain_missing(trusted))
            fresh = PkiState(read_at=now, was_awaited=was_awaited, changed_at=previous.changed_at)
            current = await self._read_pki(observed, fresh)
            is_complete = pki.is_complete(msgspec.structs.replace(observed, pki=current))
            since = None if is_complete else previous.awaited_since or now
            memory.pki = current = msgspec.structs.replace(current, awaited_since=since)
        pending = (
            address
            for address, body in current.objects.items()
            if owner.is_predecessors(observed.cluster, body)
        )
        return msgspec.structs.replace(
            observed, pki=current, predecessors=(*observed.predecessors, *pending)
        )

    async def _read_pki(self, observed: Observed, fresh: PkiState) -> PkiState:
        """Return `fresh` with the Issuers, Certificates and Secrets read from the API server."""
        cluster, objects = observed.cluster, fresh.objects
        parts = tls.build_chain(cluster, self.config)
        signed = (
            (SECRET, part.secret) for part in parts if part.secret and part.address in objects
        )
        # The Secrets come last, so `signed` sees the Certificates that were found.
        for resource, name in itertools.chain((part.address for part in parts), signed):
            try:
                body: Body = msgspec.json.decode(
                    await self.kube.get(resource, cluster.metadata.namespace, name)
                )
            except errors.NotFound as problem:
                if resource is not SECRET and problem.name != name:
                    return msgspec.structs.replace(fresh, is_served=False)
                continue
            except errors.Forbidden as problem:
                return msgspec.structs.replace(fresh, problem=f"{problem}; {pki.RIGHTS}")
            objects[resource, name] = _strip_values(body) if resource is SECRET else body
        return fresh


def build_selector(cluster: RayCluster) -> str:
    """Return the label selector for all objects of a cluster."""
    return format_selector({labels.CLUSTER: cluster.metadata.name})


def _strip_values(secret: Body) -> Body:
    """Return the parts of a Secret that decisions need: names of its values and some metadata."""
    meta, kept_fields = (
        pod_json.body(secret, "metadata"),
        ("name", "resourceVersion", "ownerReferences"),
    )
    signed_for = pod_json.mapping(meta, "annotations").get(labels.CERTIFICATE_NAME, "")
    return {
        "metadata": {
            **{field: meta[field] for field in kept_fields if field in meta},
            "annotations": {labels.CERTIFICATE_NAME: signed_for},
        },
        "data": dict.fromkeys(pod_json.mapping(secret, "data"), ""),
    }
