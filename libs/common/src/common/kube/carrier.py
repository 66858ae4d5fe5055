"""Carries plans out: one action after the other, its Events, and every answer into the cache at once.

So the next look reads our own writes. A refused write ends its chain, since what follows there was decided on its success, unless the
action is optional, or a side write; other chains go on, and the first refusal is raised at the end of the plan, so that the retry
backs off. What shows that the read was old, or that the object is not ours any more, ends the whole plan. Conflicts are not told: the
next look decides anew.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec
import structlog

from common import errors
from common.api.event import Event
from common.api.meta import ObjectMeta
from common.bus import cache as caches
from common.bus.cache import Cache
from common.kube.actions import Change, Create, Delete, Tell, Told, Write
from common.kube.client import Kube, Patch
from common.kube.events import EventRecorder
from common.kube.resources import Resource

log = structlog.get_logger()

Action = TypeVar("Action", bound=Write)
REFUSALS: Final = (errors.Terminal, errors.Throttled, errors.Unavailable)
"""What says nothing about whether the rest of a plan still holds."""


class _Deleted(msgspec.Struct, frozen=True):
    """What matters of the answer to a delete."""

    kind: str = ""
    metadata: dict[str, Any] = {}


def _ends_plan(action: Write, problem: errors.RaybusError) -> bool:
    """Tell whether nothing more of a plan may be carried out."""
    if isinstance(problem, errors.Conflict | errors.NotOurs):
        return True
    return not action.is_side and not isinstance(problem, REFUSALS)


class Carrier:
    """Writes for one service, and tells of it in Events about objects of one kind."""

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        events: EventRecorder,
        *,
        views: Mapping[str, type[caches.Object]],
        regarding: Resource,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._events = events
        self._views = views
        self._regarding = regarding

    async def carry_out(
        self, meta: ObjectMeta, actions: Iterable[Action | Tell], do: Callable[[Action], Awaitable[bool]]
    ) -> None:
        """Carry out a plan for one object; `do` tells whether there is anything to tell about its action."""
        refused: errors.RaybusError | None = None
        ended: set[str] = set()
        for action in actions:
            if action.chain in ended:
                continue
            if isinstance(action, Tell):
                await self.tell(meta, action.event)
                continue
            try:
                is_done = await do(action)
            except errors.RaybusError as problem:
                await self.tell_failure(meta, action.told, problem)
                if action.is_optional:
                    continue
                if _ends_plan(action, problem):
                    raise
                if not action.is_side:
                    ended.add(action.chain)
                refused = refused or problem
                continue
            if is_done:
                log.info("done", action=str(action))
                await self.tell(meta, action.told.done)
        if refused is not None:
            raise refused

    async def write(self, namespace: str, action: Create | Change | Delete) -> None:
        """Write one object."""
        match action:
            case Create():
                await self._create(namespace, action)
            case Change(resource=resource, name=name, patch=patch):
                self._keep(resource, await self._kube.patch(resource, namespace, name, Patch(body=patch)))
            case Delete():
                await self._delete(namespace, action)

    async def tell(self, meta: ObjectMeta, event: Event | None) -> None:
        """Tell an Event about an object."""
        if event is not None:
            await self._events.record(self._regarding, meta, event)

    async def tell_failure(self, meta: ObjectMeta, told: Told, problem: errors.RaybusError) -> None:
        """Tell that an action failed, and why."""
        if told.failed is None or isinstance(problem, errors.Conflict):
            return
        await self.tell(meta, msgspec.structs.replace(told.failed, note=f"{told.failed.note}{problem}"))

    async def _create(self, namespace: str, action: Create) -> None:
        resource = action.resource
        try:
            self._keep(resource, await self._kube.create(resource, namespace, action.body))
        except errors.AlreadyExists as problem:
            name = action.body["metadata"]["name"]
            self._keep(resource, await self._kube.get(resource, namespace, name))
            raise errors.Conflict(f"{resource.kind} {name} exists already; looking again") from problem

    async def _delete(self, namespace: str, action: Delete) -> None:
        view = self._views[action.resource.kind]
        known = self._cache.get(view, namespace, action.name)
        version = caches.version_of(known.metadata) if known is not None else 0
        try:
            answer = await self._kube.delete(action.resource, namespace, action.name, uid=action.uid)
        except errors.NotFound:
            self._cache.remove(view, namespace, action.name, version=version)
            return
        held = msgspec.json.decode(answer, type=_Deleted)
        if held.kind == action.resource.kind and "deletionTimestamp" in held.metadata:
            self._keep(action.resource, answer)
        else:
            self._cache.remove(view, namespace, action.name, version=version)

    def _keep(self, resource: Resource, answer: bytes) -> None:
        self._cache.put(msgspec.json.decode(answer, type=self._views[resource.kind]))
