"""Laws of every change of an upgrade: pure rules over the state of the harness before and after the
change.

Weights and capacities are percent. Each rule states its legal exceptions; every other violation is
a defect (spec rayservice §8.10, §21).
"""

from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from support.laws import Law, by_first_word, find_broken

WHOLE: Final = 100
GRACE: Final = 3.0
"""Seconds for which a cluster that a user deleted may keep its share, because the services must
receive the deletion first."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The actual state of the harness between two changes."""

    at: float
    active: str = ""
    pending: str = ""
    clusters: frozenset[str] = frozenset()
    """RayClusters that exist and are not Terminating."""
    weights: dict[str, int] | None = None
    """The weights of the route; None without a route."""
    effective: dict[str, int] = {}
    """Weights that the Gateway applies: those of the last generation of the route that it
    accepted."""
    capacities: dict[str, int] = {}
    """Capacity that each cluster's Serve accepted last."""
    configs: dict[str, str] = {}
    """Serve config without the capacity that each cluster's Serve accepted last."""
    recorded: dict[str, int] = {}
    """Capacities in the traffic record of the route."""
    seen_ready: dict[str, int] = {}
    """Highest ready capacity that each cluster's head reported recently."""
    carries: dict[str, int] = {}
    """Share of all traffic in percent that the replicas of a cluster can carry, where it is
    known."""
    sick: frozenset[str] = frozenset()
    """Clusters that cannot serve now, or could not a moment ago."""
    surge: int = WHOLE
    is_back: bool = False
    may_hurry: bool = False
    """Whether the options leave no room for steps, so that a rollback happens at once."""
    follows: bool = True
    """Whether the Gateway applies changes of the route."""
    policy: str = ""
    """The record of the policy that the upgrade follows."""
    former: tuple[tuple[int, ...], ...] = ()
    """Steps of the policies that the upgrade followed before; a pass that is under way decides by
    one of them."""
    has_failed: bool = False
    """Whether a gate failed."""
    is_aborted: bool = False
    steps: tuple[int, ...] = ()
    """The weights of the UpgradePolicy that the upgrade follows, while it holds."""
    selected: str = ""
    """Cluster that the Serve Service selects."""
    is_going: bool = False
    """Whether the RayService is deleted or suspended."""
    gone_for: dict[str, float] = {}
    """By cluster: seconds since it ceased to exist, counting only time in which both services ran
    and received changes."""


def steps(before: Moment, after: Moment) -> Iterator[str]:
    """Check that the pending cluster's weight grows at most to the next step of its policy.

    Exception: the active cluster is sick or does not exist, so that the traffic goes to the cluster
    that can serve it.
    """
    name = after.pending
    if (
        not after.steps
        or not name
        or name != before.pending
        or before.weights is None
        or after.weights is None
    ):
        return
    old, new = before.weights.get(name, 0), after.weights.get(name, 0)
    limit = max(
        min((each for each in steps if each > old), default=WHOLE)
        for steps in (after.steps, *after.former)
    )
    if new > limit and after.active in after.clusters and not {after.active, name} & after.sick:
        yield f"{name} gets {new} percent after {old}, and the next step of its policy is {limit}"


def edited(before: Moment, after: Moment) -> Iterator[str]:
    """Check that an upgrade keeps the policy with which it began, unless that policy applies edits
    at once.
    """
    is_same = (
        bool(before.pending)
        and before.pending == after.pending
        and before.pending in after.clusters
    )
    if (
        is_same
        and before.policy
        and after.policy != before.policy
        and '"applyEdits":"AtOnce"' not in before.policy
    ):
        yield f"{after.pending} follows another policy than its upgrade began with"


def kept(before: Moment, after: Moment) -> Iterator[str]:
    """Check that traffic leaves the pending cluster of an upgrade with a policy only for its
    health, for a failed gate, or in a rollback, but never for an edit.

    Exception: the Gateway's user or another service writes the route.
    """
    name = after.pending
    if (
        not after.policy
        or not name
        or name != before.pending
        or before.weights is None
        or after.weights is None
    ):
        return
    had = before.weights.get(name, 0)
    has_lost_replicas = after.carries.get(name, had) < had
    if (
        after.weights.get(name, 0) < had
        and not has_lost_replicas
        and not (after.is_back or after.has_failed or after.is_aborted)
        and not {after.active, name} & after.sick
    ):
        yield f"{name} loses traffic that nothing takes from it: {had} to {after.weights.get(name, 0)}"


