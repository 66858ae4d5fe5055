"""Does what `common.runtime.executor` leaves to this service: Serve configs, capacities, kinds that the API server may not know.

A Serve config that is not taken does not end the reconcile, unless a capacity and its record depend on it.
"""

from datetime import datetime

from common import errors
from common.api.event import warning
from common.api.meta import ObjectMeta
from common.kube.resources import GRPC_ROUTE, SERVICE
from common.ray.config_writer import ConfigWriter
from common.ray.submit import Submit
from common.runtime.actions import Action, Create, Plan
from common.runtime.executor import Executor
from common.runtime.writer import Writer
from traffic_manager import metrics
from traffic_manager.events import EventReason
from traffic_manager.observe import Observer
from traffic_manager.observed import Observed
from traffic_manager.serving import MoveCapacity

MISSING = (
    "The Gateway API (gateway.networking.k8s.io/v1) is not installed, so traffic cannot move in steps: "
    "install its CRDs and a gateway controller, or choose upgradeStrategy.type NewCluster"
)
NO_GRPC = (
    "The API server knows no GRPCRoute (gateway.networking.k8s.io/v1), so gRPC calls are not routed; HTTP requests are: "
    "install its CRD to route them too"
)
UNKNOWN = {GRPC_ROUTE.kind: (EventReason.GRPC_ROUTE_UNSUPPORTED, NO_GRPC)}


class Execution:
    """Executes plans for RayServices."""

    def __init__(self, executor: Executor, writer: ConfigWriter, *, reads: Observer) -> None:
        self._executor = executor
        self._writer = writer
        self._reads = reads

    async def execute(self, observed: Observed, plan: Plan[Action], *, now: datetime) -> datetime | None:
        """Execute a plan; raise its first failure at its end."""
        service = observed.service

        async def perform(action: Action, *, writer: Writer) -> bool:
            match action:
                case Create():
                    return await self._create(service.metadata, action, writer)
                case Submit():
                    await self._submit(service.metadata, action)
                case MoveCapacity(submits=submits, record=record):
                    for each in submits:
                        try:
                            await self._submit(service.metadata, each)
                        except errors.RaybusError as problem:
                            await self._executor.report(service.metadata, each, result=problem)
                            raise
                        await self._executor.report(service.metadata, each, result=True)
                    await writer.write(record)
                case _:
                    await writer.write(action)
            return True

        return (await self._executor.execute(service, plan.actions, perform)).conclude(now)

    async def _create(self, service: ObjectMeta, action: Create, writer: Writer) -> bool:
        """Create an object, unless the API server knows no such kind; the rest of the plan does not depend on it."""
        try:
            await writer.write(action)
        except errors.NotFound:
            if action.resource is SERVICE:
                raise
            kind = action.resource.kind
            if self._reads.note_absence(service, kind):
                reason, text = UNKNOWN.get(kind, (EventReason.GATEWAY_API_MISSING, MISSING))
                await self._executor.emit(service, warning(reason, "Reconcile", text))
            return False
        self._reads.note_creation(service, action.resource.kind)
        return True

    async def _submit(self, meta: ObjectMeta, action: Submit) -> None:
        service = self._reads.dashboard_service(action.cluster)
        unrecorded = await self._writer.send(action, service)
        metrics.CONFIGS_SENT.inc()
        if unrecorded is not None:
            await self._executor.emit(meta, warning(EventReason.SERVE_CONFIG_NOT_RECORDED, "Update", unrecorded))
