"""One RayCluster among faults: owners that die, hang or work at the same time, and a bus that is late, unordered and repeats itself.

An `Owner` is a replica of cluster-reconciler. It uses the API server through a `Port`, which fails on request, and
learns of changes only when they are delivered to it. `Chaos` holds the API server, the owners, and what users and kubelet
do. What must be true whatever happens stands in `laws`.
"""

import asyncio
import random
from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

import msgspec
from prometheus_client import CollectorRegistry

from cluster_reconciler import wiring
from cluster_reconciler.config import Config
from cluster_reconciler.wiring import keys_of
from common import errors
from common.api.opaque import Body
from common.feature_gates import FeatureGate
from common.kube.resources import EVENT, JOB, POD, RAY_CLUSTER, Resource
from common.runtime.cache import Object
from common.runtime.key import Key
from support.fakes.clock import FakeClock
from support.fakes.intercepted_kube import InterceptedKube, Send
from support.fakes.kube import FakeKube
from support.laws.clusters import RAY_CONTAINERS, Laws, Violation, is_lost, is_owned, own_pods

KEY: Final = Key("ns", "c")
PERIOD: Final = 299.0
"""Seconds. A longer wait is the periodic reconcile, which waits for nothing in particular."""
FINALIZER_LIMIT: Final = timedelta(seconds=301)
"""The longest time from a cluster's deletion to its end: 300 s, and one for a status that waits."""
MESH: Final = "mesh-proxy"
"""The container that an admission webhook puts before all others of a pod."""
LIMIT: Final = 200
"""Reconciles and kubelet steps after which an unchanged cluster counts as never at rest."""

Message = tuple[Object, bool]
"""The state of an object when the message was sent, and whether the object was deleted."""


class Fault(StrEnum):
    """What happens to one request of a reconcile."""

    CONFLICT = "409"
    QUOTA = "403"
    REFUSED = "500, and nothing was done"
    THROTTLED = "429"
    LOST = "time-out, and it was done"
    DEATH_BEFORE = "the replica dies before it"
    DEATH_AFTER = "the replica dies after it"
    HANG = "the reconcile's time is up after it"


class Port(InterceptedKube):
    """The API server as one owner sees it."""

    def __init__(self, kube: FakeKube, owner: "Owner", laws: Laws) -> None:
        super().__init__(kube)
        self._owner = owner
        self._laws = laws

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        if resource == EVENT:
            self._laws.reasons.add(body["reason"])
        if resource == POD and self._owner.has_mesh:
            containers = [{"name": MESH, "image": "mesh"}, *body["spec"]["containers"]]
            body = {**body, "spec": {**body["spec"], "containers": containers}}
        return await super().create(resource, namespace, body)

    async def intercept(self, verb: str, resource: Resource, name: str, send: Send) -> bytes:
        await self._owner.pause()
        fault = self._owner.next_fault()
        if fault is Fault.DEATH_BEFORE:
            await self._owner.end_reconcile(dies=True)
        if (refusal := _refusal(fault, verb, resource, name)) is not None:
            raise refusal
        self._laws.watch(verb, resource, name, self._kube.objects)
        answer = await send()
        if fault is Fault.LOST:
            raise errors.Unavailable("the API server does not answer: connection reset")
        if fault in {Fault.DEATH_AFTER, Fault.HANG}:
            await self._owner.end_reconcile(dies=fault is Fault.DEATH_AFTER)
        return answer


def _refusal(
    fault: Fault | None, verb: str, resource: Resource, name: str
) -> errors.RaybusError | None:
    match fault:
        case Fault.CONFLICT:
            return errors.Conflict("the object has been modified")
        case Fault.REFUSED:
            return errors.Unavailable("etcdserver: leader changed")
        case Fault.THROTTLED:
            return errors.Throttled("too many requests")
        case Fault.QUOTA if (verb, resource) == ("create", POD):
            return errors.Forbidden(
                f'pods "{name}" is forbidden: exceeded quota: q, requested: pods=1'
            )
        case _:
            return None