def sums(after: Moment) -> Iterator[str]:
    if after.weights is not None and after.weights and sum(after.weights.values()) != WHOLE:
        yield f"the weights {after.weights} do not sum to 100"


def _growth(before: Moment, after: Moment) -> Iterator[str]:
    """Check that a weight grows at most to the capacity that the cluster was seen ready for.

    Exception: no other cluster with a capacity is left, so all traffic goes to the last cluster
    with one.
    """
    if after.weights is None or before.weights is None:
        return
    for name, weight in after.weights.items():
        grows = weight > before.weights.get(name, 0)
        others = [
            each
            for each in (after.active, after.pending)
            if each != name and after.capacities.get(each, 0) > 0
        ]
        if grows and others and weight > after.seen_ready.get(name, 0):
            yield f"{name} gets {weight} percent and was seen ready for {after.seen_ready.get(name, 0)}"


def surge(before: Moment, after: Moment) -> Iterator[str]:
    """A capacity that grows leaves the sum of both at or below 100 + maxSurgePercent.

    Exceptions: the other cluster is sick or does not exist, so that its capacity serves nobody; a rollback under options that
    allow no step; a cluster that grows to no more than its share, which it may lack after an allowance was withdrawn; a cluster
    that grows to its recorded capacity, because a process died between a PUT that shrank it and the record of that PUT. Without
    a route nothing is shared: the Service moves all at once.
    """
    if after.weights is None:
        return
    pair = [name for name in (after.active, after.pending) if name in after.clusters]
    total = sum(after.capacities.get(name, 0) for name in pair)
    for name in pair:
        grows = after.capacities.get(name, 0) > before.capacities.get(name, 0)
        other_is_sick = any(each in after.sick for each in pair if each != name)
        owed = max(after.weights.get(name, 0), before.recorded.get(name, 0))
        is_owed = after.capacities.get(name, 0) <= owed
        is_excused = other_is_sick or is_owed or (after.is_back and after.may_hurry)
        if grows and len(pair) == 2 and total > WHOLE + after.surge and not is_excused:
            yield f"{name} grows to {after.capacities[name]}: {total} percent exceed a surge of {after.surge}"


def _starvation(before: Moment, after: Moment) -> Iterator[str]:
    """A capacity that shrinks stays at or above the share that the Gateway still sends.

    Exceptions: the cluster is sick; in a rollback a Gateway that does not follow is not waited for.
    """
    for name in {after.active, after.pending} & after.clusters:
        capacity, share = after.capacities.get(name, 0), after.effective.get(name, 0)
        shrinks = capacity < before.capacities.get(name, 0)
        is_excused = name in after.sick or (after.is_back and not after.follows)
        if shrinks and capacity < share and not is_excused:
            yield f"{name} shrinks to {capacity} percent while the Gateway sends it {share}"


def _gone(after: Moment) -> Iterator[str]:
    """Check that no deleted cluster keeps a weight for longer than its deletion takes to arrive."""
    for name, seconds in after.gone_for.items():
        if after.weights is not None and after.weights.get(name, 0) > 0 and seconds > GRACE:
            yield f"{name} is gone for {seconds:g} s and gets {after.weights[name]} percent"


def _frozen(before: Moment, after: Moment) -> Iterator[str]:
    """Check that the active cluster's Serve config never changes while another cluster is pending."""
    active = after.active
    if not after.pending or not before.pending or before.active != active:
        return
    if active in before.configs and after.configs.get(active) != before.configs[active]:
        yield f"the Serve config of the active cluster {active} changed in an upgrade"


