"""Decisions about the traffic weights of both clusters (spec rayservice §8.4, §8.10 G1-G4, G6, G7).

Every `intervalSeconds` the growing cluster (the pending cluster in an upgrade, the active cluster
in a rollback) gets `stepSizePercent` more traffic, up to its capacity and its proven capacity. In
an upgrade the Gateway must have applied the last weights before the next ones are written. A
rollback waits for no Gateway.

Traffic that a cluster cannot carry according to its observed health moves to the other cluster at
once, up to the other cluster's ready capacity (ADR 41). No interval, pause, Gateway or direction
delays this move. A cluster that lost traffic in this way may grow again one interval after it is
healthy again.

If the active cluster is unhealthy, a version that has not passed its gates receives only the
traffic that no application of the active cluster can carry (ADR 41).

With `raybus.io/max-unavailable-percent`, if nothing can surge, a cluster may get more traffic than
its proven capacity, within that percentage. Both clusters then lack the same proportion of the
capacity that they need.

All functions take `m`, the state of the upgrade. Weights are percentages.
"""

from datetime import datetime
from itertools import permutations

import msgspec

from common import labels
from common.upgrade.controls import Policy
from common.upgrade.events import Direction
from common.upgrade.traffic_record import WHOLE
from traffic_manager.migration.state import (
    ClusterState,
    Migration,
    Split,
    Standing,
    is_hurried,
    is_stalled,
)


def decide(m: Migration, policy: Policy, *, now: datetime) -> Split:
    """Return the weights that both clusters should have from now on."""
    if (split := shed(m)) is not None:
        return split
    is_forward = m.direction is Direction.FORWARD
    name, growing = ("pending", m.pending) if is_forward else ("active", m.active)
    problem = (m.pause or m.gateway_problem or m.route_problem) if is_forward else None
    limit, weight, due = _get_max_weight(m, growing, policy, now=now), growing.weight, None
    if weight >= max(growing.capacity, limit):
        note = f"the {name} cluster carries all that its capacity allows"
    elif problem is not None:
        note = problem
    elif limit <= weight:
        note = (
            f"the {name} cluster cannot carry more yet: "
            f"{growing.not_ready_reason or 'nothing proves that it can'}"
        )
    elif is_hurried(m, policy):
        weight, note = limit, "the active cluster takes at once all that it can carry"
    elif policy.step == 0:
        note = "stepSizePercent is 0, so no traffic moves"
    elif (due := _get_next_move_time(growing, policy, now=now)) is not None:
        note = f"the next step is due at {due:%H:%M:%S}"
    else:
        weight = min(weight + policy.step, limit)
        note = f"{weight - growing.weight} percent of the traffic move; the limit is {limit}"
    if weight == growing.weight:
        return Split(active=m.active.weight, pending=m.pending.weight, note=note, requeue_at=due)
    active = 100 - weight if is_forward else weight
    return Split(active=active, pending=100 - active, note=note)


def shed(m: Migration) -> Split | None:
    """Return the weights after unhealthy clusters gave up traffic; None if no traffic can move.

    A cluster gives up the traffic that it cannot carry and the other cluster can take over.
    """
    for name, losing, taking in (("active", m.active, m.pending), ("pending", m.pending, m.active)):
        moved = min(losing.excess, _get_takeover_traffic(losing, taking))
        if moved > 0:
            kept = losing.weight - moved
            note = (
                f"the {name} cluster keeps {kept} percent of the traffic: {losing.unhealthy_reason}"
            )
            if name == "active" and m.standing is not Standing.PROVEN:
                note = f"{note}; the pending cluster gets the rest, although {m.distrust}"
            active = kept if name == "active" else 100 - kept
            return Split(active=active, pending=100 - active, note=note)
    return None


def unservable_traffic(m: Migration) -> str | None:
    """Return a message about traffic on a cluster that cannot carry it; None if there is none."""
    for (name, losing), (other, taking) in permutations(
        (("active", m.active), ("pending", m.pending))
    ):
        if losing.withheld and losing.weight > 0:
            return (
                f"{losing.weight} percent of the traffic stay at the {name} cluster, which cannot "
                "carry all of them "
                f"({losing.unhealthy_reason}), since {losing.withheld}; "
                f'{labels.PROMOTE}: "true" moves them all the same'
            )
        if losing.excess > 0 and _get_takeover_traffic(losing, taking) <= 0:
            why = (
                taking.unhealthy_reason
                or taking.not_ready_reason
                or f"it runs with capacity {taking.capacity}"
            )
            return (
                f"{losing.excess} percent of the traffic stay at the {name} cluster, which cannot "
                "carry them "
                f"({losing.unhealthy_reason}), since the {other} cluster cannot take them over "
                f"({why})"
            )
    return None


def withhold(active: ClusterState, standing: Standing, distrust: str) -> ClusterState:
    """Return the active cluster's state, adjusted if the pending cluster must not get its traffic.

    A pending cluster that failed a gate gets nothing while the active cluster serves anything. A
    pending cluster that has not passed its gates yet gets only the traffic that no application of
    the active cluster can carry, because it could fail the requests of all other applications. If
    the active cluster serves nothing, it keeps nothing. `distrust` is the reason why the pending
    cluster is not proven.
    """
    if standing is Standing.PROVEN or active.surviving == 0:
        return active
    kept = WHOLE if standing is Standing.FAILED else active.surviving
    if kept <= active.sustainable or active.weight <= active.sustainable:
        return active
    return msgspec.structs.replace(active, sustainable=kept, withheld=distrust)


def _get_takeover_traffic(losing: ClusterState, taking: ClusterState) -> int:
    """Return how much more traffic the cluster `taking` can take over from the cluster `losing`."""
    return (taking.rescue if losing.surviving == 0 else taking.ready) - taking.weight


def _get_next_move_time(growing: ClusterState, policy: Policy, *, now: datetime) -> datetime | None:
    """Return when the growing cluster may get more traffic; None if it may get more now.

    A cluster that lost traffic because of its health may grow one interval after its recovery.
    """
    since = growing.moved_at
    if growing.was_shed:
        since = max(
            moment for moment in (since, growing.healthy_since or now) if moment is not None
        )
    due = None if since is None else since + policy.interval
    return due if due is not None and now < due else None


def _get_max_weight(m: Migration, growing: ClusterState, policy: Policy, *, now: datetime) -> int:
    """Return the largest weight that the growing cluster may get now.

    If nothing can surge, the user's `max-unavailable-percent` raises the limit above the proven
    capacity.
    """
    limit = min(growing.capacity, growing.proven, growing.sustainable)
    is_stuck = growing.weight >= limit and is_stalled(m, now=now)
    may_lack = policy.unavailable > 0 and (policy.surge == 0 or is_stuck)
    return policy.carried(limit) if may_lack else limit