class Owner:
    """A replica that assumes to own the cluster."""

    def __init__(
        self, kube: FakeKube, clock: FakeClock, config: Config, laws: Laws, *, has_mesh: bool
    ) -> None:
        self._kube, self._clock, self.config, self._laws = kube, clock, config, laws
        self.has_mesh = has_mesh
        """Whether the API server puts another container before those of each pod."""
        self._random = random.Random(0)
        self._faults: dict[int, Fault] = {}
        self._requests = 0
        self.restart()

    def restart(self) -> None:
        """Start with only the content of the stream."""
        port = Port(self._kube, self, self._laws)
        self._app = wiring.assemble(
            port, self.config, clock=self._clock, instance="test", registry=CollectorRegistry()
        )
        self.inbox: list[Message] = []
        """Messages that have not arrived yet."""
        self.is_due = True
        self.promised: datetime | None = None
        """When its next reconcile is due."""
        self._is_dead = False
        for (kind, namespace, name), version in self._laws.tombstones.items():
            if (view := wiring.KINDS.get(kind)) is not None:
                self._app.observer.cache.remove(view, namespace, name, version=version)
        for (kind, _, _), body in self._kube.objects.items():
            if (obj := _decoded(kind, body)) is not None:
                self._take((obj, False))

    def deliver(self, which: int, *, repeat: bool = False) -> None:
        """Let one message of those on their way arrive, in whatever order; `repeat` keeps it on its way."""
        if self.inbox:
            index = which % len(self.inbox)
            self._take(self.inbox[index] if repeat else self.inbox.pop(index))

    def deliver_all(self) -> None:
        """Let all that is on its way arrive."""
        while self.inbox:
            self._take(self.inbox.pop(0))

    async def reconcile(self, faults: Mapping[int, Fault] | None = None, *, seed: int = 0) -> None:
        """Reconcile once; the requests of `faults`, counted from 0, fail so; `seed` is the rhythm between owners."""
        self._faults, self._requests, self._random = dict(faults or {}), 0, random.Random(seed)
        self.is_due = False
        self._laws.reconcile_begins()
        try:
            async with asyncio.timeout(None) as self._limit:
                again = await self._app.reconciler(KEY, self._clock.now())
        except (errors.RaybusError, TimeoutError):
            self.is_due = True
        else:
            self.promised = again
            self.is_due |= again is not None and again <= self._clock.now()
        if self._is_dead:
            self.restart()

    async def pause(self) -> None:
        """Let the other owner go on for a while."""
        for _ in range(self._random.randrange(4)):
            await asyncio.sleep(0)

    def next_fault(self) -> Fault | None:
        """Return what is to happen to the request that comes now."""
        fault = self._faults.get(self._requests)
        self._requests += 1
        return fault

    async def end_reconcile(self, *, dies: bool) -> None:
        """Do nothing more in this reconcile, nor ever, if the replica dies.

        Requests that are sent side by side may each end it.
        """
        self._is_dead |= dies
        if not self._limit.expired():
            self._limit.reschedule(asyncio.get_running_loop().time())
        await asyncio.Event().wait()

    def _take(self, message: Message) -> None:
        obj, is_gone = message
        meta, cache = obj.metadata, self._app.observer.cache
        if is_gone:
            changed = (
                cache.remove(
                    type(obj), meta.namespace, meta.name, version=int(meta.resource_version)
                )
                is not None
            )
        else:
            changed = cache.put(obj)
        self.is_due |= changed and KEY in keys_of(obj)


def _decoded(kind: str, body: Body) -> Object | None:
    view = wiring.KINDS.get(kind)
    return None if view is None else msgspec.json.decode(msgspec.json.encode(body), type=view)


