"""Laws of every state of an upgrade, with the time for which an exception may last: pure, over the
actual state of the harness.

All numbers are percent. Each law has a short name. Laws of a change check one write; laws of time
check what lasts. `upgrade_moments` has the older laws, of which some are used here unchanged.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

import msgspec

from support.laws import Finding, Law, by_first_word, find_broken, upgrade_moments
from support.laws.upgrade_moments import Moment, Turn

SHEDS: Final = 5.0
"""Seconds until weights leave out a cluster that was deleted or has no pods."""
SHEDS_REPLICAS: Final = 11.0
"""Seconds until weights leave out a cluster that has lost only its replicas: Serve is asked every 5
s at rest."""
GROWS: Final = 10.0
"""Additional seconds when the other cluster must grow first."""
STABLE_AFTER: Final = 20.0
"""Seconds until a cluster runs with its recorded capacity."""
STARVES: Final = 8.0
"""Maximum seconds for which clients of the plain Service may reach less than the whole capacity."""
ENDLESS: Final = 30.0
"""Seconds of requests to clusters that cannot answer, in addition to a quarter of the deadline,
after which a stall must be reported."""
MEMORY: Final = 60.0
"""Seconds for which an allowance still counts after it was withdrawn."""
WINDOW: Final = 10.0
MAX_PUTS: Final = 12
MAX_WRITES: Final = 200
"""Maximum number of writes in an upgrade.

One with ten steps of 0.75 s, gates with their figures and a fault takes 160."""
SLACK: Final = 5
"""Tolerance in percent: the share of one replica of twenty."""
TWINS: Final = 2
"""Number of other owners' backends with the same name as ours, where there are any."""
GOES: Final = 90.0
"""Seconds until nothing is left of a RayService that was deleted or suspended."""
RETURNS: Final = 15.0
"""Seconds until all traffic has left a cluster after a gate ended the upgrade to it."""
IN_STEPS: Final = frozenset({"promoted", "surge", "kept"})
"""Laws that apply only to upgrades in steps: in blue/green both clusters have their whole capacity,
also beside the route of an earlier strategy."""

Key = tuple[str, str]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the harness at one moment."""

    at: float
    actor: str = ""
    """Name of the process that made the change."""
    route: dict[str, int] | None = None
    """Weights of the route that carries the traffic; None without one."""
    effective: list[dict[str, int]] = []
    """Weights that the Gateway applies, for every route through which requests may come."""
    carries: dict[str, int] = {}
    """Share of all traffic in percent that each cluster's replicas can carry."""
    targets: dict[str, int] = {}
    """Target capacity that each cluster was sent last."""
    surprised: frozenset[str] = frozenset()
    """Clusters to which Ray just applied a PUT after the sender's call had timed out: no process
    can have observed it yet."""
    targets_before: dict[str, int] = {}
    """By cluster in `surprised`: the target capacity before the PUT, until it is restored;
    restoring it is no decision to shrink."""
    missing: frozenset[str] = frozenset()
    """Clusters that were deleted or have no pods."""
    silent: frozenset[str] = frozenset()
    """Clusters whose dashboard does not answer."""
    unheard: frozenset[str] = frozenset()
    """Clusters whose dashboard has not answered any service since it became silent."""
    autoscaled: frozenset[str] = frozenset()
    follows: dict[str, int] = {}
    """By autoscaled cluster: maximum share of traffic in percent that the replicas it reported
    recently can grow to serve."""
    in_flight: frozenset[str] = frozenset()
    """Clusters that currently handle requests."""
    allowance: int = 0
    """Capacity in percent that may be missing."""
    foreign: tuple[tuple[str, int], ...] = ()
    """Backends of other owners on the user's route, with their weights."""
    is_going: bool = False
    in_steps: bool = False
    """Whether the upgrade to the pending cluster began as one in steps."""
    active: str = ""
    is_alone: bool = False
    """Whether only one cluster is left, and it serves."""
    unserved: frozenset[str] = frozenset()
    """Clusters with a ready head but no Serve config."""
    plain: frozenset[str] | None = None
    """Clusters that clients of the plain Service reach; None without that Service."""
    deadline: float = 600.0
    """Seconds without progress after which an upgrade counts as stalled."""
    has_stalled: bool = False
    """Whether a stall was reported to the user."""
    unmet: tuple[str, ...] = ()
    """Gates and pauses of the policy that the upgrade had not passed at its weight when the write
    began."""
    is_failed: bool = False
    """Whether the status records that a gate ended the upgrade."""
    ended_by: str = ""
    """`onFailure` of the policy if a gate ended the upgrade to the current spec and the user does
    not promote it anyway; empty otherwise."""
    proven_bad: frozenset[str] = frozenset()
    """Clusters with failed requests, a refusal of the webhook or three consecutive bad values of
    Prometheus."""
    unharmed: frozenset[str] = frozenset()
    """Clusters that have carried all their traffic for some time; their dashboards may hang."""
    step: int = upgrade_moments.WHOLE
    """Largest step in percent that the user allowed recently."""
    promotes: bool = False
    beside: tuple[tuple[str, str], ...] = ()
    """Routes other than the weighted one, each with the cluster to which it sends users'
    requests."""
    twins_left: int | None = None
    """Number of other owners' backends with the same name as ours on the user's route; None if it
    never had any."""
    is_awaited: tuple[str, int] | None = None
    """Backend of another owner, with its weight, that must be on the user's route; None if there is
    none."""


