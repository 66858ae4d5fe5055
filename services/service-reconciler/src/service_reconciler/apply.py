"""Executes the plan; what is said of any write stands in `common.kube.carrier`, and the records of specs are written by `history`.

A Serve config that is not taken does not end the look: that is the user's to mend, and the next look tells them in the status.
An upgrade event that is lost does not either.
"""

from typing import Final, assert_never

import msgspec

from common import errors
from common.api import ray_service
from common.api.event import warning
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.bus.cache import Cache
from common.kube import absence
from common.kube.carrier import Carrier
from common.kube.client import Kube, Patch
from common.kube.resources import RAY_SERVICE
from common.ray.config_writer import ConfigWriter
from common.upgrade_events import Event
from service_reconciler import metrics
from service_reconciler.actions import (
    Action,
    Annotate,
    Change,
    Create,
    Delete,
    Publish,
    Remember,
    SetFinalizers,
    Submit,
    WriteStatus,
)
from service_reconciler.observe import Observer
from service_reconciler.observed import Observed
from service_reconciler.ports import Ray
from service_reconciler.publisher import Publisher
from service_reconciler.reasons import EventReason

UNRECORDED_LIMIT: Final = 5
"""Failures in a row of a record after which nobody waits for it."""
Deed = WriteStatus | SetFinalizers | Annotate | Create | Change | Delete | Submit | Remember | Publish


class Applier:
    """Carries out plans."""

    def __init__(
        self, kube: Kube, cache: Cache, ray: Ray, *, carrier: Carrier, reads: Observer, publisher: Publisher
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._writer = ConfigWriter(ray.serve, ray.revisions)
        self._history = ray.history
        self._carrier = carrier
        self._reads = reads
        self._publisher = publisher
        self._unrecorded: dict[str, int] = {}
        """RayServices, by uid, with how often their spec could not be recorded in a row."""

    async def apply(self, observed: Observed, actions: tuple[Action, ...]) -> None:
        """Carry out actions in order; the first refused write ends it, after its Event was told."""
        service = observed.service
        version = service.metadata.resource_version

        async def do(action: Deed) -> bool:
            nonlocal version
            match action:
                case WriteStatus() | SetFinalizers() | Annotate():
                    version = await self._change_service(service, action, version)
                case Create() | Change() | Delete():
                    await self._carrier.write(service.metadata.namespace, action)
                case Submit():
                    await self._submit(service.metadata, action)
                case Remember():
                    return await self._remember(service, action)
                case Publish(event=event):
                    return await self._publish(service.metadata, event)
                case _:
                    assert_never(action)
            metrics.note(observed, action)
            return True

        await self._carrier.carry_out(service.metadata, actions, do)

    async def _submit(self, meta: ObjectMeta, action: Submit) -> None:
        """Send a Serve config; tell the user when it was sent and that cannot be recorded."""
        unrecorded = await self._writer.send(action, self._reads.dashboard_service(action.cluster))
        if unrecorded is not None:
            await self._carrier.tell(meta, warning(EventReason.SERVE_CONFIG_NOT_RECORDED, "Update", unrecorded))

    async def _remember(self, service: RayService, action: Remember) -> bool:
        """Record the spec; tell the user of a refusal, because 'undo' will miss it."""
        try:
            await self._history.record(service, action.before, kept=action.kept)
        except errors.Retryable as problem:
            if not self._gives_up(service.metadata.uid, problem):
                raise
            await self._tell_unrecorded(service.metadata, problem)
        except errors.Terminal as problem:
            await self._tell_unrecorded(service.metadata, problem)
        else:
            self._unrecorded.pop(service.metadata.uid, None)
        return False

    def _gives_up(self, uid: str, problem: errors.Retryable) -> bool:
        """Tell whether a record failed so often that the cluster is created without it."""
        if isinstance(problem, errors.Conflict | errors.AlreadyExists | errors.NotOurs):
            return False
        self._unrecorded[uid] = self._unrecorded.get(uid, 0) + 1
        if self._unrecorded[uid] < UNRECORDED_LIMIT:
            return False
        del self._unrecorded[uid]
        return True

    async def _tell_unrecorded(self, meta: ObjectMeta, problem: errors.RaybusError) -> None:
        note = f"The spec is not recorded, so 'raybus undo' cannot go back to it later: {problem}"
        await self._carrier.tell(meta, warning(EventReason.SPEC_NOT_RECORDED, "Upgrade", note))

    async def _publish(self, meta: ObjectMeta, event: Event) -> bool:
        """Tell outsiders of an event, and the user of one that they will miss; there is nothing else to tell."""
        if (why := await self._publisher.publish(event)) is not None:
            note = f"Outsiders are not told of the upgrade's step {event.kind}: {why}"
            await self._carrier.tell(meta, warning(EventReason.UPGRADE_EVENT_LOST, "Upgrade", note))
        return False

    async def _change_service(
        self, service: RayService, action: WriteStatus | SetFinalizers | Annotate, version: str
    ) -> str:
        """Change what is ours of the RayService at a version; return the version that this made."""
        with absence.noticed(self._cache, service):
            new = ray_service.decode(await self._send(service.metadata, action, version))
        self._cache.put(new)
        return new.metadata.resource_version

    async def _send(self, meta: ObjectMeta, action: WriteStatus | SetFinalizers | Annotate, version: str) -> bytes:
        match action:
            case WriteStatus(status=status):
                body = {
                    "apiVersion": ray_service.API_VERSION,
                    "kind": ray_service.KIND,
                    "metadata": {"name": meta.name, "namespace": meta.namespace, "resourceVersion": version},
                    "status": msgspec.to_builtins(status),
                }
                return await self._kube.replace(RAY_SERVICE, meta.namespace, body, subresource="status")
            case SetFinalizers(finalizers=finalizers, cluster_config=config):
                changed: Json = {"resourceVersion": version, "finalizers": list(finalizers)}
                spec: Json = {} if config is None else {"spec": {"rayClusterConfig": config}}
                return await self._patch(meta, changed, **spec)
            case Annotate(name=name, value=value):
                return await self._patch(meta, {"resourceVersion": version, "annotations": {name: value}})

    async def _patch(self, meta: ObjectMeta, changed: Json, **more: Json) -> bytes:
        return await self._kube.patch(RAY_SERVICE, meta.namespace, meta.name, Patch(body={"metadata": changed, **more}))
