"""What must hold in every state of an upgrade, and for how long it may be otherwise: pure, over the harness as it truly is.

Percent throughout. Each law has a short name. Laws of a change judge one write; laws of time judge what lasts. `rules` has the older
ones, of which some are taken over here as they are.
"""

import math
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from scenario.simulation import rules
from scenario.simulation.rules import Moment

SHEDS: Final = 5.0
"""Seconds until weights leave out a cluster that is gone, or has no pods."""
SHEDS_REPLICAS: Final = 11.0
"""The same for replicas alone: Serve is asked every 5 s at rest."""
GROWS: Final = 10.0
"""Seconds more where the other cluster must grow first."""
STABLE_AFTER: Final = 20.0
"""Seconds until a cluster runs what is recorded for it."""
STARVES: Final = 8.0
"""Seconds for which clients of the plain Service may find less than all of the capacity."""
ENDLESS: Final = 30.0
"""Seconds of requests sent to clusters that cannot answer, with a quarter of the deadline, after which a stall must be reported."""
MEMORY: Final = 60.0
"""Seconds for which an allowance still excuses after it was taken away."""
WINDOW: Final = 10.0
MAX_PUTS: Final = 12
MAX_WRITES: Final = 200
"""An upgrade of ten steps of 0.75 s with gates, their figures and a fault beside it takes 160."""
SLACK: Final = 5
"""One replica of twenty."""
TWINS: Final = 2
"""Backends of others with the name of ours, where there are any."""
GOES: Final = 90.0
"""Seconds until a RayService that is deleted or suspended has nothing left."""
RETURNS: Final = 15.0
"""Seconds until all traffic has left a cluster that a gate ended the upgrade to."""
IN_STEPS: Final = frozenset({"promoted", "surge", "kept"})
"""Laws of upgrades in steps: in blue/green both clusters have all of their capacity, also beside the route of an earlier strategy."""

Key = tuple[str, str]


class State(msgspec.Struct, frozen=True, kw_only=True):
    """The harness at one moment."""

    at: float
    actor: str = ""
    """The process that made it so."""
    route: dict[str, int] | None = None
    """Weights of the route that carries the traffic; None without one."""
    effective: list[dict[str, int]] = []
    """What the Gateway does, by every route that requests may come through."""
    carries: dict[str, int] = {}
    """What each cluster's replicas can carry, in percent of all traffic."""
    targets: dict[str, int] = {}
    """The target capacity that each cluster got last."""
    surprised: frozenset[str] = frozenset()
    """Clusters of which Ray just applied a PUT after the call of its sender timed out: no process can have observed it yet."""
    targets_before: dict[str, int] = {}
    """What such clusters had before, until they have it again: that is no decision to shrink."""
    missing: frozenset[str] = frozenset()
    """Clusters that are gone, or have no pods."""
    silent: frozenset[str] = frozenset()
    """Clusters of which the dashboard does not answer."""
    unheard: frozenset[str] = frozenset()
    """Clusters of which no service can have had an answer since they were silent."""
    autoscaled: frozenset[str] = frozenset()
    follows: dict[str, int] = {}
    """The most traffic to which the replicas that each autoscaled cluster reported lately can follow, in percent."""
    in_flight: frozenset[str] = frozenset()
    """Clusters that work on requests."""
    allowance: int = 0
    """Percent of capacity that may be missing."""
    foreign: tuple[tuple[str, int], ...] = ()
    """Backends of others on the user's route, with their weights."""
    is_going: bool = False
    in_steps: bool = False
    """Whether the pending cluster was begun in steps."""
    active: str = ""
    is_alone: bool = False
    """Whether one cluster is left, and serves."""
    unserved: frozenset[str] = frozenset()
    """Clusters with a ready head and without a Serve config."""
    plain: frozenset[str] | None = None
    """Clusters that clients of the plain Service reach; None without that Service."""
    deadline: float = 600.0
    """Seconds without progress after which an upgrade counts as stalled."""
    has_stalled: bool = False
    """Whether a stall was reported to the user."""
    unmet: tuple[str, ...] = ()
    """The gates and pauses of its policy that the upgrade had not passed at its weight when the write began."""
    is_failed: bool = False
    """Whether it is on record that a gate ended the upgrade."""
    ended_by: str = ""
    """`onFailure` where that is so of the spec as it is, and the user does not promote it nevertheless."""
    proven_bad: frozenset[str] = frozenset()
    """Clusters with failed requests, a refusal of the webhook or three bad values of Prometheus one after another."""
    unharmed: frozenset[str] = frozenset()
    """Clusters that carry all that they are sent, and have done so for a while; their dashboards may hang."""
    step: int = rules.WHOLE
    """The largest step that the user allowed lately."""
    promotes: bool = False
    beside: tuple[tuple[str, str], ...] = ()
    """Routes beside the weighted one, with the clusters that they send users' requests to."""
    twins_left: int | None = None
    """How many backends of others with the name of ours are on the user's route; None where it never had any."""
    is_awaited: tuple[str, int] | None = None
    """What must stand on the user's route, of somebody else."""


