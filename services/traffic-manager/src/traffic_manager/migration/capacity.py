"""`target_capacity` of either cluster (spec rayservice §8.3, §8.10 G3, G5, G6).

Both together never have more than 100 + `maxSurgePercent`, and neither ever less than its weight. Forward, the new cluster grows
while both fit, then traffic moves, then the old one shrinks to make room. Back, the old cluster grows first.
"""

from datetime import datetime, timedelta
from typing import Final

from traffic_manager.migration.state import Direction, Migration, Policy, Split, is_hurried

PAUSE: Final = timedelta(seconds=1)
"""Between two visible changes, so that whoever asks once a second sees each of them."""
WHOLE: Final = 100
LATE: Final = timedelta(seconds=10)
"""How long a rollback waits for a Gateway to follow."""


def decide(m: Migration, policy: Policy, *, now: datetime) -> Split:
    """Return the capacities that should hold from now on."""
    wanted = _forward(m, policy) if m.direction is Direction.FORWARD else _back(m, policy, now=now)
    is_change = (wanted.active, wanted.pending) != (m.active.capacity, m.pending.capacity)
    if is_change and not is_hurried(m, policy) and m.changed_at is not None and now < (due := m.changed_at + PAUSE):
        return _hold(m, f"{wanted.note}, a moment later", look_again_at=due)
    return wanted


def _forward(m: Migration, policy: Policy) -> Split:
    active, pending = m.active, m.pending
    if active.capacity < active.weight:
        return _split(m, active=active.weight, note="active gets the capacity that its traffic needs")
    if pending.is_sick and pending.weight > 0 and active.is_alive:
        return _split(m, active=WHOLE, note="active takes over from a sick pending cluster")
    if (obstacle := _obstacle(m, policy)) is not None:
        return _hold(m, obstacle)
    if pending.weight > pending.capacity:
        return _split(m, pending=pending.weight, note="pending gets the capacity that its traffic needs")
    if active.capacity + pending.capacity > WHOLE:
        lower = max(active.weight, active.capacity - policy.surge)
        return _split(m, active=lower, note="active makes room for pending")
    higher = min(WHOLE, WHOLE + policy.surge - active.capacity)
    return _split(m, pending=higher, note="pending may surge")


def _obstacle(m: Migration, policy: Policy) -> str | None:
    """Return why an upgrade moves no capacity now."""
    active, pending = m.active, m.pending
    shrinks_active = active.capacity + pending.capacity > WHOLE
    reasons = (
        ((active.capacity, pending.capacity) == (0, WHOLE), "all capacity has moved"),
        (m.gateway_problem is not None, m.gateway_problem),
        (m.route_problem is not None, m.route_problem),
        (pending.weight < pending.capacity, "traffic is still moving"),
        (policy.surge == 0, "maxSurgePercent is 0, so no capacity moves"),
        (shrinks_active and pending.proof < pending.weight, f"pending does not carry its traffic: {pending.doubt}"),
        (not shrinks_active and pending.reported != pending.capacity, f"pending is not there yet: {pending.doubt}"),
    )
    return next((why for holds, why in reasons if holds), None)


def _back(m: Migration, policy: Policy, *, now: datetime) -> Split:
    active, pending = m.active, m.pending
    if (active.capacity, pending.capacity) == (WHOLE, 0):
        return _hold(m, "all capacity is back")
    if is_hurried(m, policy):
        return _back_at_once(m)
    room = min(WHOLE, WHOLE + policy.surge - pending.capacity)
    if active.capacity < room:
        return _split(m, active=room, note="active grows back")
    has_followed = active.weight >= active.capacity or 0 < active.proof <= active.weight
    if not has_followed:
        return _hold(m, "traffic is still moving back")
    if m.route_problem is not None and not _is_late(m, now=now):
        return _hold(m, m.route_problem, look_again_at=m.changed_at + LATE if m.changed_at is not None else None)
    lower = max(pending.weight, pending.capacity - policy.surge)
    higher = max(active.capacity, min(WHOLE, WHOLE + policy.surge - lower))
    return _split(m, active=higher, pending=lower, note="pending makes room for active")


def _back_at_once(m: Migration) -> Split:
    if m.active.capacity < WHOLE:
        return _split(m, active=WHOLE, note="active grows back at once")
    if m.active.weight < WHOLE:
        return _hold(m, "traffic is still moving back")
    return _split(m, pending=0, note="pending is not needed any more")


def _is_late(m: Migration, *, now: datetime) -> bool:
    return m.gateway_problem is not None or m.changed_at is None or now >= m.changed_at + LATE


def _split(m: Migration, *, note: str, active: int | None = None, pending: int | None = None) -> Split:
    new_active = m.active.capacity if active is None else active
    new_pending = m.pending.capacity if pending is None else pending
    return Split(active=new_active, pending=new_pending, note=note)


def _hold(m: Migration, note: str, *, look_again_at: datetime | None = None) -> Split:
    return Split(active=m.active.capacity, pending=m.pending.capacity, note=note, look_again_at=look_again_at)
