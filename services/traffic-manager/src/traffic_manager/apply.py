"""The only module that writes; until weighted routes are built, Events are all there is to write."""

from common.kube.events import EventRecorder
from common.kube.resources import RAY_SERVICE
from common.runtime.key import Key
from traffic_manager import metrics
from traffic_manager.actions import Action
from traffic_manager.observe import Told
from traffic_manager.observed import Observed


async def apply(observed: Observed, actions: tuple[Action, ...], events: EventRecorder, told: Told) -> None:
    """Carry out a plan."""
    meta = observed.service.metadata
    for action in actions:
        await events.record(RAY_SERVICE, meta, action.event)
        told.note(Key(meta.namespace, meta.name), meta.generation)
        metrics.NOT_SUPPORTED.inc()
