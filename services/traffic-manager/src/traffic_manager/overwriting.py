"""When another writer replaces our backends on a route, they are written again, less often each time, with an Event.

`spec.rules` of an HTTPRoute is one value for server-side apply. A tool that owns it and applies its own manifest empties our backends, and
requests fail until they are there again. Two tools that each want their own must not write as fast as they can.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec
from msgspec import UNSET

from common.api.event import Event, warning
from common.upgrade.traffic_record import Overwritten, Record
from traffic_manager.observed import Observed
from traffic_manager.reasons import EventReason

CALM: Final = timedelta(minutes=1)
"""After so long without it the next one is the first again."""
AT_ONCE: Final = 3
"""Times in a row that are answered at once."""
LONGEST: Final = timedelta(seconds=4)


def due(observed: Observed, *, now: datetime) -> datetime | None:
    """Return when the route may be written again; None when it was not replaced, or when that is now."""
    held = observed.record.overwritten
    if observed.overwriter is None or held is UNSET or held.streak < AT_ONCE or now < held.at:
        return None
    moment = held.at + min(LONGEST, timedelta(seconds=0.5) * 2 ** min(held.streak - AT_ONCE, 8))
    return moment if now < moment else None


def noted(observed: Observed, record: Record, *, now: datetime) -> Record:
    """Return the record with what is repaired now."""
    if observed.overwriter is None:
        return record
    held = record.overwritten
    streak = held.streak + 1 if held is not UNSET and now - held.at < CALM else 1
    return msgspec.structs.replace(record, overwritten=Overwritten(at=now, by=observed.overwriter, streak=streak))


def event(observed: Observed) -> Event | None:
    """Return the event of a replaced route; its text stays the same, so that repeats are counted."""
    if observed.overwriter is None or observed.route is None:
        return None
    meta = observed.route.metadata
    text = (
        f"HTTPRoute {meta.namespace}/{meta.name}: field manager {observed.overwriter} replaced spec.rules, and requests failed until "
        "raybus had written its backends again; let that tool leave spec.rules alone (docs/how-to/gateway.md, A route in Git)"
    )
    return warning(EventReason.ROUTE_OVERWRITTEN, "Reconcile", text)
