"""Decisions about the `target_capacity` of both clusters (spec rayservice §8.3, §8.10 G3, G5, G6).

The sum of both capacities never exceeds 100 + `maxSurgePercent`, and no cluster's capacity is below
its traffic weight. In an upgrade, the new cluster first gets all capacity that the surge allows,
then traffic moves, then the old cluster shrinks to make room. In a rollback, the old cluster grows
first.

No cluster shrinks below the traffic that a Gateway may still send to it. While the current route is
not accepted, that is the largest weight since the last accepted route (ADR 41). If one cluster
cannot carry its traffic, the other cluster grows at once.

On a full Kubernetes cluster nothing can surge. With `raybus.io/max-unavailable-percent` the cluster
that gives up traffic may shrink first. Its remaining capacity plus the proven capacity of the other
cluster must not fall below the floor, which is 100 minus that percentage. Each cluster must keep
the part of the floor that corresponds to its traffic.

All functions take `m`, the state of the upgrade. Capacities are percentages.
"""

from datetime import datetime, timedelta
from typing import Final

from common.upgrade.controls import Policy
from common.upgrade.events import Direction
from common.upgrade.traffic_record import WHOLE
from traffic_manager.migration.state import (
    STALL_TIMEOUT,
    ClusterState,
    Migration,
    Split,
    is_hurried,
    is_stalled,
)

CHANGE_INTERVAL: Final = timedelta(seconds=1)
"""Time between two changes of capacity. It is shorter if the steps follow each other quickly.

A client that polls the status once a second then sees each change.
"""
FINAL_CHANGE_DELAY: Final = timedelta(seconds=0.4)
"""Time that the last change of an upgrade takes to reach the Gateway, Serve and the status."""


def decide(m: Migration, policy: Policy, *, now: datetime) -> Split:
    """Return the capacities that both clusters should have from now on."""
    if (split := guard(m, policy)) is not None:
        return split
    wanted = (
        _decide_forward(m, policy, now=now)
        if m.direction is Direction.FORWARD
        else _decide_back(m, policy, now=now)
    )
    wanted = _raise_to_traffic(m, policy, wanted, now=now)
    is_change = (wanted.active, wanted.pending) != (m.active.capacity, m.pending.capacity)
    if not is_change or is_hurried(m, policy) or m.changed_at is None:
        return wanted
    due = m.changed_at + _get_change_interval(m, policy)
    return wanted if now >= due else _build_split(m, f"{wanted.note}, a moment later", due)


def guard(m: Migration, policy: Policy) -> Split | None:
    """Return the capacities that the current traffic needs; None if the present capacities suffice.

    They take effect at once, without a pause or an interval.
    """
    sides = (("active", m.active, m.pending), ("pending", m.pending, m.active))
    for name, side, other in sides:
        # the weight, or the larger weight that a lagging Gateway may still apply, within the surge
        is_behind = m.lag is not None and m.gateway_problem is None and side.sustainable > 0
        sent = min(side.sent or 0, WHOLE + policy.surge - other.capacity) if is_behind else 0
        share = max(side.weight, sent)
        if side.reported is not None and side.capacity < policy.needed(share):
            return _build_split(
                m, f"{name} gets the capacity that its traffic needs", **{name: share}
            )
    for name, taking, losing in reversed(sides):
        amount = _get_takeover_capacity(losing, taking, policy)
        if amount > taking.capacity:
            return _build_split(
                m, f"{name} takes over: {losing.unhealthy_reason}", **{name: amount}
            )
    return None


def _get_takeover_capacity(losing: ClusterState, taking: ClusterState, policy: Policy) -> int:
    """Return the capacity that `taking` needs for the traffic that `losing` cannot carry.

    Return 0 if there is no such traffic, or if `taking` cannot carry any. If `losing` is dead, it
    uses no nodes, so the result is 100. A cluster that is partly unhealthy, or that failed a gate,
    still uses its nodes, so the sum of both capacities stays within 100 + `maxSurgePercent`.
    """
    if losing.excess == 0 or taking.reported is None or taking.sustainable == 0:
        return 0
    if losing.sustainable == 0 and not losing.has_failed_gate:
        return WHOLE
    return min(WHOLE, taking.weight + losing.excess, WHOLE + policy.surge - losing.capacity)