class Timers:
    """Durations for which conditions have held without an excuse."""

    def __init__(self) -> None:
        self._held: dict[Key, float] = {}

    def lasts(self, key: Key, seconds: float, *, holds: bool, is_excused: bool = False) -> float:
        """Add the seconds of a moment; return the seconds for which the condition has held."""
        if not holds:
            self._held.pop(key, None)
            return 0.0
        self._held[key] = self._held.get(key, 0.0) + (0.0 if is_excused else seconds)
        return self._held[key]

    def keep(self, law: str, subjects: set[str]) -> None:
        """Reset the durations of a law for all other subjects."""
        for key in [each for each in self._held if each[0] == law and each[1] not in subjects]:
            del self._held[key]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One write, with the states before and after it."""

    before: Moment
    after: Moment
    old: State
    new: State


class Lasting(msgspec.Struct, frozen=True, kw_only=True):
    """A period in which nothing was written."""

    timers: Timers
    state: State
    seconds: float
    is_excused: bool
    """Whether another cause currently explains that a state lasts."""

    def lasts(self, key: Key, *, holds: bool = True) -> float:
        """Return the seconds for which a condition has held."""
        return self.timers.lasts(key, self.seconds, holds=holds, is_excused=self.is_excused)


def of_a_change(before: Moment, after: Moment, old: State, new: State) -> Iterator[tuple[str, str]]:
    """Yield the laws that a write breaks."""
    change = Change(before=before, after=after, old=old, new=new)
    if not (after.is_going or new.is_going):
        yield from ((each.law, each.text) for each in find_broken(CHANGE_LAWS, change))


def of_time(
    timers: Timers, state: State, seconds: float, *, is_excused: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield law, subject and text of each condition that has lasted too long."""
    return _of(TIME_LAWS, timers, state, seconds, is_excused=is_excused)


