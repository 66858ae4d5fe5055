"""The traffic weights: how much of the traffic each cluster gets (spec rayservice §8.4, §8.10 G1-G4, G6, G7).

The growing side gets `stepSizePercent` more each `intervalSeconds`, never more than its capacity, never more than it was seen to
be able to carry. Forward, the Gateway must follow the last weights before the next ones; back, nothing waits for a Gateway.

Where the user allows capacity to be missing (`raybus.io/max-unavailable-percent`), the last room for the growing side is what the
other one still holds. So a side that was seen to carry the floor gets the rest of the traffic on that, once nothing else helps.
"""

from datetime import datetime

from traffic_manager.migration.state import Direction, Migration, Policy, Side, Split, is_hurried, is_late


def decide(m: Migration, policy: Policy, *, now: datetime) -> Split:
    """Return the weights that should hold from now on."""
    if m.direction is Direction.FORWARD and m.pending.is_sick and m.pending.weight > 0:
        return _given_back(m)
    growing = m.pending if m.direction is Direction.FORWARD else m.active
    limit = _limit(m, growing, policy, now=now)
    if (obstacle := _obstacle(m, growing, limit)) is not None:
        return _hold(m, obstacle)
    if is_hurried(m, policy):
        return _grown(m, limit, "the active cluster takes at once all that it can carry")
    if policy.step == 0:
        return _hold(m, "stepSizePercent is 0, so no traffic moves")
    if growing.moved_at is not None and now < (due := growing.moved_at + policy.interval):
        return _hold(m, f"the next step is due at {due:%H:%M:%S}", look_again_at=due)
    weight = min(growing.weight + policy.step, limit)
    return _grown(m, weight, f"{weight - growing.weight} percent of the traffic move; {limit} can be carried")


def _given_back(m: Migration) -> Split:
    """Let a sick pending cluster give back what the active one can carry; no interval, no Gateway is waited for (G7)."""
    weight = max(m.active.weight, min(m.active.capacity, m.active.proof))
    note = "the pending cluster is sick: its share goes back as far as the active cluster can carry it"
    return Split(active=weight, pending=100 - weight, note=note)


def _limit(m: Migration, growing: Side, policy: Policy, *, now: datetime) -> int:
    """Return the most that the growing side may get."""
    limit = min(growing.capacity, growing.proof)
    carries_floor = policy.unavailable > 0 and growing.proof >= policy.floor and growing.weight >= limit
    return 100 if carries_floor and (policy.surge == 0 or is_late(m, now=now)) else limit


def _obstacle(m: Migration, growing: Side, limit: int) -> str | None:
    is_forward = m.direction is Direction.FORWARD
    name = "pending" if is_forward else "active"
    if growing.weight >= max(growing.capacity, limit):
        return f"the {name} cluster carries all that its capacity allows"
    if is_forward and (problem := m.pause or m.gateway_problem or m.route_problem) is not None:
        return problem
    if limit <= growing.weight:
        return f"the {name} cluster cannot carry more yet: {growing.doubt or 'nothing proves that it can'}"
    return None


def _grown(m: Migration, weight: int, note: str) -> Split:
    if m.direction is Direction.FORWARD:
        return Split(active=100 - weight, pending=weight, note=note)
    return Split(active=weight, pending=100 - weight, note=note)


def _hold(m: Migration, note: str, *, look_again_at: datetime | None = None) -> Split:
    return Split(active=m.active.weight, pending=m.pending.weight, note=note, look_again_at=look_again_at)