def _raise_to_traffic(m: Migration, policy: Policy, wanted: Split, *, now: datetime) -> Split:
    """Raise the capacities `wanted` to the traffic that each cluster may still get or take over.

    A Gateway that has not applied the newest route still sends the old weights.
    """
    active = max(
        _get_min_capacity(m, m.active, policy, now=now),
        _get_takeover_capacity(m.pending, m.active, policy),
    )
    pending = max(
        _get_min_capacity(m, m.pending, policy, now=now),
        _get_takeover_capacity(m.active, m.pending, policy),
    )
    kept_active = max(wanted.active, min(active, m.active.capacity))
    kept_pending = max(wanted.pending, min(pending, m.pending.capacity))
    if (kept_active, kept_pending) == (wanted.active, wanted.pending):
        return wanted
    reason = (
        m.lag or m.active.unhealthy_reason or m.pending.unhealthy_reason or "weights come first"
    )
    most = WHOLE + policy.surge
    return Split(
        active=min(kept_active, max(m.active.capacity, most - kept_pending)),
        pending=min(kept_pending, max(m.pending.capacity, most - kept_active)),
        note=f"{wanted.note}, not below what it may get: {reason}",
        requeue_at=None
        if m.gateway_problem is None or m.changed_at is None
        else m.changed_at + STALL_TIMEOUT,
    )


def _get_min_capacity(m: Migration, side: ClusterState, policy: Policy, *, now: datetime) -> int:
    """Return the capacity below which the cluster `side` must not shrink.

    The capacity covers the traffic of a Gateway that has not applied the newest route. A Gateway
    that is not ready is ignored once nothing has changed for the time `STALL_TIMEOUT`.
    """
    takes_nothing = m.gateway_problem is not None and is_stalled(m, now=now)
    is_behind = m.lag is not None and not takes_nothing and side.sustainable > 0
    return policy.needed(max(side.weight, side.sent or 0) if is_behind else side.weight)


def _get_change_interval(m: Migration, policy: Policy) -> timedelta:
    """Return how long the last change must stay visible before the next change of capacity.

    Between two moves of traffic the pause is at most an eighth of the interval, so that the next
    move is on time. After the last move, the pause is short enough for the upgrade to take at most
    1.1 times the duration of its steps.
    """
    intervals = (WHOLE - 1) // policy.step if policy.step else 0
    if intervals == 0:
        return CHANGE_INTERVAL
    if WHOLE not in {m.active.weight, m.pending.weight}:
        return min(CHANGE_INTERVAL, policy.interval / 8)
    return min(
        CHANGE_INTERVAL, max(timedelta(0), policy.interval * intervals / 10 - FINAL_CHANGE_DELAY)
    )


