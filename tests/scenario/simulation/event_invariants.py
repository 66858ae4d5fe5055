"""The invariants of the published upgrade events, checked against all that happened at the API server.

Repetitions are legal as long as they have the same content; what counts is what a reader has that skips the ids that it knows.
"""

from collections.abc import Iterator
from typing import Any, cast

import msgspec

from common.api import ray_service
from common.api.gateway import HttpRoute
from common.kube.resources import HTTP_ROUTE, RAY_SERVICE
from common.upgrade import traffic_record
from common.upgrade.events import CapacityChanged, CloudEvent, Data, TrafficShifted
from common.upgrade.traffic_record import WHOLE, ClusterTraffic
from scenario.simulation.sim import Change, Sim
from support import upgrade_laws
from support.upgrade_laws import AT_FIRST, Numbers

Pair = tuple[str, str]
TIMES = {"time", "started", "finished", "seconds", "traceparent"}


def broken(sim: Sim) -> list[str]:
    """Return what does not hold."""
    published: dict[Pair, list[CloudEvent[Data]]] = {}
    for each in sim.events.unique():
        upgrade = each.event.data.upgrade
        published.setdefault((upgrade.old, upgrade.new), []).append(each.event)
    happened = dict(_happened(sim.changes))
    found = [*repetitions(sim), *_names(sim, published, happened)]
    for pair, events in published.items():
        found += [f"{pair}: {each}" for each in upgrade_laws.broken(events)]
        found += [f"{pair}: {each}" for each in _steps(events, happened.get(pair, []))]
    return found


class _Past:
    """One upgrade as it happened: every split of the record, but what nobody could see.

    A step that the status did not show yet is overtaken when somebody deletes the route, or when a cluster is lost: then the
    other one gets everything at once, and nobody waits for anybody.
    """

    def __init__(self) -> None:
        self.splits: list[Numbers] = [AT_FIRST]
        self._shown = 0

    def wrote(self, split: Numbers) -> None:
        if split != self.splits[-1]:
            self.splits.append(split)

    def showed(self, split: Numbers) -> None:
        later = [
            index
            for index, each in enumerate(self.splits)
            if each == split and index >= self._shown
        ]
        self._shown = later[0] if later else self._shown

    def overtook(self) -> None:
        del self.splits[self._shown + 1 :]


def _happened(changes: list[Change]) -> Iterator[tuple[Pair, list[Numbers]]]:
    """Yield every upgrade that the status ever named, with each split that the record had during it."""
    found: dict[Pair, _Past] = {}
    now: Pair = ("", "")
    for change in changes:
        if change.kind == RAY_SERVICE.kind and not change.is_gone:
            service = ray_service.decode(change.body)
            status = service.status
            now = (
                status.active_service_status.ray_cluster_name,
                status.pending_service_status.ray_cluster_name,
            )
            if all(now):
                shown = _numbers(traffic_record.of_status(service).clusters, now)
                found.setdefault(now, _Past()).showed(shown)
        if change.kind == HTTP_ROUTE.kind and all(now):
            record = traffic_record.of_route(msgspec.json.decode(change.body, type=HttpRoute))
            if change.is_gone or len(record.clusters) == 1:
                found[now].overtook()
            elif set(record.clusters) == set(now):
                found[now].wrote(_numbers(record.clusters, now))
    yield from ((pair, past.splits) for pair, past in found.items())


def _numbers(shares: dict[str, ClusterTraffic], pair: Pair) -> Numbers:
    new = shares.get(pair[1], ClusterTraffic(capacity=0, weight=0))
    old = shares.get(pair[0], ClusterTraffic(capacity=WHOLE, weight=WHOLE - new.weight))
    return ((old.capacity, old.weight), (new.capacity, new.weight))


def repetitions(sim: Sim) -> Iterator[str]:
    """Yield what was published twice and was not the same, except times."""
    first: dict[str, Any] = {}
    for each in sim.events.sent:
        text = _timeless(msgspec.json.decode(each.payload))
        if first.setdefault(each.event.id, text) != text:
            yield f"{each.event.id} was {first[each.event.id]} and then {text}"


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        held = cast("dict[str, Any]", value)
        return {key: _timeless(each) for key, each in held.items() if key not in TIMES}
    return value


def _names(
    sim: Sim, published: dict[Pair, list[CloudEvent[Data]]], happened: dict[Pair, list[Numbers]]
) -> Iterator[str]:
    """Every upgrade of the status is published, and no other."""
    upgrades = {pair for pair in published if pair[0]}
    if upgrades != set(happened):
        yield f"there were the upgrades {sorted(happened)}, and published are {sorted(upgrades)}"


def _steps(events: list[CloudEvent[Data]], happened: list[Numbers]) -> Iterator[str]:
    """Every split of the record is published, in order."""
    steps = [
        each.data for each in events if isinstance(each.data, CapacityChanged | TrafficShifted)
    ]
    published = [AT_FIRST, *(upgrade_laws.numbers(each.after) for each in steps)]
    rest = iter(published)
    missing = [each for each in happened if not any(each == one for one in rest)]
    if missing:
        yield f"not published, or out of order: {missing} of {happened}; published: {published}"
