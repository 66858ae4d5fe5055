"""What must hold at every turn of an upgrade: pure rules over what the harness was before a change and is after it.

Weights and capacities are percent. A rule names its legal exceptions where it stands; whatever else breaks it is a defect
(design rules 4, 6, 7, 8; spec rayservice §8.10, §21).
"""

from collections.abc import Iterator
from typing import Final

import msgspec

WHOLE: Final = 100
GRACE: Final = 3.0
"""Seconds in which a cluster that a user deleted may keep its share: the services must receive the deletion first."""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """The harness between two changes, as it truly is."""

    at: float
    active: str = ""
    pending: str = ""
    clusters: frozenset[str] = frozenset()
    """RayClusters that exist and are not going."""
    weights: dict[str, int] | None = None
    """The weights of the route; None without a route."""
    effective: dict[str, int] = {}
    """What the Gateway does: the weights of the last generation that it took in."""
    capacities: dict[str, int] = {}
    """What each cluster's Serve accepted last."""
    configs: dict[str, str] = {}
    """The same for the Serve config, without the capacity."""
    recorded: dict[str, int] = {}
    """Capacities in the traffic record of the route."""
    seen_ready: dict[str, int] = {}
    """The highest ready capacity that its head reported lately."""
    carries: dict[str, int] = {}
    """What the replicas of a cluster can carry, in percent of all traffic, where that is known."""
    sick: frozenset[str] = frozenset()
    """Clusters that cannot serve now, or could not a moment ago."""
    surge: int = WHOLE
    is_back: bool = False
    may_hurry: bool = False
    """Whether the options allow no step, so that a rollback takes none."""
    follows: bool = True
    """Whether the Gateway follows the route."""
    policy: str = ""
    """The record of the policy that the upgrade follows."""
    former: tuple[tuple[int, ...], ...] = ()
    """The steps of the policies that it followed before: a pass under way decides by one of them."""
    has_failed: bool = False
    """Whether a gate failed."""
    is_aborted: bool = False
    steps: tuple[int, ...] = ()
    """The weights of the UpgradePolicy that the upgrade follows, while it holds."""
    selected: str = ""
    """The cluster that the Serve Service selects."""
    is_going: bool = False
    """Whether the RayService is deleted or suspended."""
    gone_for: dict[str, float] = {}
    """For how many seconds clusters do not exist any more, while both services ran and received changes."""


def violations(before: Moment, after: Moment) -> Iterator[str]:
    """Yield what a change broke."""
    if after.is_going:
        return
    yield from sums(after)
    yield from _growth(before, after)
    yield from surge(before, after)
    yield from _starvation(before, after)
    yield from _gone(after)
    yield from _frozen(before, after)
    yield from created(before, after)
    yield from promoted(before, after)
    yield from _deleted(before, after)
    yield from switched(before, after)


def steps(before: Moment, after: Moment) -> Iterator[str]:
    """The pending cluster's weight grows to the next step of its policy and no further.

    Exception: the active cluster is sick or does not exist, so that the traffic goes where it is served.
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
    """An upgrade keeps the policy that it began with, unless the edits of that one apply at once."""
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
    """Traffic leaves the pending cluster of an upgrade with a policy for its health, for a failed gate, or in a rollback; never for an edit.

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
    """A growing weight is at most what the cluster was seen ready for.

    Exception: no other cluster is left that has a capacity, so all goes to the last cluster with one.
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
    """No cluster that is gone keeps a weight for longer than its deletion takes to arrive."""
    for name, seconds in after.gone_for.items():
        if after.weights is not None and after.weights.get(name, 0) > 0 and seconds > GRACE:
            yield f"{name} is gone for {seconds:g} s and gets {after.weights[name]} percent"


def _frozen(before: Moment, after: Moment) -> Iterator[str]:
    """The active cluster's Serve config never changes while another cluster is on its way."""
    active = after.active
    if not after.pending or not before.pending or before.active != active:
        return
    if active in before.configs and after.configs.get(active) != before.configs[active]:
        yield f"the Serve config of the active cluster {active} changed in an upgrade"


def created(before: Moment, after: Moment) -> Iterator[str]:
    """A cluster is created only under a name that the status holds already."""
    for name in after.clusters - before.clusters:
        if name != after.pending:
            yield f"cluster {name} was created while the pending one is {after.pending or 'none'}"


def promoted(before: Moment, after: Moment) -> Iterator[str]:
    """With a weighted route, a cluster becomes active when all traffic has moved and the old one has no capacity.

    Exception: the old one does not exist any more, or is sick.
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
    """No cluster is deleted that the Gateway or the Serve Service sends requests to; see `by_hand` of the simulator."""
    for name in before.clusters - after.clusters:
        if before.effective.get(name, 0) > 0 and before.follows and before.weights is not None:
            yield f"{name} was deleted while the Gateway sends it {before.effective[name]} percent"
        if before.selected == name and before.weights is None:
            yield f"{name} was deleted while the Serve Service selects it"


def switched(before: Moment, after: Moment) -> Iterator[str]:
    """The Serve Service moves only to a cluster that was seen ready for everything.

    Exception: the cluster that it selected does not exist any more.
    """
    if before.selected in {"", after.selected} or not after.selected or after.weights is not None:
        return
    if before.selected in after.clusters and after.seen_ready.get(after.selected, 0) < WHOLE:
        seen = after.seen_ready.get(after.selected, 0)
        yield f"the Serve Service moves to {after.selected}, which was seen ready for {seen} percent"