def _decide_forward(m: Migration, policy: Policy, *, now: datetime) -> Split:
    active, pending = m.active, m.pending
    lacks_nodes = _lacks_nodes(pending, policy) and is_stalled(m, now=now)
    max_capacity = min(WHOLE, WHOLE + policy.surge - active.capacity)
    shrinks = (
        lacks_nodes
        or active.capacity + pending.capacity > WHOLE
        or max_capacity <= pending.capacity
    )
    baked_at = (pending.moved_at or now) + policy.bake if pending.weight == WHOLE else None
    is_baking = (
        policy.bake > timedelta(0)
        and pending.capacity == WHOLE
        and (baked_at is None or now < baked_at)
    )
    until = (
        "the traffic has moved"
        if baked_at is None
        else f"{baked_at:%H:%M:%S} (bake of its UpgradePolicy)"
    )
    is_weak = (
        pending.proven < policy.needed(pending.weight)
        if shrinks
        else pending.reported != pending.capacity
    )
    lack = "does not carry its traffic" if shrinks else "is not there yet"
    reasons = (
        ((active.capacity, pending.capacity) == (0, WHOLE), "all capacity has moved"),
        (m.pause is not None, m.pause),
        (is_baking, f"the active cluster keeps its capacity until {until}"),
        (m.gateway_problem is not None, m.gateway_problem),
        (m.route_problem is not None, m.route_problem),
        (_is_moving(pending, policy) and not lacks_nodes, "traffic is still moving"),
        (
            policy.surge == 0 and policy.unavailable == 0,
            "maxSurgePercent is 0, so no capacity moves",
        ),
        (is_weak, f"pending {lack}: {pending.not_ready_reason}"),
    )
    if (reason := next((why for holds, why in reasons if holds), None)) is not None:
        return _build_split(m, reason, baked_at if is_baking else None)
    if shrinks:
        return _build_split(
            m, "active makes room for pending", active=_get_lowest_capacity(active, pending, policy)
        )
    return _build_split(m, "pending may surge", pending=max_capacity)


def _decide_back(m: Migration, policy: Policy, *, now: datetime) -> Split:
    active, pending = m.active, m.pending
    if (active.capacity, pending.capacity) == (WHOLE, 0):
        return _build_split(m, "all capacity is back")
    if is_hurried(m, policy):
        return _decide_back_at_once(m)
    max_capacity = min(WHOLE, WHOLE + policy.surge - pending.capacity)
    if active.capacity < max_capacity:
        return _build_split(m, "active grows back", active=max_capacity)
    has_followed = (
        not _is_moving(active, policy) or 0 < active.proven <= active.weight < active.capacity
    )
    if not has_followed and not (_lacks_nodes(active, policy) and is_stalled(m, now=now)):
        return _build_split(m, "traffic is still moving back")
    lower = _get_lowest_capacity(pending, active, policy)
    higher = max(active.capacity, min(WHOLE, WHOLE + policy.surge - lower))
    return _build_split(m, "pending makes room for active", active=higher, pending=lower)


def _decide_back_at_once(m: Migration) -> Split:
    if m.active.capacity < WHOLE:
        return _build_split(m, "active grows back at once", active=WHOLE)
    if m.active.weight < WHOLE:
        return _build_split(m, "traffic is still moving back")
    return _build_split(m, "pending is not needed any more", pending=0)


def _lacks_nodes(growing: ClusterState, policy: Policy) -> bool:
    """Return whether the growing cluster can start replicas only after the other cluster shrinks.

    Only `max-unavailable-percent` allows the other cluster to shrink first.
    """
    return (
        policy.unavailable > 0
        and growing.weight < growing.capacity
        and growing.proven <= growing.weight
    )


def _is_moving(growing: ClusterState, policy: Policy) -> bool:
    """Return whether the present capacity of a cluster allows it more traffic.

    If nothing can surge, the cluster may get more traffic than its proven capacity, because the
    policy allows a part of the capacity to be missing during an upgrade.
    """
    lacking = policy.carried(min(growing.capacity, growing.proven)) if policy.surge == 0 else 0
    return growing.weight < max(growing.capacity, lacking)


def _get_lowest_capacity(shrinking: ClusterState, growing: ClusterState, policy: Policy) -> int:
    """Return the smallest capacity that the shrinking cluster may have now."""
    if policy.unavailable == 0:
        return max(shrinking.weight, shrinking.capacity - policy.surge)
    if (
        growing.proven >= policy.floor
    ):  # the growing cluster can carry all traffic, so the traffic moves before the capacity
        return shrinking.capacity if shrinking.weight else 0
    return min(
        shrinking.capacity, max(policy.needed(shrinking.weight), policy.floor - growing.proven)
    )


def _build_split(
    m: Migration, note: str, requeue_at: datetime | None = None, /, **changed: int
) -> Split:
    capacities = {"active": m.active.capacity, "pending": m.pending.capacity, **changed}
    return Split(note=note, requeue_at=requeue_at, **capacities)
