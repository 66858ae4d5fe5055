"""The only module that writes. Each answer goes into the cache at once, so the next look reads our own writes.

A refused write ends the look: what follows was decided on its success. A Serve config that is not taken does not: that is
the user's to mend, and the next look tells them in the status.
"""

from typing import Any, assert_never

import msgspec
import structlog

from common import errors
from common.api import ray_service
from common.api.core import Pod, Service
from common.api.event import Event
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.bus import cache as caches
from common.bus.cache import Cache
from common.kube.client import Kube, Patch
from common.kube.events import EventRecorder
from common.kube.resources import POD, RAY_CLUSTER, RAY_SERVICE, SERVICE, Resource
from service_reconciler.actions import (
    Action,
    Change,
    Create,
    Delete,
    SetFinalizers,
    Submit,
    Tell,
    Told,
    WriteStatus,
    describe,
)
from service_reconciler.observe import Observer
from service_reconciler.observed import Observed
from service_reconciler.ports import Revisions, ServeApi

log = structlog.get_logger()

VIEWS: dict[str, type[caches.Object]] = {
    RAY_SERVICE.kind: RayService,
    RAY_CLUSTER.kind: RayCluster,
    SERVICE.kind: Service,
    POD.kind: Pod,
}


class _Deleted(msgspec.Struct, frozen=True, rename="camel"):
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
        version = observed.service.metadata.resource_version
        for action in actions:
            told = getattr(action, "told", Told())
            try:
                version = await self._carry_out(observed, action, version)
            except errors.RaybusError as problem:
                await self._tell_failure(observed, told, problem)
                if not isinstance(action, Submit):
                    raise
                continue
            if not isinstance(action, Tell):
                log.info("done", action=describe(action))
            await self._tell(observed, told.done)

    async def _carry_out(self, observed: Observed, action: Action, version: str) -> str:
        """Do one thing; return the version of the RayService that we have seen or made last."""
        namespace = observed.service.metadata.namespace
        match action:
            case WriteStatus() | SetFinalizers():
                return await self._change_service(observed.service, action, version)
            case Create(resource=resource, body=body):
                await self._create(resource, namespace, body)
            case Change(resource=resource, name=name, patch=patch):
                self._keep(resource, await self._kube.patch(resource, namespace, name, Patch(body=patch)))
            case Delete():
                await self._delete(namespace, action)
            case Submit(cluster=cluster, given=given):
                await self._serve.submit(cluster, self._reads.dashboard_service(cluster), given.serve_config)
                await self._revisions.record(cluster, given)
            case Tell(event=event):
                await self._tell(observed, event)
            case _:
                assert_never(action)
        return version

    async def _change_service(self, service: RayService, action: WriteStatus | SetFinalizers, version: str) -> str:
        meta = service.metadata
        if isinstance(action, SetFinalizers):
            patch = {"metadata": {"resourceVersion": version, "finalizers": list(action.finalizers)}}
            answer = await self._kube.patch(RAY_SERVICE, meta.namespace, meta.name, Patch(body=patch))
        else:
            body = {
                "apiVersion": ray_service.API_VERSION,
                "kind": ray_service.KIND,
                "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": version},
                "status": msgspec.to_builtins(action.status),
            }
            answer = await self._kube.replace(RAY_SERVICE, meta.namespace, body, subresource="status")
        new = ray_service.decode(answer)
        self._cache.put(new)
        return new.metadata.resource_version

    async def _create(self, resource: Resource, namespace: str, body: dict[str, Any]) -> None:
        try:
            self._keep(resource, await self._kube.create(resource, namespace, body))
        except errors.AlreadyExists as problem:
            name = body["metadata"]["name"]
            self._keep(resource, await self._kube.get(resource, namespace, name))
            raise errors.Conflict(f"{resource.kind} {name} exists already; looking again") from problem

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

    async def _tell(self, observed: Observed, event: Event | None) -> None:
        if event is not None:
            await self._events.record(RAY_SERVICE, observed.service.metadata, event)

    async def _tell_failure(self, observed: Observed, told: Told, problem: errors.RaybusError) -> None:
        if told.failed is None or isinstance(problem, errors.Conflict):
            return
        note = f"{told.failed.note}{problem}"
        await self._tell(observed, msgspec.structs.replace(told.failed, note=note))
