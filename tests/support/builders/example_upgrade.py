"""The events of whole upgrades, in an order that can happen, for tests of readers; their fields are in the examples."""

from datetime import timedelta

import msgspec

from common.bus import cloud_events
from common.bus.cloud_events import Event
from common.upgrade import events as ue
from common.upgrade.events import UpgradeEventData
from support.upgrade_events import EXAMPLES, START, UPGRADE, a_split

COMPLETED = next(
    number for number, (_, data) in enumerate(EXAMPLES, start=1) if isinstance(data, ue.Completed)
)


def an_example_upgrade(name: str = "greeter", *, namespace: str = "default") -> list[Event]:
    """Return an upgrade in steps, with a pause and a stall, from its start to its receipt."""
    return _published(namespace, name, UPGRADE.new, list(EXAMPLES[:COMPLETED]))


def a_retreat(name: str = "greeter", *, namespace: str = "default") -> list[Event]:
    """Return the end of an upgrade that came to nothing, and of one that never became ready."""
    before, after = a_split((100, 95), (20, 5)), a_split((100, 100), (20, 0))
    back = ue.TrafficShifted(
        upgrade=UPGRADE, direction=ue.Direction.BACK, before=before, after=after
    )
    aborted, *others = EXAMPLES[COMPLETED:]
    return _published(namespace, name, "demo-other", [aborted, (105, back), *others])


def _published(
    namespace: str, name: str, new: str, reported: list[tuple[float, UpgradeEventData]]
) -> list[Event]:
    """Return examples for another RayService."""
    upgrade = ue.upgrade(f"uid of {namespace}/{name}", UPGRADE.old, new)
    return [
        Event(
            namespace=namespace,
            name=name,
            id=cloud_events.identity(data, number),
            time=START + timedelta(seconds=seconds),
            data=data,
        )
        for number, (seconds, each) in enumerate(reported)
        for data in [msgspec.structs.replace(each, upgrade=upgrade)]
    ]
