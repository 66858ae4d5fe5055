"""One RayCluster among faults: owners that die, hang or work at the same time, and a bus that is late, unordered and repeats itself.

An `Owner` is a replica of cluster-reconciler. It uses the API server through a `Port`, which fails on request, and
learns of changes only when they are delivered to it. `Chaos` holds the API server, the owners, and what users and kubelet
do. What must be true whatever happens stands in `laws`.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec
from prometheus_client import CollectorRegistry

from cluster_reconciler import wiring
from cluster_reconciler.config import Config
from cluster_reconciler.wiring import keys_of
from common import errors
from common.api.opaque import Body
from common.kube.client import Patch
from common.kube.resources import POD, RAY_CLUSTER, Resource
from common.runtime.cache import Object
from common.runtime.key import Key
from scenario.cluster_reconciler.laws import Laws
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube

KEY: Final = Key("ns", "c")
PERIOD: Final = 10.0
"""Seconds: a longer wait is a wait for nothing in particular."""
LIMIT: Final = 200
"""Reconciles and moves of kubelet after which a cluster without changes counts as one that never comes to rest."""

Message = tuple[Object, bool]
"""An object as it was then, and whether it is gone."""


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


class Port:
    """The API server as one owner sees it; implements `common.kube.client.Kube`."""

    def __init__(self, kube: FakeKube, owner: "Owner", laws: Laws) -> None:
        self._kube = kube
        self._owner = owner
        self._laws = laws

    async def request(self, method: str, path: str, /, **more: Any) -> bytes:
        return await self._kube.request(method, path, **more)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        return await self._send(
            "get", resource, name, lambda: self._kube.get(resource, namespace, name)
        )

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        label_selector: str = "",
        limit: int | None = None,
    ) -> bytes:
        return await self._send(
            "list",
            resource,
            "",
            lambda: self._kube.list(
                resource, namespace, label_selector=label_selector, limit=limit
            ),
        )

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        return await self._send(
            "create",
            resource,
            body["metadata"]["name"],
            lambda: self._kube.create(resource, namespace, body),
        )

    async def dry_create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        return await self._kube.dry_create(resource, namespace, body)

    async def replace(
        self,
        resource: Resource,
        namespace: str | None,
        body: Body,
        *,
        subresource: str | None = None,
    ) -> bytes:
        return await self._send(
            "update",
            resource,
            "",
            lambda: self._kube.replace(resource, namespace, body, subresource=subresource),
        )

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: Patch
    ) -> bytes:
        return await self._send(
            "patch", resource, name, lambda: self._kube.patch(resource, namespace, name, patch)
        )

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        version: str | None = None,
    ) -> bytes:
        return await self._send(
            "delete",
            resource,
            name,
            lambda: self._kube.delete(resource, namespace, name, uid=uid, version=version),
        )

    async def delete_collection(
        self, resource: Resource, namespace: str, *, label_selector: str
    ) -> bytes:
        return await self._send(
            "deletecollection",
            resource,
            "",
            lambda: self._kube.delete_collection(
                resource, namespace, label_selector=label_selector
            ),
        )

    async def request_token(self, namespace: str, account: str, *, seconds: int) -> bytes:
        return await self._kube.request_token(namespace, account, seconds=seconds)

    async def _send(
        self, verb: str, resource: Resource, name: str, request: Callable[[], Awaitable[bytes]]
    ) -> bytes:
        await self._owner.pause()
        fault = self._owner.next_fault()
        if fault is Fault.DEATH_BEFORE:
            await self._owner.end_reconcile(dies=True)
        if (refusal := _refusal(fault, verb, resource, name)) is not None:
            raise refusal
        self._laws.watch(verb, resource, name, self._kube.objects)
        answer = await request()
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
    """One replica that takes the cluster for its own."""

    def __init__(self, kube: FakeKube, clock: FakeClock, config: Config, laws: Laws) -> None:
        self._kube, self._clock, self._config, self._laws = kube, clock, config, laws
        self._random = random.Random(0)
        self._faults: dict[int, Fault] = {}
        self._requests = 0
        self.restart()

    def restart(self) -> None:
        """Come up with nothing but what the stream holds."""
        port = Port(self._kube, self, self._laws)
        self._app = wiring.assemble(
            port, self._config, clock=self._clock, instance="test", registry=CollectorRegistry()
        )
        self.inbox: list[Message] = []
        """Messages that are on their way."""
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
        """Do nothing more in this reconcile, nor ever, if the replica dies."""
        self._is_dead |= dies
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

    def __init__(self, config: Config | None = None, *, owners: int = 2) -> None:
        self.clock = FakeClock()
        self.kube = FakeKube(now=self.clock.now)
        self.kube.graceful_pods = True
        self.laws = Laws()
        self.config = config or Config()
        self.owners = [self.an_owner() for _ in range(owners)]
        self.kube.on_change.append(self._changed)

    def an_owner(self) -> Owner:
        """Return an owner that knows what there is now, and receives no more unless it is one of `owners`."""
        return Owner(self.kube, self.clock, self.config, self.laws)

    def _changed(self, kind: str, body: Body, is_gone: bool) -> None:
        self.laws.see(kind, body, is_gone)
        if (obj := _decoded(kind, body)) is not None:
            for owner in self.owners:
                owner.inbox.append((obj, is_gone))

    # --- users and kubelet ---------------------------------------------------------------------------------------------

    def apply(self, spec: Body) -> None:
        """Write a spec as a user, or the autoscaler, does."""
        known = self.kube.objects.get(("RayCluster", KEY.namespace, KEY.name), {})
        body: Body = {
            "apiVersion": "ray.io/v1",
            "kind": "RayCluster",
            "metadata": {"name": KEY.name, "namespace": KEY.namespace},
            "spec": spec,
            "status": known.get("status", {}),
        }
        self.laws.wants(spec)
        self.kube.put(RAY_CLUSTER, body)

    def pods(self) -> list[Body]:
        """Return all pods, by name."""
        return self.kube.all(POD, KEY.namespace)

    def set_pod(self, name: str, status: Body) -> None:
        """Report how a pod is doing."""
        self.kube.set_status(POD, KEY.namespace, name, status)

    def finish(self, name: str) -> None:
        """Let a pod that is Terminating go."""
        self.kube.finish_deletion(POD, KEY.namespace, name)

    async def evict(self, name: str, *, at_once: bool) -> None:
        """Delete a pod by hand."""
        await self.kube.delete(POD, KEY.namespace, name)
        if at_once:
            self.finish(name)

    def kubelet(self) -> bool:
        """Let pods go that are Terminating, and all others run that still can; return whether anything changed."""
        before = self.laws.changes
        for pod in self.pods():
            name = pod["metadata"]["name"]
            if "deletionTimestamp" in pod["metadata"]:
                self.finish(name)
            elif pod.get("status", {}).get("phase") not in {
                "Failed",
                "Succeeded",
            } and not _has_ended(pod):
                ready: Body = {"type": "Ready", "status": "True"}
                self.set_pod(name, {"phase": "Running", "podIP": "10.0.0.1", "conditions": [ready]})
        return self.laws.changes != before

    # --- time ----------------------------------------------------------------------------------------------------------

    async def race(self, seed: int) -> None:
        """Let all owners reconcile at the same time."""
        self.laws.two_at_once = True
        async with asyncio.TaskGroup() as group:
            for number, owner in enumerate(self.owners):
                group.create_task(owner.reconcile(seed=seed + number))

    async def come_to_rest(self) -> None:
        """Stop all faults, leave one owner, and let it work until there is nothing left to do; then hold it to the laws."""
        owner = self.owners[0]
        for other in self.owners[1:]:
            other.restart()
        for _ in range(LIMIT):
            owner.deliver_all()
            if owner.is_due or self._wait_for(owner):
                await owner.reconcile()
            elif not self.kubelet():
                break
        else:
            raise AssertionError(
                f"no rest after {LIMIT} moves: {[str(each) for each in self.kube.requests[-12:]]}"
            )
        self.laws.at_rest(self.kube.objects)
        await self._reconcile_without_need(owner)

    def _wait_for(self, owner: Owner) -> bool:
        """Let the time come that an owner waits for, unless that is its periodic reconcile."""
        wait = (owner.promised - self.clock.now()).total_seconds() if owner.promised else PERIOD
        if wait < PERIOD:
            self.clock.advance(wait)
        return wait < PERIOD

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


def _has_ended(pod: Body) -> bool:
    statuses = pod.get("status", {}).get("containerStatuses", [])
    return any("terminated" in each.get("state", {}) for each in statuses)
