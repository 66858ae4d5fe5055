"""What a plan tells outsiders, and where: before the write that makes it past, or after the one that says it."""

from collections.abc import Iterable
from datetime import datetime

from common.api.ray_service import RayServiceStatus
from common.upgrade_events import Event
from service_reconciler.actions import Action, Publish
from service_reconciler.events import ends, steps
from service_reconciler.events import standing as says
from service_reconciler.observed import Names, Observed
from service_reconciler.status import compute, ready


def standing(observed: Observed, *, now: datetime) -> list[Action]:
    """Tell what the status says; first of all, for whatever is written afterwards may make it past."""
    return _published(says.said(observed, observed.names, observed.service.status, now=now))


def before(observed: Observed, names: Names, status: RayServiceStatus, *, now: datetime) -> list[Action]:
    """Tell what nobody could tell any more once a status with these names is written."""
    is_over = ready.is_timed_out(status.conditions)
    end = ends.failed(observed, status, now=now) if is_over else ends.unmade(observed, names, status, now=now)
    return _published((*steps.unseen(observed, now=now), *end))


def after(observed: Observed, names: Names, status: RayServiceStatus, *, now: datetime) -> list[Action]:
    """Tell what the status says that is written now, and did not say before."""
    old = observed.service.status
    if not compute.differs(old, status):
        return []
    known = {each.id for each in says.said(observed, observed.names, old, now=now)}
    kept = Names() if ready.is_timed_out(status.conditions) else names
    new = says.said(observed, kept, compute.stamped(status, now=now), now=now)
    return _published(each for each in new if each.id not in known)


def suspended(observed: Observed, *, now: datetime) -> list[Action]:
    """Tell that the upgrade which is on goes with its service."""
    why = "The RayService is suspended; all its clusters are deleted."
    return _published((*steps.unseen(observed, now=now), *ends.cut_short(observed, ends.SUSPENDED, why, now=now)))


def deleted(observed: Observed, *, now: datetime) -> list[Action]:
    """Tell what ends with a RayService."""
    why = "The RayService is deleted, and all its clusters with it."
    end = (*steps.unseen(observed, now=now), *ends.cut_short(observed, ends.DELETED, why, now=now))
    return [*_published(end), *swept(observed, now=now)]


def swept(observed: Observed, *, now: datetime) -> list[Action]:
    """Tell the ends of upgrades whose old clusters are deleted before their time."""
    alive = [each for each in observed.clusters if each.metadata.deletion_timestamp is None]
    return _published(ends.completed_by_deletion(observed, alive, now=now))


def _published(events: Iterable[Event]) -> list[Action]:
    return [Publish(event=each) for each in events]
