"""Handlers for the actions that `common.runtime.executor` cannot carry out by itself.

They send Serve configs and capacities, and create objects whose kind the API server may not know.
"""

from common import errors
from common.kube.resources import GRPC_ROUTE, SERVICE
from common.ray.config_writer import ConfigWriter
from common.ray.submit import Submit
from common.runtime import executor
from common.runtime.actions import Create, Delete
from common.runtime.events import EventRecorder
from common.runtime.executor import Handlers
from common.runtime.writer import Writer
from traffic_manager import metrics
from traffic_manager.actions import MoveCapacity
from traffic_manager.events import GATEWAY_API_MISSING, GRPC_ROUTE_MISSING
from traffic_manager.observe import Observer
from traffic_manager.observed import Observed


class Execution:
    """The handlers, by action type, of the actions that the executor delegates to this service."""

    def __init__(self, writer: ConfigWriter, *, reads: Observer, events: EventRecorder) -> None:
        self._writer = writer
        self._reads = reads
        self._events = events
        self.handlers: Handlers[Observed] = {
            Create: self._create,
            Delete: self._delete,
            Submit: self._submit,
            MoveCapacity: self._move_capacity,
        }

    async def _create(self, action: Create, observed: Observed, writer: Writer) -> bool:
        """Create an object; return False if the API server does not know its kind.

        An Event reports the missing kind once. The other actions of the plan do not depend on the
        object. The kind Service is built in, so for a Service NotFound is raised.
        """
        meta, kind = observed.service.metadata, action.resource.kind
        try:
            await writer.create(action)
        except errors.NotFound:
            if action.resource is SERVICE:
                raise
            if self._reads.record_missing_kind(meta, kind):
                is_grpc = action.resource is GRPC_ROUTE
                await self._events.record(
                    meta, GRPC_ROUTE_MISSING if is_grpc else GATEWAY_API_MISSING
                )
            return False
        self._reads.record_known_kind(meta, kind)
        return True

    async def _delete(self, action: Delete, _observed: Observed, writer: Writer) -> bool:
        await writer.delete(action)
        return True  # also if the object did not exist any more

    async def _submit(self, action: Submit, observed: Observed, writer: Writer) -> bool:
        await self._writer.send(action, observed, writer)
        metrics.CONFIGS_SENT.inc()
        return True

    async def _move_capacity(
        self, action: MoveCapacity, observed: Observed, writer: Writer
    ) -> bool:
        for submit in action.submits:
            try:
                await self._submit(submit, observed, writer)
            except errors.RaybusError as problem:
                await executor.report(
                    self._events, observed.service.metadata, submit, result=problem
                )
                raise
            await executor.report(self._events, observed.service.metadata, submit, result=True)
        return await writer.patch(action.record)
