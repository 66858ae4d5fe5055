"""The only module that writes. Each answer goes into the cache at once, so the next look reads our own writes.

A refused write ends the look, since what follows was decided on its success; a Serve config that is not taken does not, unless
a capacity and its record hang on it.
"""

from typing import Any, assert_never

import msgspec
import structlog

from common import errors
from common.api.core import Service
from common.api.event import Event
from common.api.gateway import Gateway, HttpRoute
from common.api.opaque import Json
from common.bus import cache as caches
from common.bus.cache import Cache
from common.kube.client import Kube, Patch
from common.kube.events import EventRecorder
from common.kube.resources import GATEWAY, HTTP_ROUTE, RAY_SERVICE, SERVICE, Resource
from traffic_manager import announcements, metrics
from traffic_manager.actions import Action, Change, Create, Delete, MoveCapacity, Submit, Tell, Told, describe
from traffic_manager.observe import Observer
from traffic_manager.observed import Observed
from traffic_manager.ports import Revisions, ServeApi
from traffic_manager.reasons import EventReason

log = structlog.get_logger()

VIEWS: dict[str, type[caches.Object]] = {
    GATEWAY.kind: Gateway,
    HTTP_ROUTE.kind: HttpRoute,
    SERVICE.kind: Service,
}
MISSING = (
    "The Gateway API (gateway.networking.k8s.io/v1) is not installed, so traffic cannot move in steps: "
    "install its CRDs and a gateway controller, or choose upgradeStrategy.type NewCluster"
)


class _Deleted(msgspec.Struct, frozen=True):
    """What matters of the answer to a delete."""

    kind: str = ""
    metadata: dict[str, Any] = {}


class Applier:
    """Carries out plans."""

    def __init__(
        self, kube: Kube, cache: Cache, serve: ServeApi, revisions: Revisions, *, events: EventRecorder, reads: Observer
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._serve = serve
        self._revisions = revisions
        self._events = events
        self._reads = reads

    async def apply(self, observed: Observed, actions: tuple[Action, ...]) -> None:
        """Carry out actions in order; the first refused write ends it, after its Event was told."""
        for action in actions:
            told = getattr(action, "told", Told())
            try:
                await self._carry_out(observed, action)
            except errors.RaybusError as problem:
                if await self._is_absent(observed, action, problem):
                    continue
                await self._tell_failure(observed, told, problem)
                if not isinstance(action, Submit):
                    raise
                continue
            if not isinstance(action, Tell):
                log.info("done", action=describe(action))
            await self._tell(observed, told.done)

    async def _carry_out(self, observed: Observed, action: Action) -> None:
        namespace = observed.service.metadata.namespace
        match action:
            case Create(resource=resource, body=body):
                await self._create(resource, namespace, body)
            case Change():
                await self._change(namespace, action)
            case Delete():
                await self._delete(namespace, action)
            case Submit():
                await self._submit(action)
            case MoveCapacity(submits=submits, record=record):
                for each in submits:
                    await self._submit_or_tell(observed, each)
                await self._change(namespace, record)
            case Tell(event=event):
                await self._tell(observed, event)
            case _:
                assert_never(action)

    async def _create(self, resource: Resource, namespace: str, body: Json) -> None:
        try:
            self._keep(resource, await self._kube.create(resource, namespace, body))
        except errors.AlreadyExists as problem:
            name = body["metadata"]["name"]
            self._keep(resource, await self._kube.get(resource, namespace, name))
            raise errors.Conflict(f"{resource.kind} {name} exists already; looking again") from problem

    async def _change(self, namespace: str, action: Change) -> None:
        answer = await self._kube.patch(action.resource, namespace, action.name, Patch(body=action.patch))
        self._keep(action.resource, answer)

    async def _submit(self, action: Submit) -> None:
        service = self._reads.dashboard_service(action.cluster)
        config = action.given.serve_config
        await self._serve.submit(action.cluster, service, config, target_capacity=action.capacity)
        metrics.CONFIGS_SENT.inc()
        await self._revisions.record(action.cluster, action.given)

    async def _submit_or_tell(self, observed: Observed, action: Submit) -> None:
        try:
            await self._submit(action)
        except errors.RaybusError as problem:
            await self._tell_failure(observed, action.told, problem)
            raise
        await self._tell(observed, action.told.done)

    async def _delete(self, namespace: str, action: Delete) -> None:
        view = VIEWS[action.resource.kind]
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
        self._cache.put(msgspec.json.decode(answer, type=VIEWS[resource.kind]))

    async def _is_absent(self, observed: Observed, action: Action, problem: errors.RaybusError) -> bool:
        """Tell whether the API server knows no such kind; the rest of the plan does not depend on it."""
        if not isinstance(action, Create) or not isinstance(problem, errors.NotFound) or action.resource is SERVICE:
            return False
        self._reads.note_absence()
        await self._tell(observed, announcements.warning(EventReason.GATEWAY_API_MISSING, "Reconcile", MISSING))
        return True

    async def _tell(self, observed: Observed, event: Event | None) -> None:
        if event is not None:
            await self._events.record(RAY_SERVICE, observed.service.metadata, event)

    async def _tell_failure(self, observed: Observed, told: Told, problem: errors.RaybusError) -> None:
        if told.failed is None or isinstance(problem, errors.Conflict):
            return
        note = f"{told.failed.note}{problem}"
        await self._tell(observed, msgspec.structs.replace(told.failed, note=note))
