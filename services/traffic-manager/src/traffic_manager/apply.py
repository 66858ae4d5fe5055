"""Executes the plan; what is said of any write stands in `common.kube.carrier`.

A Serve config that is not taken does not end the look, unless a capacity and its record hang on it.
"""

from typing import assert_never

from common import errors
from common.api.event import warning
from common.api.meta import ObjectMeta
from common.kube.carrier import Carrier
from common.kube.resources import GRPC_ROUTE, SERVICE
from common.ray.config_writer import ConfigWriter
from traffic_manager import metrics
from traffic_manager.actions import Action, Change, Create, Delete, MoveCapacity, Submit
from traffic_manager.observe import Observer
from traffic_manager.observed import Observed
from traffic_manager.ports import Revisions, ServeApi
from traffic_manager.reasons import EventReason

MISSING = (
    "The Gateway API (gateway.networking.k8s.io/v1) is not installed, so traffic cannot move in steps: "
    "install its CRDs and a gateway controller, or choose upgradeStrategy.type NewCluster"
)
NO_GRPC = (
    "The API server knows no GRPCRoute (gateway.networking.k8s.io/v1), so gRPC calls are not routed; HTTP requests are: "
    "install its CRD to route them too"
)
UNKNOWN = {GRPC_ROUTE.kind: (EventReason.GRPC_ROUTE_UNSUPPORTED, NO_GRPC)}


class Applier:
    """Carries out plans."""

    def __init__(self, serve: ServeApi, revisions: Revisions, *, carrier: Carrier, reads: Observer) -> None:
        self._writer = ConfigWriter(serve, revisions)
        self._carrier = carrier
        self._reads = reads

    async def apply(self, observed: Observed, actions: tuple[Action, ...]) -> None:
        """Carry out actions in order; the first refused write ends it, after its Event was told."""
        meta = observed.service.metadata

        async def do(action: Create | Change | Delete | Submit | MoveCapacity) -> bool:
            match action:
                case Create():
                    return await self._create(meta, action)
                case Change() | Delete():
                    await self._carrier.write(meta.namespace, action)
                case Submit():
                    await self._submit(meta, action)
                case MoveCapacity(submits=submits, record=record):
                    for each in submits:
                        await self._submit_or_tell(meta, each)
                    await self._carrier.write(meta.namespace, record)
                case _:
                    assert_never(action)
            return True

        await self._carrier.carry_out(meta, actions, do)

    async def _create(self, service: ObjectMeta, action: Create) -> bool:
        """Create an object, unless the API server knows no such kind; the rest of the plan does not depend on it."""
        try:
            await self._carrier.write(service.namespace, action)
        except errors.NotFound:
            if action.resource is SERVICE:
                raise
            kind = action.resource.kind
            if self._reads.note_absence(service, kind):
                reason, text = UNKNOWN.get(kind, (EventReason.GATEWAY_API_MISSING, MISSING))
                await self._carrier.tell(service, warning(reason, "Reconcile", text))
            return False
        self._reads.note_presence(service, action.resource.kind)
        self._reads.meet_again(service)
        return True

    async def _submit(self, meta: ObjectMeta, action: Submit) -> None:
        service = self._reads.dashboard_service(action.cluster)
        unrecorded = await self._writer.send(action, service, target_capacity=action.capacity)
        metrics.CONFIGS_SENT.inc()
        if unrecorded is not None:
            await self._carrier.tell(meta, warning(EventReason.SERVE_CONFIG_NOT_RECORDED, "Update", unrecorded))

    async def _submit_or_tell(self, service: ObjectMeta, action: Submit) -> None:
        try:
            await self._submit(service, action)
        except errors.RaybusError as problem:
            await self._carrier.tell_failure(service, action.told, problem)
            raise
        await self._carrier.tell(service, action.told.done)
