"""Sends a Serve config to a cluster: records the intent, PUTs, records the outcome (ADR 5). Both services write through it.

Nothing is sent that is not recorded first. So after any crash or loss a record names each config that Ray may have. Each record
names the number that it follows: a decision from an older record is refused.
"""

from contextlib import suppress
from typing import Final

from common import errors
from common.ray.revision import Outcome
from common.ray.serve_api import ServeApi
from common.ray.submit import Submit
from common.runtime.actions import warning
from common.runtime.events import EventRecorder
from common.runtime.writer import Writer

NOT_RECORDED: Final = "ServeConfigNotRecorded"
"""Reason: Ray accepted a Serve config, and its record could not be completed."""


class ConfigWriter:
    """Writes Serve configs and their records."""

    def __init__(self, serve: ServeApi, events: EventRecorder) -> None:
        self._serve = serve
        self._events = events

    async def send(self, action: Submit, _observed: object, writer: Writer) -> bool:
        """Send a config, and report an acceptance that could not be recorded; a handler of `common.runtime.executor`."""
        cluster, config = action.cluster, action.given.serve_config
        try:
            record = await self._serve.revisions.intend(cluster, action.given, after=action.after)
        except (errors.Conflict, errors.NotOurs):
            raise  # the next reconcile decides anew
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
                await self._serve.revisions.conclude(cluster, record, Outcome.REFUSED)
            raise
        try:
            await self._serve.revisions.conclude(cluster, record, Outcome.ACCEPTED)
        except errors.RaybusError as problem:
            text = (
                f"ControllerRevision {record.metadata.name} of RayCluster {cluster.metadata.name} cannot be marked as "
                f"{Outcome.ACCEPTED}; until then what Serve reports decides what the cluster has: {problem}"
            )
            await self._events.record(writer.root.metadata, warning(NOT_RECORDED, "Update", text))
        return True
