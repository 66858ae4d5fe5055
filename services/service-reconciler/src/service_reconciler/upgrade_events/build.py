"""How an event about a RayService is put together; its id is made of durable facts alone."""

from datetime import datetime

from common.upgrade import events as upgrade_events
from common.upgrade.events import Data, Event, Upgrade
from service_reconciler.observed import Names, Observed


def upgrade(observed: Observed, names: Names) -> Upgrade:
    """Name the upgrade from the active to the pending cluster."""
    return upgrade_events.upgrade(observed.service.metadata.uid, names.active, names.pending)


def event(observed: Observed, data: Data, *facts: object, at: datetime) -> Event:
    """Return an event; facts distinguish it from others of its kind in the same upgrade."""
    meta = observed.service.metadata
    identity = upgrade_events.identity(data.upgrade, type(data), *facts)
    return Event(namespace=meta.namespace, name=meta.name, id=identity, time=at, data=data)
