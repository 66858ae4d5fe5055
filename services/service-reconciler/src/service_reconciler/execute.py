"""Does what `common.runtime.executor` leaves to this service: Serve configs, records of specs, upgrade events.

A Serve config that is not taken does not end the reconcile: that is the user's to correct, and the next status reports it.
An upgrade event that is lost does not either.
"""

from datetime import datetime
from typing import Final

from common import errors
from common.api.event import warning
from common.api.meta import ObjectMeta
from common.api.ray_service import RayService
from common.ray.config_writer import ConfigWriter
from common.ray.submit import Submit
from common.runtime.actions import Action, Plan
from common.runtime.executor import Executor
from common.runtime.writer import Writer
from common.upgrade.events import Event
from service_reconciler import metrics
from service_reconciler.actions import Publish, RecordRevision
from service_reconciler.history import History
from service_reconciler.observe import Observer
from service_reconciler.observed import Observed
from service_reconciler.publisher import Publisher
from service_reconciler.reasons import EventReason

UNRECORDED_LIMIT: Final = 5
"""Failures in a row of a record after which the cluster is created without it."""


class Execution:
    """Executes plans for RayServices."""

    def __init__(
        self, executor: Executor, writer: ConfigWriter, *, history: History, reads: Observer, publisher: Publisher
    ) -> None:
        self._executor = executor
        self._writer = writer
        self._history = history
        self._reads = reads
        self._publisher = publisher
        self._unrecorded: dict[str, int] = {}
        """RayServices, by uid, with how often their spec could not be recorded in a row."""

    async def execute(self, observed: Observed, plan: Plan[Action], *, now: datetime) -> datetime | None:
        """Execute a plan; raise its first failure at its end."""
        service = observed.service

        async def perform(action: Action, *, writer: Writer) -> bool:
            match action:
                case Submit():
                    await self._submit(service.metadata, action)
                case RecordRevision():
                    return await self._record_revision(service, action)
                case Publish(event=event):
                    return await self._publish(service.metadata, event)
                case _:
                    await writer.write(action)
            metrics.note(observed, action)
            return True

        return (await self._executor.execute(service, plan.actions, perform)).conclude(now)

    async def _submit(self, meta: ObjectMeta, action: Submit) -> None:
        """Send a Serve config; report one that was sent and cannot be recorded."""
        unrecorded = await self._writer.send(action, self._reads.dashboard_service(action.cluster))
        if unrecorded is not None:
            await self._executor.emit(meta, warning(EventReason.SERVE_CONFIG_NOT_RECORDED, "Update", unrecorded))

    async def _record_revision(self, service: RayService, action: RecordRevision) -> bool:
        """Record the spec; report a refusal, because 'undo' will miss it."""
        try:
            await self._history.record(service, action.before, kept=action.kept)
        except errors.Retryable as problem:
            if not self._creates_unrecorded(service.metadata.uid, problem):
                raise
            await self._report_unrecorded(service.metadata, problem)
        except errors.Terminal as problem:
            await self._report_unrecorded(service.metadata, problem)
        else:
            self._unrecorded.pop(service.metadata.uid, None)
        return False

    def _creates_unrecorded(self, uid: str, problem: errors.Retryable) -> bool:
        """Return whether a record failed so often that the cluster is created without it."""
        if isinstance(problem, errors.Conflict | errors.AlreadyExists | errors.NotOurs):
            return False
        self._unrecorded[uid] = self._unrecorded.get(uid, 0) + 1
        if self._unrecorded[uid] < UNRECORDED_LIMIT:
            return False
        del self._unrecorded[uid]
        return True

    async def _report_unrecorded(self, meta: ObjectMeta, problem: errors.RaybusError) -> None:
        note = f"The spec is not recorded, so 'raybus undo' cannot go back to it later: {problem}"
        await self._executor.emit(meta, warning(EventReason.SPEC_NOT_RECORDED, "Upgrade", note))

    async def _publish(self, meta: ObjectMeta, event: Event) -> bool:
        """Publish an upgrade event; report one that external consumers will miss."""
        if (why := await self._publisher.publish(event)) is not None:
            note = f"External consumers do not receive the upgrade's step {event.kind}: {why}"
            await self._executor.emit(meta, warning(EventReason.UPGRADE_EVENT_LOST, "Upgrade", note))
        return False
