"""`target_capacity` of either cluster (spec rayservice §8.3, §8.10 G3, G5, G6).

Both together never have more than 100 + `maxSurgePercent`, and neither ever less than its weight. Forward, the new cluster grows
while both fit, then traffic moves, then the old one shrinks to make room. Back, the old cluster grows first.

No cluster shrinks below what a Gateway may still send it: while the route is not accepted as it is now, that is the most of all
weights since the last ones that were (ADR 11). When one cluster is observed not to carry its traffic, the other grows at once.

On a full cluster nothing can surge. With `raybus.io/max-unavailable-percent` the scale-down side may shrink first, as long as its
remaining capacity and the proven capacity of the scale-up side are not less than the floor together, and each has its part of it.
"""

from datetime import datetime, timedelta
from typing import Final

from common.upgrade.controls import Policy
from common.upgrade.traffic_record import WHOLE
from traffic_manager.migration.state import LATE, Direction, Migration, Side, Split, is_hurried, is_late

PAUSE: Final = timedelta(seconds=1)
"""Between two visible changes, so that a client that polls once a second sees each of them; less where steps follow quickly."""
LAST: Final = timedelta(seconds=0.4)
"""What the end takes by itself: the Gateway follows the last weights, Serve gets its capacity, the status shows it."""


def decide(m: Migration, policy: Policy, *, now: datetime) -> Split:
    """Return the capacities that should hold from now on."""
    if (split := guard(m, policy)) is not None:
        return split
    wanted = _forward(m, policy, now=now) if m.direction is Direction.FORWARD else _back(m, policy, now=now)
    wanted = _kept(m, policy, wanted, now=now)
    is_change = (wanted.active, wanted.pending) != (m.active.capacity, m.pending.capacity)
    if not is_change or is_hurried(m, policy) or m.changed_at is None:
        return wanted
    if now < (due := m.changed_at + _pause(m, policy)):
        return _hold(m, f"{wanted.note}, a moment later", requeue_at=due)
    return wanted


def guard(m: Migration, policy: Policy) -> Split | None:
    """Return the capacities that the traffic needs as it is; a guard waits for nothing. None when all is as it should be."""
    for name, side, other in (("active", m.active, m.pending), ("pending", m.pending, m.active)):
        share = _share(m, side, other, policy)
        if side.reported is not None and side.capacity < policy.needed(share):
            return _raised(m, name, share, f"{name} gets the capacity that its traffic needs")
    for name, losing, taking in (("pending", m.active, m.pending), ("active", m.pending, m.active)):
        amount = _takes_over(losing, taking, policy)
        if amount > taking.capacity:
            return _raised(m, name, amount, f"{name} takes over: {losing.unhealthy_reason}")
    return None


def _share(m: Migration, side: Side, other: Side, policy: Policy) -> int:
    """Return what a side gets: its weight, or what a Gateway that lags may still send it, as far as the surge allows."""
    is_behind = m.lag is not None and m.gateway_problem is None and side.sustainable > 0
    sent = min(side.sent or 0, WHOLE + policy.surge - other.capacity) if is_behind else 0
    return max(side.weight, sent)


def _takes_over(losing: Side, taking: Side, policy: Policy) -> int:
    """Return the capacity with which a side can take over what the other one cannot carry.

    A dead cluster's capacity is none, so the surge does not bind. That of a partly unhealthy one counts.
    """
    if losing.excess == 0 or taking.reported is None or taking.sustainable == 0:
        return 0
    if losing.sustainable == 0:
        return WHOLE
    return min(WHOLE, taking.weight + losing.excess, WHOLE + policy.surge - losing.capacity)


def _kept(m: Migration, policy: Policy, wanted: Split, *, now: datetime) -> Split:
    """Return capacities of which none shrinks below what a Gateway may still send, or what a guard has it take over."""
    active = max(_least(m, m.active, policy, now=now), _takes_over(m.pending, m.active, policy))
    pending = max(_least(m, m.pending, policy, now=now), _takes_over(m.active, m.pending, policy))
    is_cut = wanted.active < min(active, m.active.capacity) or wanted.pending < min(pending, m.pending.capacity)
    if not is_cut:
        return wanted
    reason = m.lag or m.active.unhealthy_reason or m.pending.unhealthy_reason or "weights come first"
    note = f"{wanted.note}, not below what it may get: {reason}"
    is_limited = m.gateway_problem is not None and m.changed_at is not None
    kept_active = max(wanted.active, min(active, m.active.capacity))
    kept_pending = max(wanted.pending, min(pending, m.pending.capacity))
    most = WHOLE + policy.surge
    return Split(
        active=min(kept_active, max(m.active.capacity, most - kept_pending)),
        pending=min(kept_pending, max(m.pending.capacity, most - kept_active)),
        note=note,
        requeue_at=m.changed_at + LATE if is_limited and m.changed_at is not None else None,
    )