def of_side_routes(
    timers: Timers, state: State, seconds: float, *, is_excused: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield routes other than the weighted one that send requests to a cluster that cannot serve,
    while another cluster could.
    """
    return _of(SIDE_ROUTE_LAWS, timers, state, seconds, is_excused=is_excused)


def of_serving(
    timers: Timers, state: State, seconds: float, *, is_excused: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield clusters that get no Serve config, whatever the faults of routes and Gateways."""
    return _of(SERVING_LAWS, timers, state, seconds, is_excused=is_excused)


def _of(
    laws: Sequence[Law[Lasting]], timers: Timers, state: State, seconds: float, *, is_excused: bool
) -> Iterator[tuple[str, str, str]]:
    if state.is_going:
        return
    lasting = Lasting(timers=timers, state=state, seconds=seconds, is_excused=is_excused)
    for each in find_broken(laws, lasting):
        yield each.law, each.subject, each.text


def _overload(lasting: Lasting) -> Iterator[Finding]:
    found = list(overloaded(lasting.state))
    for name, text, limit in found:
        if lasting.lasts(("overload", name)) > limit:
            yield name, text
    lasting.timers.keep("overload", {name for name, _, _ in found})


def _endless(lasting: Lasting) -> Iterator[Finding]:
    """Yield clusters that repeatedly get requests which they cannot carry, while no stall is
    reported.
    """
    for name, _, _ in overloaded(lasting.state):
        bad = lasting.lasts(("endless", "all"))
        if bad > ENDLESS + lasting.state.deadline / 4 and not lasting.state.has_stalled:
            text = f"{name} gets requests that it cannot carry, again and again"
            yield name, f"{text}, and no stall is reported"


def _foreign(lasting: Lasting) -> Iterator[Finding]:
    state = lasting.state
    if state.is_awaited is not None and state.is_awaited not in state.foreign:
        name = state.is_awaited[0]
        yield name, f"{name} of another RayService is not on the route any more"
    if state.twins_left is not None and state.twins_left < TWINS:
        yield "the route", "a backend of others with the name of ours was taken away"


def _alone(lasting: Lasting) -> Iterator[Finding]:
    state = lasting.state
    target = state.targets.get(state.active, 100)
    is_less = state.is_alone and target != upgrade_moments.WHOLE
    if lasting.lasts(("alone", state.active), holds=is_less) > STABLE_AFTER:
        yield state.active, f"{state.active} is alone and has a capacity of {target}"


def _plain(lasting: Lasting) -> Iterator[Finding]:
    state = lasting.state
    reached = sum(state.targets.get(name, 0) for name in state.plain or ())
    least = upgrade_moments.WHOLE - state.allowance
    is_less = state.plain is not None and bool(state.plain) and reached < least
    if lasting.lasts(("plain", "Service"), holds=is_less) > STARVES:
        served = sorted(state.plain or ())
        yield "Service", f"clients of the plain Service reach a capacity of {reached} in {served}"


def _beside(state: State) -> Iterator[Finding]:
    for route, cluster in state.beside:
        is_useless = cluster in state.missing or state.carries.get(cluster, 0) == 0
        is_silent = cluster in state.silent - state.missing
        others = [carries for name, carries in state.carries.items() if name != cluster]
        if is_useless and not is_silent and any(others):
            yield route, f"{route} sends requests to {cluster}, which cannot serve"


def _unserved(state: State) -> Iterator[Finding]:
    for name in sorted(state.unserved):
        yield name, f"{name} has a ready head and gets no Serve config"


def _longer(
    law: str, find: Callable[[State], Iterator[Finding]], limit: float
) -> Callable[[Lasting], Iterator[Finding]]:
    """Return a check for findings that must not last longer than `limit` seconds."""

    def check(lasting: Lasting) -> Iterator[Finding]:
        found = dict(find(lasting.state))
        for name, text in found.items():
            if lasting.lasts((law, name)) > limit:
                yield name, text
        lasting.timers.keep(law, set(found))

    return check


def overloaded(state: State) -> Iterator[tuple[str, str, float]]:
    """Yield clusters that get more traffic than they can carry, while another cluster could carry
    some of it.
    """
    for name, weight in (state.route or {}).items():
        carries = state.carries.get(name, 0)
        is_lost = carries == 0 or name in state.missing
        if weight <= (0 if is_lost else carries + state.allowance + SLACK):
            continue
        if (name in state.autoscaled and not is_lost) or (
            name in state.silent and name not in state.missing
        ):
            continue
        others = [each for each in state.route or {} if each != name and each not in state.silent]
        spare = sum(
            max(0, state.carries.get(each, 0) - (state.route or {})[each]) for each in others
        )
        limit = SHEDS if name in state.missing else SHEDS_REPLICAS
        text = f"{name} gets {weight} and carries {carries}, while {spare} are to spare elsewhere"
        if spare > SLACK:
            yield name, text, limit
        elif is_lost and any(state.carries.get(each, 0) for each in others):
            yield name, f"{text}, and another one serves that could grow", limit + GROWS


def growth(before: Moment, after: Moment, new: State) -> Iterator[str]:
    """Yield clusters of which the weight grows beyond what they were seen ready for, less the
    allowance in proportion.

    Exception: no other cluster is left that has a capacity, so all goes to the last cluster with
    one. A cluster that relieves another one, which gets more than it carries, is measured by its
    running replicas, whatever the status of its applications (ADR 41). So is an active cluster with
    a silent dashboard that takes traffic back from a version that failed a gate.
    """
    if after.weights is None or before.weights is None:
        return
    for name, weight in after.weights.items():
        others = [
            each
            for each in (after.active, after.pending)
            if each != name and after.capacities.get(each, 0) > 0
        ]
        seen = after.seen_ready.get(name, 0)
        if any(new.carries.get(each, 0) + SLACK < before.weights.get(each, 0) for each in others):
            seen = max(seen, new.carries.get(name, 0))
        if name == after.active and name in new.silent and new.is_failed:
            seen = max(seen, new.carries.get(name, 0))
        is_more = (
            weight > before.weights.get(name, 0) and weight * (100 - new.allowance) // 100 > seen
        )
        if is_more and any(new.carries.get(each, 0) for each in others):
            yield f"{name} gets {weight} percent and was seen ready for {seen}"


def parity(before: Moment, after: Moment, new: State) -> Iterator[str]:
    """Yield autoscaled clusters of which the weight grows beyond that to which their replicas can
    follow, less the allowance.

    One replica of the other one may have next to nothing to do, since autoscalers round up: the
    smaller the part of the traffic that its replicas carry, the less they show about all of it.

    Exception: the other one does not carry what it gets, or its dashboard does not answer, so
    health moves traffic, and there is nothing to hold the replicas against.
    """
    if after.weights is None or before.weights is None:
        return
    for name, weight in after.weights.items():
        others = [each for each in (after.active, after.pending) if each and each != name]
        are_whole = all(
            new.carries.get(each, 0) + SLACK >= before.weights.get(each, 0) > 0 for each in others
        )
        had = before.weights.get(name, 0)
        follows = (
            (new.follows.get(name, upgrade_moments.WHOLE) + 1)
            * upgrade_moments.WHOLE
            // max(1, upgrade_moments.WHOLE - _rounded(upgrade_moments.WHOLE - had))
        )
        is_more = weight > had and weight * (100 - new.allowance) // 100 > follows
        if is_more and others and are_whole and not new.unheard.intersection(others):
            yield f"{name} gets {weight} percent and its replicas can follow to {follows}"


def _rounded(weight: int) -> int:
    """Return the percentage by which the share of an autoscaled cluster's replicas may exceed a
    weight because replica numbers are rounded up.
    """
    return (
        min(upgrade_moments.WHOLE, math.ceil(SLACK * upgrade_moments.WHOLE / weight))
        if weight
        else 0
    )


def starved(old: State, new: State, *, sick: frozenset[str]) -> Iterator[str]:
    """Yield clusters that a write leaves with less capacity than their share, less the allowance in
    proportion.

    A PUT that Ray applies long after the call of its sender timed out is no process's write, and a
    move of traffic that was decided before it could not know of it. The law of time bounds how long
    both hold.
    """
    for name, text in _short(new):
        shrinks = new.targets[name] < old.targets.get(name, new.targets[name])
        grows = (new.route or {}).get(name, 0) > (old.route or {}).get(name, 0)
        grows &= name not in new.surprised
        is_excused = name in sick and new.carries.get(name, 0) == 0
        if (shrinks or grows) and not is_excused:
            yield text


def _short(state: State) -> Iterator[tuple[str, str]]:
    """Yield clusters with less capacity than their share, less the allowance in proportion, while
    another cluster could carry some of it.
    """
    for name, target in state.targets.items():
        share = max(
            [(state.route or {}).get(name, 0), *(each.get(name, 0) for each in state.effective)]
        )
        others_carry = any(carries for each, carries in state.carries.items() if each != name)
        if (
            target < share * (100 - state.allowance) // 100
            and name not in state.missing
            and others_carry
        ):
            yield name, f"{name} has a capacity of {target} while it is sent {share} percent"


def deleted(before: Moment, after: Moment, old: State) -> Iterator[str]:
    """Yield clusters that are deleted while they serve."""
    for name in before.clusters - after.clusters:
        share = max((each.get(name, 0) for each in old.effective), default=0)
        if share and old.carries.get(name, 0) and before.follows:
            yield f"{name} was deleted while a Gateway sends it {share} percent"
        if before.selected == name and before.weights is None and old.carries.get(name, 0):
            yield f"{name} was deleted while the Serve Service selects it"
        elif name in old.in_flight - old.missing and not share and before.weights is not None:
            yield f"{name} was deleted with requests in flight"


def gated(before: Moment, after: Moment, old: State, new: State) -> Iterator[str]:
    """Yield moves although the upgrade has not passed its gates or its pause: traffic to the
    pending cluster, and, once all traffic is there, the capacity of the cluster for the way back.

    Exception: the active cluster is sick or does not exist, so that the traffic goes to the cluster
    that can serve it (ADR 41).
    """
    if new.unmet and (text := _forward(before, after, old, new)) is not None:
        yield f"{text}, without {', '.join(new.unmet)}"


def failed(before: Moment, after: Moment, old: State, new: State) -> Iterator[str]:
    """Yield moves to the pending cluster after a gate ended the upgrade to this spec; the active
    cluster keeps the capacity for the traffic that returns.

    Exception: the active cluster is sick or does not exist.
    """
    if not old.ended_by or not new.ended_by:
        return
    if (text := _forward(before, after, old, new)) is not None:
        yield f"{text}, after a gate failed"
    had, has = before.capacities.get(after.active, 0), after.capacities.get(after.active, 0)
    # a capacity above the record is of a write that was lost with its process
    had = min(had, before.recorded.get(after.active, had))
    is_restored = has >= old.targets_before.get(after.active, had)
    is_one_upgrade = old.in_steps and after.pending == before.pending != ""
    if is_one_upgrade and has < had and not is_restored and not _is_excused(before, after, new):
        yield f"{after.active} shrinks from {had} to {has} percent after a gate failed"


def silence(before: Moment, after: Moment, old: State, new: State) -> Iterator[str]:
    """Yield upgrades that a gate ended without evidence against the new cluster: an unknown value
    is no failure.
    """
    if new.is_failed and not old.is_failed and not new.proven_bad & {before.pending, after.pending}:
        yield f"{after.pending or before.pending} failed a gate that nothing was found for"


def leaps(before: Moment, after: Moment, old: State, new: State) -> Iterator[str]:
    """Yield traffic that leaves a cluster which carries it by more than the steps that the user
    requested.

    A dashboard that does not answer is no evidence against the requests that its cluster answers.
    """
    if before.weights is None or after.weights is None or not old.in_steps or after.steps:
        return
    pair = (before.active, before.pending)
    if "" in pair or pair != (after.active, after.pending):
        return
    is_back = after.is_back or before.is_back or new.is_failed or after.is_aborted
    for loser, winner in (pair, pair[::-1]):
        lost = before.weights.get(loser, 0) - after.weights.get(loser, 0)
        if lost <= 0 or loser not in old.unharmed & new.unharmed:
            continue
        is_asked = is_back if winner == before.active else lost <= new.step or new.promotes
        if not is_asked and not is_back:
            yield f"{loser} loses {lost} percent to {winner}, and carries all that it gets"


def _forward(before: Moment, after: Moment, old: State, new: State) -> str | None:
    """Return the traffic that moves to the pending cluster; None if there is none, or the active
    cluster cannot serve.
    """
    name = before.pending
    if not name or _is_excused(before, after, new):
        return None
    if not old.in_steps:
        is_switched = before.selected not in {"", name} and after.selected == name
        return f"{name} gets all traffic" if is_switched else None
    was, now = (before.weights or {}).get(name, 0), (after.weights or {}).get(name, 0)
    if now > was and before.weights and after.pending == name:
        return f"{name} gets {now} percent after {was}"
    had, has = before.capacities.get(before.active, 0), after.capacities.get(before.active, 0)
    is_abandoned = was == now == upgrade_moments.WHOLE and has < old.targets_before.get(
        before.active, had
    )
    return (
        f"{before.active} shrinks from {had} to {has} percent with all traffic at {name}"
        if is_abandoned
        else None
    )


def _is_excused(before: Moment, after: Moment, new: State) -> bool:
    is_gone = (
        before.active not in after.clusters
        or before.active in before.sick | after.sick | new.missing
    )
    return is_gone or before.active in new.surprised


def _returning(state: State) -> Iterator[tuple[str, str]]:
    """Yield clusters that keep traffic after a gate ended the upgrade to them, while the active
    cluster has room for it.
    """
    room = state.carries.get(state.active, 0) - (state.route or {}).get(state.active, 0)
    for name, weight in (state.route or {}).items():
        if (
            state.in_steps
            and state.ended_by == "Rollback"
            and name != state.active
            and weight
            and room > SLACK
        ):
            yield (
                name,
                f"{name} keeps {weight} percent after a gate failed, and {state.active} has room for {room}",
            )


def _change(
    name: str, source: str, reads: str, check: Callable[[Change], Iterator[str]]
) -> Law[Change]:
    return Law(name=name, source=source, reads=reads, check=by_first_word(check))


def _turn_law(law: Law[Turn]) -> Law[Change]:
    """Return a law of turns as a law of writes; it is not checked for clusters to which Ray just
    applied a PUT that had timed out.
    """

    def check(change: Change) -> Iterable[Finding]:
        is_blind = law.name == "surge" and change.new.surprised
        if (law.name in IN_STEPS and not change.old.in_steps) or is_blind:
            return ()
        return law.check(Turn(before=change.before, after=change.after))

    return Law(name=law.name, source=law.source, reads=law.reads, check=check)


CHANGE_LAWS: Final[tuple[Law[Change], ...]] = (
    *map(_turn_law, upgrade_moments.INTERLEAVED),
    _change(
        "growth",
        "rayservice §8.10, ADR 41",
        "the weights, the reported ready capacity, the running replicas",
        lambda c: growth(c.before, c.after, c.new),
    ),
    _change(
        "parity",
        "traffic.md",
        "the weights, the replicas of autoscaled clusters",
        lambda c: parity(c.before, c.after, c.new),
    ),
    _change(
        "starved",
        "rayservice §8.10",
        "the capacities, the traffic that the Gateway sends",
        lambda c: starved(c.old, c.new, sick=c.after.sick),
    ),
    _change(
        "deleted",
        "rayservice §8.10",
        "the clusters, their traffic and their open requests",
        lambda c: deleted(c.before, c.after, c.old),
    ),
    _change(
        "gated",
        "ADR 37",
        "the weights, the gates and pauses that are not passed",
        lambda c: gated(c.before, c.after, c.old, c.new),
    ),
    _change(
        "failed",
        "ADR 31",
        "the record of a failed gate, the answers of its source",
        lambda c: failed(c.before, c.after, c.old, c.new),
    ),
    _change(
        "silence",
        "ADR 40",
        "the weights, the clusters whose dashboard does not answer",
        lambda c: silence(c.before, c.after, c.old, c.new),
    ),
    _change(
        "leap",
        "rayservice §8.4",
        "the weights, the steps that the user allowed",
        lambda c: leaps(c.before, c.after, c.old, c.new),
    ),
)
"""Laws of a single write."""


def _time(
    name: str, source: str, reads: str, check: Callable[[Lasting], Iterator[Finding]]
) -> Law[Lasting]:
    return Law(name=name, source=source, reads=reads, check=check)


TIME_LAWS: Final = (
    _time("overload", "ADR 41", "the weights, what each cluster can carry", _overload),
    _time("endless", "upgrade-controls.md", "the same, and the reported stall", _endless),
    _time("foreign", "ADR 12", "the backends of others on the user's route", _foreign),
    _time(
        "returned",
        "ADR 31",
        "the weights after a failed gate",
        _longer("returned", _returning, RETURNS),
    ),
    _time(
        "starved",
        "rayservice §8.10",
        "the capacities, the traffic that the Gateway sends",
        _longer("starved", _short, SHEDS_REPLICAS),
    ),
    _time("alone", "rayservice §8.5", "the capacity of the only cluster", _alone),
    _time("plain", "ADR 14", "the endpoints of the plain Service", _plain),
)
"""Laws of states that last."""
SIDE_ROUTE_LAWS: Final = (
    _time(
        "beside",
        "ADR 43",
        "the routes beside the weighted one",
        _longer("beside", _beside, SHEDS_REPLICAS + GROWS),
    ),
)
SERVING_LAWS: Final = (
    _time(
        "unserved",
        "ADR 5",
        "the heads and their Serve configs",
        _longer("unserved", _unserved, STABLE_AFTER),
    ),
)