def created(before: Moment, after: Moment) -> Iterator[str]:
    """Check that a cluster is created only under a name that the status already contains."""
    for name in after.clusters - before.clusters:
        if name != after.pending:
            yield f"cluster {name} was created while the pending one is {after.pending or 'none'}"


def promoted(before: Moment, after: Moment) -> Iterator[str]:
    """Check that, with a weighted route, a cluster becomes active only when all traffic has moved
    to it and the old cluster has no capacity.

    Exception: the old cluster does not exist any more, or is sick.
    """
    if before.active in {"", after.active} or not after.active or after.weights is None:
        return
    if before.active not in after.clusters or before.active in after.sick:
        return
    has_all = (
        after.weights.get(after.active) == WHOLE and before.capacities.get(before.active, 0) == 0
    )
    if not has_all:
        held = f"weights {after.weights}, capacities {before.capacities}"
        yield f"{after.active} was promoted too early: {held}"


def _deleted(before: Moment, after: Moment) -> Iterator[str]:
    """Check that no cluster is deleted to which the Gateway or the Serve Service sends requests;
    see `by_hand` of the simulator.
    """
    for name in before.clusters - after.clusters:
        if before.effective.get(name, 0) > 0 and before.follows and before.weights is not None:
            yield f"{name} was deleted while the Gateway sends it {before.effective[name]} percent"
        if before.selected == name and before.weights is None:
            yield f"{name} was deleted while the Serve Service selects it"


def switched(before: Moment, after: Moment) -> Iterator[str]:
    """Check that the Serve Service moves only to a cluster that was seen ready for all traffic.

    Exception: the cluster that it selected does not exist any more.
    """
    if before.selected in {"", after.selected} or not after.selected or after.weights is not None:
        return
    if before.selected in after.clusters and after.seen_ready.get(after.selected, 0) < WHOLE:
        seen = after.seen_ready.get(after.selected, 0)
        yield f"the Serve Service moves to {after.selected}, which was seen ready for {seen} percent"


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    """One change of an upgrade."""

    before: Moment
    after: Moment


Check = Callable[[Moment, Moment], Iterator[str]]


def _law(name: str, source: str, reads: str, check: Check) -> Law[Turn]:
    return Law(
        name=name,
        source=source,
        reads=reads,
        check=by_first_word(lambda turn: check(turn.before, turn.after)),
    )


def _after(check: Callable[[Moment], Iterator[str]]) -> Check:
    return lambda _, after: check(after)


COMMON: Final = (
    _law("sum", "rayservice §8.10", "the weights of the route", _after(sums)),
    _law("surge", "rayservice §8.10", "both capacities, the record of the route", surge),
    _law("created", "design rules", "the clusters, the names in the status", created),
    _law("promoted", "rayservice §8.10", "the status, weights and capacities", promoted),
    _law("switched", "rayservice §7.3", "the selector of the Serve Service", switched),
)
"""Laws of every simulated upgrade."""
ALTERNATING: Final = (
    *COMMON,
    _law("growth", "rayservice §8.10", "the weights, the reported ready capacity", _growth),
    _law(
        "starvation",
        "rayservice §8.10",
        "the capacities, the shares that the Gateway sends",
        _starvation,
    ),
    _law("gone", "rayservice §8.10", "the weights, the clusters that exist", _after(_gone)),
    _law("frozen", "rayservice §21", "the Serve config of the active cluster", _frozen),
    _law("deleted", "rayservice §8.10", "the clusters, the traffic that they get", _deleted),
)
"""Laws of upgrades whose services run one after the other.

Interleaved passes have more precise laws in their place (`upgrade_states`)."""
INTERLEAVED: Final = (
    *COMMON,
    _law("steps", "ADR 28", "the weights, the steps of the policy", steps),
    _law("edited", "ADR 28", "the record of the policy", edited),
    _law("kept", "ADR 41", "the weights, the health of the pending cluster", kept),
)


def violations(before: Moment, after: Moment) -> Iterator[str]:
    """Yield the laws that a change broke."""
    if not after.is_going:
        turn = Turn(before=before, after=after)
        yield from (each.text for each in find_broken(ALTERNATING, turn))
