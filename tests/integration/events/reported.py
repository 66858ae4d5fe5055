"""The upgrades of a run, the events that an external consumer read, and whether they are complete."""

from collections.abc import Iterator

import msgspec

from common.bus.cloud_events import CloudEvent
from common.upgrade import events as upgrade_events
from common.upgrade.events import UpgradeEventData
from support.laws import event_order


class Upgraded(msgspec.Struct, frozen=True, kw_only=True):
    """An upgrade that has ended."""

    service: str
    old: str
    new: str


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run."""

    upgrades: list[Upgraded]
    """The upgrades in the order in which they ended."""
    killed: dict[str, int]
    events: list[str]
    """The events as the external consumer read them, repetitions included."""
    seconds: int

    @property
    def unique(self) -> list[CloudEvent[UpgradeEventData]]:
        """Return the events without repetitions, in the order of the stream."""
        read = [upgrade_events.decode(each.encode()) for each in self.events]
        first: dict[str, CloudEvent[UpgradeEventData]] = {}
        for each in read:
            first.setdefault(each.id, each)
        return list(first.values())

    @property
    def missing(self) -> list[str]:
        """Yield the events that external consumers did not receive, or received wrongly."""
        return list(_missing(self))

    def __str__(self) -> str:
        deaths = ", ".join(f"{name} {count}" for name, count in sorted(self.killed.items()))
        return (
            f"{len(self.upgrades)} upgrades in {self.seconds} s, {sum(self.killed.values())} deaths ({deaths}); "
            f"{len(self.unique)} events, {len(self.events) - len(self.unique)} repetitions stored, "
            f"{len(self.missing)} missing or out of order"
        )


def _missing(run: Run) -> Iterator[str]:
    reported: dict[tuple[str, str, str], list[CloudEvent[UpgradeEventData]]] = {}
    for each in run.unique:
        reported.setdefault(
            (each.subject, each.data.upgrade.old, each.data.upgrade.new), []
        ).append(each)
    for one in run.upgrades:
        events = reported.pop((one.service, one.old, one.new), [])
        if not events:
            yield f"nothing of {one}"
            continue
        yield from (f"{one}: {each}" for each in event_order.broken(events))
        if event_order.kinds(events)[-3:] != ["promoted", "drain-started", "completed"]:
            yield f"{one}: ends with {event_order.kinds(events)}"
        steps = event_order.splits(events)
        if steps and steps[-1] != event_order.AT_LAST:
            yield f"{one}: the last step leads to {steps[-1]}"
    yield from (f"published of an upgrade that was none: {each}" for each in reported)
    for service in {each.service for each in run.upgrades}:
        begun = [
            each.data.upgrade.new
            for each in run.unique
            if each.subject == service and upgrade_events.kind_of(each.type) == "started"
        ]
        happened = [each.new for each in run.upgrades if each.service == service]
        if begun != happened:
            yield f"{service}: published were {begun} and there were {happened}"