def _least(m: Migration, side: Side, policy: Policy, *, now: datetime) -> int:
    """Return the least capacity that a side may shrink to; a Gateway that reports itself not ready is waited for a while."""
    takes_nothing = m.gateway_problem is not None and is_late(m, now=now)
    is_behind = m.lag is not None and not takes_nothing and side.sustainable > 0
    return policy.needed(max(side.weight, side.sent or 0) if is_behind else side.weight)


def _pause(m: Migration, policy: Policy) -> timedelta:
    """Return how long the last change stays visible.

    Between two moves of traffic that is an eighth of the interval, so that the next move is on time. At the end it is no more than
    keeps an upgrade within 1.1 times what its steps demand.
    """
    intervals = (WHOLE - 1) // policy.step if policy.step else 0
    if intervals == 0:
        return PAUSE
    if WHOLE not in {m.active.weight, m.pending.weight}:
        return min(PAUSE, policy.interval / 8)
    return min(PAUSE, max(timedelta(0), policy.interval * intervals / 10 - LAST))


def _forward(m: Migration, policy: Policy, *, now: datetime) -> Split:
    active, pending = m.active, m.pending
    lacks_room = _lacks_room(pending, policy) and is_late(m, now=now)
    room = min(WHOLE, WHOLE + policy.surge - active.capacity)
    shrinks = lacks_room or active.capacity + pending.capacity > WHOLE or room <= pending.capacity
    if (reason := _blocking_reason(m, policy, shrinks=shrinks, lacks_room=lacks_room)) is not None:
        return _hold(m, reason)
    if shrinks:
        lower = _lowest(active, pending, policy)
        return _split(m, active=lower, note="active makes room for pending")
    return _split(m, pending=room, note="pending may surge")


def _lacks_room(growing: Side, policy: Policy) -> bool:
    """Return whether a cluster gets no room for what it may have, where the other one may make some."""
    return policy.unavailable > 0 and growing.weight < growing.capacity and growing.proven <= growing.weight


def _is_moving(growing: Side, policy: Policy) -> bool:
    """Return whether a cluster may get more traffic on the capacity that it has; without a surge the allowance is part of that."""
    lacking = policy.carried(min(growing.capacity, growing.proven)) if policy.surge == 0 else 0
    return growing.weight < max(growing.capacity, lacking)


def _lowest(shrinking: Side, growing: Side, policy: Policy) -> int:
    """Return down to what the cluster may shrink now that traffic leaves."""
    if policy.unavailable == 0:
        return max(shrinking.weight, shrinking.capacity - policy.surge)
    if growing.proven >= policy.floor:  # the other one can carry the rest of the traffic, which goes first
        return shrinking.capacity if shrinking.weight else 0
    lower = max(policy.needed(shrinking.weight), policy.floor - growing.proven)
    return min(shrinking.capacity, lower)


def _blocking_reason(m: Migration, policy: Policy, *, shrinks: bool, lacks_room: bool) -> str | None:
    """Return why an upgrade moves no capacity now."""
    active, pending = m.active, m.pending
    carried = policy.needed(pending.weight)
    reasons = (
        ((active.capacity, pending.capacity) == (0, WHOLE), "all capacity has moved"),
        (m.pause is not None, m.pause),
        (m.gateway_problem is not None, m.gateway_problem),
        (m.route_problem is not None, m.route_problem),
        (_is_moving(pending, policy) and not lacks_room, "traffic is still moving"),
        (policy.surge == 0 and policy.unavailable == 0, "maxSurgePercent is 0, so no capacity moves"),
        (shrinks and pending.proven < carried, f"pending does not carry its traffic: {pending.not_ready_reason}"),
        (not shrinks and pending.reported != pending.capacity, f"pending is not there yet: {pending.not_ready_reason}"),
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
    has_followed = not _is_moving(active, policy) or 0 < active.proven <= active.weight < active.capacity
    if not has_followed and not (_lacks_room(active, policy) and is_late(m, now=now)):
        return _hold(m, "traffic is still moving back")
    lower = _lowest(pending, active, policy)
    higher = max(active.capacity, min(WHOLE, WHOLE + policy.surge - lower))
    return _split(m, active=higher, pending=lower, note="pending makes room for active")


def _back_at_once(m: Migration) -> Split:
    if m.active.capacity < WHOLE:
        return _split(m, active=WHOLE, note="active grows back at once")
    if m.active.weight < WHOLE:
        return _hold(m, "traffic is still moving back")
    return _split(m, pending=0, note="pending is not needed any more")


def _raised(m: Migration, name: str, amount: int, note: str) -> Split:
    return _split(m, active=amount, note=note) if name == "active" else _split(m, pending=amount, note=note)


def _split(m: Migration, *, note: str, active: int | None = None, pending: int | None = None) -> Split:
    new_active = m.active.capacity if active is None else active
    new_pending = m.pending.capacity if pending is None else pending
    return Split(active=new_active, pending=new_pending, note=note)


def _hold(m: Migration, note: str, *, requeue_at: datetime | None = None) -> Split:
    return Split(active=m.active.capacity, pending=m.pending.capacity, note=note, requeue_at=requeue_at)