class Timers:
    """For how long something has held, while nothing excused it."""

    def __init__(self) -> None:
        self._held: dict[Key, float] = {}

    def lasts(self, key: Key, seconds: float, *, holds: bool, is_excused: bool = False) -> float:
        """Count a moment; return the seconds for which it has held."""
        if not holds:
            self._held.pop(key, None)
            return 0.0
        self._held[key] = self._held.get(key, 0.0) + (0.0 if is_excused else seconds)
        return self._held[key]

    def keep(self, law: str, subjects: set[str]) -> None:
        """Begin anew for all others."""
        for key in [each for each in self._held if each[0] == law and each[1] not in subjects]:
            del self._held[key]


def of_a_change(before: Moment, after: Moment, old: State, new: State) -> Iterator[tuple[str, str]]:
    """Yield the laws that a write breaks."""
    if after.is_going or new.is_going:
        return
    for law, rule in _RULES.items():
        is_blind = law == "surge" and new.surprised
        for text in (
            rule(before, after) if (law not in IN_STEPS or old.in_steps) and not is_blind else ()
        ):
            yield law, text
    yield from (("growth", text) for text in growth(before, after, new))
    yield from (("parity", text) for text in parity(before, after, new))
    yield from (("starved", text) for text in starved(old, new, sick=after.sick))
    yield from (("deleted", text) for text in deleted(before, after, old))
    yield from (("gated", text) for text in gated(before, after, old, new))
    yield from (("failed", text) for text in failed(before, after, old, new))
    yield from (("silence", text) for text in silence(before, after, old, new))
    yield from (("leap", text) for text in leaps(before, after, old, new))


def of_time(
    timers: Timers, state: State, seconds: float, *, is_excused: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield law, subject and text of what has lasted too long."""
    if state.is_going:
        return
    found = list(overloaded(state))
    for name, text, limit in found:
        if timers.lasts(("overload", name), seconds, holds=True, is_excused=is_excused) > limit:
            yield "overload", name, text
        bad = timers.lasts(("endless", "all"), seconds, holds=True, is_excused=is_excused)
        if bad > ENDLESS + state.deadline / 4 and not state.has_stalled:
            yield (
                "endless",
                name,
                f"{name} gets requests that it cannot carry, again and again, and no stall is reported",
            )
    timers.keep("overload", {name for name, _, _ in found})
    if state.is_awaited is not None and state.is_awaited not in state.foreign:
        yield (
            "foreign",
            state.is_awaited[0],
            f"{state.is_awaited[0]} of another RayService is not on the route any more",
        )
    if state.twins_left is not None and state.twins_left < TWINS:
        yield "foreign", "the route", "a backend of others with the name of ours was taken away"
    yield from _lasting(
        timers, "returned", dict(_returning(state)), RETURNS, seconds, is_excused=is_excused
    )
    yield from _lasting(
        timers, "starved", dict(_short(state)), SHEDS_REPLICAS, seconds, is_excused=is_excused
    )
    target = state.targets.get(state.active, 100)
    is_less = state.is_alone and target != rules.WHOLE
    if (
        timers.lasts(("alone", state.active), seconds, holds=is_less, is_excused=is_excused)
        > STABLE_AFTER
    ):
        yield "alone", state.active, f"{state.active} is alone and has a capacity of {target}"
    reached = sum(state.targets.get(name, 0) for name in state.plain or ())
    least = rules.WHOLE - state.allowance
    is_less = state.plain is not None and bool(state.plain) and reached < least
    if timers.lasts(("plain", "Service"), seconds, holds=is_less, is_excused=is_excused) > STARVES:
        yield (
            "plain",
            "Service",
            f"clients of the plain Service reach a capacity of {reached} in {sorted(state.plain or ())}",
        )


def _lasting(
    timers: Timers,
    law: str,
    found: dict[str, str],
    limit: float,
    seconds: float,
    *,
    is_excused: bool,
) -> Iterator[tuple[str, str, str]]:
    for name, text in found.items():
        if timers.lasts((law, name), seconds, holds=True, is_excused=is_excused) > limit:
            yield law, name, text
    timers.keep(law, set(found))


def of_side_routes(
    timers: Timers, state: State, seconds: float, *, is_excused: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield routes beside the weighted one that send users' requests to a cluster that serves none, while another one could."""
    found = {
        route: f"{route} sends requests to {cluster}, which cannot serve"
        for route, cluster in (() if state.is_going else state.beside)
        if (cluster in state.missing or state.carries.get(cluster, 0) == 0)
        and cluster not in state.silent - state.missing
        and any(carries for each, carries in state.carries.items() if each != cluster)
    }
    yield from _lasting(
        timers, "beside", found, SHEDS_REPLICAS + GROWS, seconds, is_excused=is_excused
    )


def of_serving(
    timers: Timers, state: State, seconds: float, *, is_excused: bool
) -> Iterator[tuple[str, str, str]]:
    """Yield clusters that are not given a Serve config, whatever is wrong with routes and Gateways."""
    for name in sorted(state.unserved if not state.is_going else ()):
        if (
            timers.lasts(("unserved", name), seconds, holds=True, is_excused=is_excused)
            > STABLE_AFTER
        ):
            yield "unserved", name, f"{name} has a ready head and gets no Serve config"
    timers.keep("unserved", set(state.unserved))


def overloaded(state: State) -> Iterator[tuple[str, str, float]]:
    """Yield clusters that get more than they can carry, where another one could carry some of it."""
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
    """Yield clusters of which the weight grows beyond what they were seen ready for, less the allowance in proportion.

    Exception: no other cluster is left that has a capacity, so all goes to the last cluster with one.
    A cluster that relieves another one, which gets more than it carries, is measured by its running
    replicas, whatever the status of its applications (ADR 41). So is an active cluster with a silent
    dashboard that takes traffic back from a version that failed a gate.
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
    """Yield autoscaled clusters of which the weight grows beyond that to which their replicas can follow, less the allowance.

    One replica of the other one may have next to nothing to do, since autoscalers round up: the smaller the part of the traffic that
    its replicas carry, the less they show about all of it.

    Exception: the other one does not carry what it gets, or its dashboard does not answer, so health moves traffic, and there is
    nothing to hold the replicas against.
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
            (new.follows.get(name, rules.WHOLE) + 1)
            * rules.WHOLE
            // max(1, rules.WHOLE - _rounded(rules.WHOLE - had))
        )
        is_more = weight > had and weight * (100 - new.allowance) // 100 > follows
        if is_more and others and are_whole and not new.unheard.intersection(others):
            yield f"{name} gets {weight} percent and its replicas can follow to {follows}"