class Chaos:
    """The API server, its users and kubelet, and the owners of the one cluster."""

    def __init__(
        self, config: Config | None = None, *, owners: int = 2, has_mesh: bool = False
    ) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(now=self.clock.now)
        self.kube.graceful_pods = True
        self.laws = Laws()
        self.config = config or Config()
        self.has_mesh = has_mesh
        self.lost: set[str] = set()
        """Names of pods on lost nodes, whose end is never confirmed."""
        self.job_ends = "Complete"
        """The condition that every Job reaches; empty for none."""
        self.owners = [self.an_owner() for _ in range(owners)]
        self.kube.on_change.append(self._changed)

    def an_owner(self) -> Owner:
        """Return an owner that knows what there is now, and receives no more unless it is one of `owners`."""
        return Owner(self.kube, self.clock, self.config, self.laws, has_mesh=self.has_mesh)

    def configure(self, config: Config) -> None:
        """Restart all owners with another configuration."""
        self.config = config
        for owner in self.owners:
            owner.config = config
            owner.restart()

    def _changed(self, kind: str, body: Body, is_gone: bool) -> None:
        self.laws.see(kind, body, is_gone, self.clock.now())
        if (obj := _decoded(kind, body)) is not None:
            for owner in self.owners:
                owner.inbox.append((obj, is_gone))

    # --- users and kubelet ---------------------------------------------------------------------------------------------

    def apply(self, spec: Body, labels_: Mapping[str, str] = {}) -> None:
        """Write a spec as a user, or the autoscaler, does."""
        known = self.cluster or {}
        body: Body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {
                **known.get("metadata", {}),
                "name": KEY.name,
                "namespace": KEY.namespace,
                "labels": dict(labels_),
            },
            "spec": spec,
            "status": known.get("status", {}),
        }
        is_of_kubernetes = FeatureGate.KUBERNETES_WAS in self.config.gates
        is_elastic = is_of_kubernetes and spec.get("enableInTreeAutoscaling")
        self.laws.wants(spec, is_gang=bool(labels_) and not is_elastic)
        self.kube.put(RAY_CLUSTER, body)

    @property
    def cluster(self) -> Body | None:
        """Return the RayCluster; None while there is none."""
        return self.kube.objects.get(("RayCluster", KEY.namespace, KEY.name))

    async def delete(self) -> None:
        """Delete the RayCluster as a user does; without a finalizer it is gone."""
        self.laws.is_deleted = True
        await self.kube.delete(RAY_CLUSTER, KEY.namespace, KEY.name)

    def add_stranger(self, resource: Resource, body: Body) -> None:
        """Add an object of another owner, which nobody of ours may touch."""
        self.laws.knows(self.kube.put(resource, body))

    def pods(self) -> list[Body]:
        """Return all pods of the cluster, by name."""
        return own_pods(self.kube.objects)

    def set_pod(self, name: str, status: Body) -> None:
        """Report how a pod is doing."""
        self.kube.set_status(POD, KEY.namespace, name, status)

    def finish(self, name: str) -> None:
        """Let a pod that is Terminating go."""
        self.kube.finish_deletion(POD, KEY.namespace, name)

    async def evict(self, name: str, *, at_once: bool) -> None:
        """Delete a pod by hand; one without a node is gone at once."""
        await self.kube.delete(POD, KEY.namespace, name)
        if at_once and ("Pod", KEY.namespace, name) in self.kube.objects:
            self.finish(name)

    def end_ray(self, name: str, *, container: str = "") -> None:
        """Let Ray's container of a pod end, or another one; the rest of the pod runs on."""
        pod = self.kube.objects["Pod", KEY.namespace, name]
        names = [each["name"] for each in pod["spec"]["containers"]]
        ended = {container} & {*names} or RAY_CONTAINERS & {*names}
        statuses: list[Body] = [
            {
                "name": each,
                "state": {"terminated": {"exitCode": 1}} if each in ended else {"running": {}},
            }
            for each in names
        ]
        unready: Body = {"type": "Ready", "status": "False", "reason": "ContainersNotReady"}
        status = {"phase": "Running", "conditions": [unready], "containerStatuses": statuses}
        self.set_pod(name, status)

    def kubelet(self) -> bool:
        """Let Jobs and pods that are Terminating end, and all other pods run that still can.

        The garbage collector works as well. Return whether anything changed.
        """
        before = self.laws.changes
        self.kube.collect_garbage()
        for pod in self.pods():
            name = pod["metadata"]["name"]
            if name in self.lost:
                continue
            if "deletionTimestamp" in pod["metadata"]:
                self.finish(name)
            elif not is_lost(pod):
                ready: Body = {"type": "Ready", "status": "True"}
                self.set_pod(name, {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]})
        jobs = (each for each in self.kube.all(JOB, KEY.namespace) if is_owned(each))
        for job in jobs if self.job_ends else ():
            ended = {"conditions": [{"type": self.job_ends, "status": "True"}]}
            self.kube.set_status(JOB, KEY.namespace, job["metadata"]["name"], ended)
        return self.laws.changes != before

    # --- time ----------------------------------------------------------------------------------------------------------

    async def race(self, seed: int) -> None:
        """Let all owners reconcile at the same time."""
        self.laws.two_at_once = True
        async with asyncio.TaskGroup() as group:
            for number, owner in enumerate(self.owners):
                group.create_task(owner.reconcile(seed=seed + number))

    async def come_to_rest(self) -> None:
        """Stop all faults, leave one owner, and hold what it makes of the cluster to the laws.

        First with the pods whose end nobody confirms, then without them.
        """
        owner = self.owners[0]
        for other in self.owners[1:]:
            other.restart()
        await self._work(owner)
        self._judge_end_of_deletion()
        if self.lost & {pod["metadata"]["name"] for pod in self.pods()}:
            self.laws.with_lost_nodes(self.kube.objects)
            self.lost.clear()
            await self._work(owner)
        self.laws.at_rest(self.kube.objects)
        await self._reconcile_without_need(owner)

    async def _work(self, owner: Owner) -> None:
        """Let an owner work until there is nothing left to do."""
        for _ in range(LIMIT):
            owner.deliver_all()
            if owner.is_due:
                await owner.reconcile()
            elif not self.kubelet() and not self._wait_for(owner):
                return
        raise AssertionError(
            f"no rest after {LIMIT} moves: {[str(each) for each in self.kube.requests[-12:]]}"
        )

    def _wait_for(self, owner: Owner) -> bool:
        """Let the time come that an owner waits for, unless that is its periodic reconcile."""
        if owner.promised is None:
            return False
        wait = (owner.promised - self.clock.now()).total_seconds()
        is_deleted = "deletionTimestamp" in (self.cluster or {}).get("metadata", {})
        if wait >= PERIOD and not is_deleted:
            return False
        self.clock.advance(max(0, wait))
        owner.is_due, owner.promised = True, None
        return True

    def _judge_end_of_deletion(self) -> None:
        """Judge that a cluster that is deleted has gone within its limit."""
        cluster = self.cluster
        if cluster is not None and "deletionTimestamp" in cluster["metadata"]:
            raise Violation(f"finalizers {cluster['metadata']['finalizers']} hold the cluster")
        if (gone := self.laws.gone_after) is not None and gone > FINALIZER_LIMIT:
            raise Violation(f"the finalizer held the cluster for {gone}")

    async def _reconcile_without_need(self, owner: Owner) -> None:
        """A new replica reconciles, and both reconcile again when children are no longer trusted: there is nothing to write."""
        new = self.an_owner()
        quiet_since = len(self.kube.requests)
        for each, seconds in ((new, 0), (new, 301), (owner, 0)):
            self.clock.advance(seconds)
            await each.reconcile()
        self.laws.quiet(self.kube.requests[quiet_since:])
        for other in self.owners:
            other.deliver_all()
