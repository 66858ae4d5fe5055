"""Handlers of the actions that only this service has: Serve configs, spec records, events.

A refused Serve config does not stop the reconcile: the next status reports it, and the user has to
correct it. A lost upgrade event does not stop the reconcile either. Records of specs are read only
when a cluster is about to be created, so they are neither on the bus nor cached.
"""

from contextlib import suppress
from typing import Final

import msgspec
import structlog

from common import errors
from common.api.meta import Items
from common.api.ray_service import RayService
from common.kube import client
from common.kube.client import Kube
from common.kube.resources import CONTROLLER_REVISION, UPGRADE_POLICY, format_selector
from common.ray import goal_revision
from common.ray.config_writer import ConfigWriter
from common.ray.goal_revision import GoalRevision
from common.ray.submit import Submit
from common.runtime.actions import Annotate, Create, Delete, Patch, Publish, warning
from common.runtime.cache import BoundedDict
from common.runtime.event_publisher import Publisher
from common.runtime.events import EventRecorder
from common.runtime.executor import Handlers
from common.runtime.writer import Writer
from service_reconciler import metrics
from service_reconciler.actions import RecordRevision, ReportPolicy
from service_reconciler.observed import Observed
from service_reconciler.promotion import revisions
from service_reconciler.reasons import EventReason

log = structlog.get_logger()

UNRECORDED_LIMIT: Final = 5
"""Consecutive failures to record a spec after which the cluster is created without the record."""


class Execution:
    """The handlers, by action type, of the actions that the executor delegates to this service."""

    def __init__(
        self, writer: ConfigWriter, *, kube: Kube, publisher: Publisher, events: EventRecorder
    ) -> None:
        self._kube = kube
        self._events = events
        self._unrecorded = BoundedDict[str, int]()
        """Consecutive failures to record the spec, by uid of the RayService."""
        self.handlers: Handlers[Observed] = {
            Submit: writer.send,
            RecordRevision: self._record_revision,
            Publish: publisher.publish,
            ReportPolicy: self._report_policy,
            Annotate: self._annotate,
            Delete: self._delete,
        }

    async def _record_revision(
        self, action: RecordRevision, observed: Observed, _writer: Writer
    ) -> bool:
        """Record the spec that a new cluster is to run.

        A temporary failure is raised, so that the reconcile is retried. After `UNRECORDED_LIMIT`
        failures in a row, or a permanent failure, an Event reports it and the plan continues
        without the record.
        """
        meta = observed.service.metadata
        try:
            await self._record(observed.service, action)
        except (errors.Conflict, errors.AlreadyExists, errors.OwnershipLost):
            raise
        except (errors.Retryable, errors.Terminal) as problem:
            failures = self._unrecorded.pop(meta.uid, 0) + 1
            if isinstance(problem, errors.Retryable) and failures < UNRECORDED_LIMIT:
                self._unrecorded[meta.uid] = failures
                raise
            note = (
                f"The spec is not recorded, so 'raybus undo' cannot go back to it later: {problem}"
            )
            await self._events.record(meta, warning(EventReason.SPEC_NOT_RECORDED, "Upgrade", note))
        else:
            self._unrecorded.pop(meta.uid, None)
        return False

    async def _report_policy(
        self, action: ReportPolicy, observed: Observed, _writer: Writer
    ) -> bool:
        """Write the conditions of an UpgradePolicy; only log a failure, since they only inform."""
        status = {"conditions": msgspec.to_builtins(action.conditions)}
        body = {"metadata": {"resourceVersion": action.resource_version}, "status": status}
        patch = client.PatchRequest(body=body, subresource="status")
        try:
            await self._kube.patch(
                UPGRADE_POLICY, observed.service.metadata.namespace, action.name, patch
            )
        except errors.OwnershipLost:
            raise
        except errors.RaybusError as problem:
            log.info(
                "cannot write the status of an UpgradePolicy",
                policy=action.name,
                error=str(problem),
            )
        return False

    async def _annotate(self, action: Annotate, observed: Observed, writer: Writer) -> bool:
        await writer.patch_root(action)
        metrics.note(observed, action)
        return True

    async def _delete(self, action: Delete, observed: Observed, writer: Writer) -> bool:
        await writer.delete(action)
        metrics.note(observed, action)
        return True

    async def _record(self, service: RayService, action: RecordRevision) -> None:
        """Record the new and the serving spec, and delete the oldest records beyond the limit."""
        meta, goal = service.metadata, goal_revision.asked_of(service)
        selector = format_selector(goal_revision.marks(meta.name))
        body = await self._kube.list(CONTROLLER_REVISION, meta.namespace, label_selector=selector)
        goal_revisions = goal_revision.owned_revisions(
            meta, msgspec.json.decode(body, type=Items[GoalRevision]).items
        )
        for write in revisions.decide(meta, goal, action.before, goal_revisions, kept=action.kept):
            match write:
                case Create(resource=resource, body=body):
                    await self._kube.create(resource, meta.namespace, body)
                case Patch(resource=resource, name=name, patch=patch):
                    await self._kube.patch(
                        resource, meta.namespace, name, client.PatchRequest(body=patch)
                    )
                case Delete(resource=resource, name=name, uid=uid):
                    with suppress(errors.NotFound):
                        await self._kube.delete(resource, meta.namespace, name, uid=uid)