def _rounded(weight: int) -> int:
    """Return the percent by which replicas that carry a weight may be more than it takes."""
    return min(rules.WHOLE, math.ceil(SLACK * rules.WHOLE / weight)) if weight else 0


def starved(old: State, new: State, *, sick: frozenset[str]) -> Iterator[str]:
    """Yield clusters that a write leaves with less capacity than their share, less the allowance in proportion.

    A PUT that Ray applies long after the call of its sender timed out is no process's write, and
    a move of traffic that was decided before it could not know of it. The law of time bounds how
    long both hold.
    """
    for name, text in _short(new):
        shrinks = new.targets[name] < old.targets.get(name, new.targets[name])
        grows = (new.route or {}).get(name, 0) > (old.route or {}).get(name, 0)
        grows &= name not in new.surprised
        is_excused = name in sick and new.carries.get(name, 0) == 0
        if (shrinks or grows) and not is_excused:
            yield text


def _short(state: State) -> Iterator[tuple[str, str]]:
    """Yield clusters with less capacity than their share, less the allowance in proportion, where another one could carry some."""
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
    """Yield what moves on although the upgrade has not passed its gates or its pause: traffic, and with all of it the capacity of the way back.

    Exception: the active cluster is sick or does not exist, so that the traffic goes where it is served (ADR 41).
    """
    if new.unmet and (text := _forward(before, after, old, new)) is not None:
        yield f"{text}, without {', '.join(new.unmet)}"


def failed(before: Moment, after: Moment, old: State, new: State) -> Iterator[str]:
    """Yield what moves on after a gate ended the upgrade to this spec; the active cluster keeps the capacity for the traffic that returns.

    Exception: as above.
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
    """Yield upgrades that a gate ended with nothing against the new cluster: what is not known is no failure."""
    if new.is_failed and not old.is_failed and not new.proven_bad & {before.pending, after.pending}:
        yield f"{after.pending or before.pending} failed a gate that nothing was found for"


def leaps(before: Moment, after: Moment, old: State, new: State) -> Iterator[str]:
    """Yield traffic that leaves a cluster which carries it, by more than the steps that the user asked for.

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
    """Return what moves to the pending cluster; None for nothing, or where the active one cannot serve."""
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
    is_abandoned = was == now == rules.WHOLE and has < old.targets_before.get(before.active, had)
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
    """Yield clusters that keep traffic after a gate ended the upgrade to them, where the active one has room for it."""
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


_RULES: Final[dict[str, Callable[[Moment, Moment], Iterator[str]]]] = {
    "sum": lambda _, after: rules.sums(after),
    "surge": rules.surge,
    "steps": rules.steps,
    "edited": rules.edited,
    "kept": rules.kept,
    "created": rules.created,
    "promoted": rules.promoted,
    "switched": rules.switched,
}
