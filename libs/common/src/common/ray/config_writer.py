"""Send Serve configs to clusters and record them before and after (ADR 5).

A config is recorded before it is sent. So after any crash or lost answer, each config that Ray may
have is in a record. Records are numbered, and a decision that was based on an older record than the
newest is rejected. service-reconciler and traffic-manager send configs only through this module.
"""

from contextlib import suppress
from typing import Final

from common import errors
from common.ray.revision import SendOutcome
from common.ray.serve_api import ServeApi
from common.ray.submit import Submit
from common.runtime.actions import warning
from common.runtime.events import EventRecorder
from common.runtime.writer import Writer

NOT_RECORDED: Final = "ServeConfigNotRecorded"
"""Event reason: Ray accepted a Serve config, but its record could not be completed."""


class ConfigWriter:
    """Sends Serve configs and writes their records."""

    def __init__(self, serve: ServeApi, events: EventRecorder) -> None:
        self._serve = serve
        self._events = events

    async def send(self, action: Submit, _observed: object, writer: Writer) -> bool:
        """Record and send a config; an action handler of `common.runtime.executor`.

        Return True if Ray accepted the config. If the acceptance cannot be recorded, write an
        Event; the next reconciles then compare the record with Serve's report.
        """
        cluster, config = action.cluster, action.given.serve_config
        try:
            record = await self._serve.revisions.intend(cluster, action.given, after=action.after)
        except (errors.Conflict, errors.OwnershipLost):
            raise  # the next reconcile decides again
        except errors.AlreadyExists as problem:
            self._serve.refuse(cluster, config, problem)
            raise errors.Conflict(str(problem)) from problem
        except errors.RaybusError as problem:
            unsent = errors.Unavailable(f"it cannot be recorded in a ControllerRevision: {problem}")
            self._serve.refuse(cluster, config, unsent)
            raise unsent from problem
        try:
            await self._serve.submit(cluster, config, target_capacity=action.capacity)
        except errors.Terminal:
            with suppress(errors.RaybusError):
                await self._serve.revisions.conclude(cluster, record, SendOutcome.REFUSED)
            raise
        try:
            await self._serve.revisions.conclude(cluster, record, SendOutcome.ACCEPTED)
        except errors.RaybusError as problem:
            text = (
                f"ControllerRevision {record.metadata.name} of RayCluster "
                f"{cluster.metadata.name} cannot be marked as "
                f"{SendOutcome.ACCEPTED}; until then what Serve reports decides what the "
                f"cluster has: {problem}"
            )
            await self._events.record(writer.root.metadata, warning(NOT_RECORDED, "Update", text))
        return True
