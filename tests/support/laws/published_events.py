"""Laws of the published upgrade events, checked against all changes at the API server.

Repetitions are legal as long as their content is equal; the laws apply to the events that remain
when repeated ids are skipped.
"""

from collections.abc import Iterator
from typing import Any, Final, cast

import msgspec

from common.api import ray_service
from common.api.gateway import HttpRoute
from common.bus.cloud_events import CloudEvent
from common.kube.resources import HTTP_ROUTE, RAY_SERVICE
from common.upgrade import traffic_record
from common.upgrade.events import CapacityChanged, TrafficShifted, UpgradeEventData
from common.upgrade.traffic_record import WHOLE, ClusterTraffic
from support.laws import Finding, Law, event_order, find_broken
from support.laws.event_order import AT_FIRST, Numbers
from support.simulator.services import Change
from support.simulator.simulator import Simulator

Pair = tuple[str, str]
TIMES = {"time", "started", "finished", "seconds", "traceparent"}


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """The events published in a run, with the changes at the API server."""

    sim: Simulator
    events: dict[Pair, list[CloudEvent[UpgradeEventData]]]
    happened: dict[Pair, list[Numbers]]


def broken(sim: Simulator) -> list[str]:
    """Return the violations of the laws."""
    events: dict[Pair, list[CloudEvent[UpgradeEventData]]] = {}
    for each in sim.events.unique():
        upgrade = each.event.data.upgrade
        events.setdefault((upgrade.old, upgrade.new), []).append(each.event)
    published = Published(sim=sim, events=events, happened=dict(_happened(sim.bus.changes)))
    return [f"{each.subject}: {each.text}" for each in find_broken(LAWS, published)]


class _Past:
    """One upgrade as it happened at the API server, with every split of the record except those
    that no service could see.

    A step that the status did not show yet is skipped when somebody deletes the route or a cluster
    is lost: then the other cluster gets all traffic at once without waiting.
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
    """Yield every upgrade that the status ever named, with each split that the record had during
    that upgrade.
    """
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


def repetitions(sim: Simulator) -> Iterator[str]:
    """Yield the events that were published twice with different content, apart from times."""
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
    sim: Simulator,
    published: dict[Pair, list[CloudEvent[UpgradeEventData]]],
    happened: dict[Pair, list[Numbers]],
) -> Iterator[str]:
    """Yield upgrades of the status that were not published, and published ones that the status
    never named.
    """
    upgrades = {pair for pair in published if pair[0]}
    if upgrades != set(happened):
        yield f"there were the upgrades {sorted(happened)}, and published are {sorted(upgrades)}"


def _steps(events: list[CloudEvent[UpgradeEventData]], happened: list[Numbers]) -> Iterator[str]:
    """Yield splits of the record that were not published in order."""
    steps = [
        each.data for each in events if isinstance(each.data, CapacityChanged | TrafficShifted)
    ]
    published = [AT_FIRST, *(event_order.numbers(each.after) for each in steps)]
    rest = iter(published)
    missing = [each for each in happened if not any(each == one for one in rest)]
    if missing:
        yield f"not published, or out of order: {missing} of {happened}; published: {published}"


def _sequences(published: Published) -> Iterator[Finding]:
    for pair, events in published.events.items():
        yield from ((str(pair), text) for text in event_order.broken(events))


def _all_steps(published: Published) -> Iterator[Finding]:
    for pair, events in published.events.items():
        happened = published.happened.get(pair, [])
        yield from ((str(pair), text) for text in _steps(events, happened))


LAWS: Final[tuple[Law[Published], ...]] = (
    Law(
        name="repetition",
        source="events/README.md",
        reads="all publishes of one event",
        check=lambda published: (("events", text) for text in repetitions(published.sim)),
    ),
    Law(
        name="upgrades",
        source="events/README.md",
        reads="the upgrades that the status named, and those that were published",
        check=lambda published: (
            ("events", text) for text in _names(published.sim, published.events, published.happened)
        ),
    ),
    Law(
        name="sequence",
        source="events/README.md",
        reads="the events of each upgrade",
        check=_sequences,
    ),
    Law(
        name="steps",
        source="events/README.md",
        reads="each split of the traffic record, and the published ones",
        check=_all_steps,
    ),
)
"""Laws of all upgrade events of a run."""
