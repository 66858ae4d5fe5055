"""The upgrade events of a plan, and their place: before the write that makes them past, or after the write that shows them."""

from collections.abc import Iterable
from datetime import datetime

from common.api.ray_service import RayServiceStatus
from common.runtime.actions import Action
from common.upgrade.events import Event
from service_reconciler.actions import Publish
from service_reconciler.observed import Names, Observed
from service_reconciler.status import compute
from service_reconciler.status.conditions import is_timed_out
from service_reconciler.upgrade_events import current, ends, steps


def current_state(observed: Observed, *, now: datetime) -> list[Action]:
    """Publish the state in the status; first of all, since a later write may make it past."""
    return _published(current.events(observed, observed.names, observed.service.status, now=now))


def before(observed: Observed, names: Names, status: RayServiceStatus, *, now: datetime) -> list[Action]:
    """Publish what cannot be observed any more once a status with these names is written."""
    is_over = is_timed_out(status.conditions)
    end = ends.failed(observed, status, now=now) if is_over else ends.unmade(observed, names, status, now=now)
    return _published((*steps.unpublished(observed, now=now), *end))


def after(observed: Observed, names: Names, status: RayServiceStatus, *, now: datetime) -> list[Action]:
    """Publish what the status shows from this write on."""
    old = observed.service.status
    if not compute.differs(old, status):
        return []
    known = {each.id for each in current.events(observed, observed.names, old, now=now)}
    kept = Names() if is_timed_out(status.conditions) else names
    new = current.events(observed, kept, compute.stamped(status, now=now), now=now)
    return _published(each for each in new if each.id not in known)


def suspended(observed: Observed, *, now: datetime) -> list[Action]:
    """Publish the end of the upgrade that is on when its service is suspended."""
    why = "The RayService is suspended; all its clusters are deleted."
    return _published((*steps.unpublished(observed, now=now), *ends.cut_short(observed, ends.SUSPENDED, why, now=now)))


def deleted(observed: Observed, *, now: datetime) -> list[Action]:
    """Publish what ends with a RayService."""
    why = "The RayService is deleted, and all its clusters with it."
    end = (*steps.unpublished(observed, now=now), *ends.cut_short(observed, ends.DELETED, why, now=now))
    return [*_published(end), *swept(observed, now=now)]


def swept(observed: Observed, *, now: datetime) -> list[Action]:
    """Publish the ends of upgrades with old clusters that are deleted before their time."""
    alive = [each for each in observed.clusters if each.metadata.deletion_timestamp is None]
    return _published(ends.completed_by_deletion(observed, alive, now=now))


def _published(events: Iterable[Event]) -> list[Action]:
    return [Publish(event=each) for each in events]
