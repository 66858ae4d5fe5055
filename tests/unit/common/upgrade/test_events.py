"""Upgrade events: newer kinds, foreign messages, and ids."""

from datetime import UTC, datetime

import msgspec
import pytest

from common.bus import cloud_events
from common.upgrade import events as upgrade_events
from common.upgrade.events import UpgradeEventData
from support import upgrade_events as shown


def test_of_a_newer_kind_the_upgrade_is_read() -> None:
    event = shown.an_event(shown.EXAMPLES[0][1])
    payload = upgrade_events.encode(event).payload.replace(
        b"upgrade.started.v1", b"upgrade.celebrated.v1"
    )
    assert upgrade_events.decode(payload).data == UpgradeEventData(upgrade=shown.UPGRADE)


@pytest.mark.parametrize(
    "payload", [b"", b"{}", b'{"type":"io.raybus.upgrade.promoted.v1"}', b"\xff"]
)
def test_what_is_no_event_is_refused(payload: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        upgrade_events.decode(payload)


def test_ids_differ_by_upgrade_kind_and_fact() -> None:
    when = datetime(2026, 1, 1, tzinfo=UTC)
    upgrades = [
        upgrade_events.upgrade(*each)
        for each in (("u", "a", "b"), ("u", "b", "a"), ("v", "a", "b"))
    ]
    kinds = (upgrade_events.Promoted, upgrade_events.Resumed)
    ids = [
        cloud_events.identity(kind(upgrade=each), *more)
        for each in upgrades
        for kind in kinds
        for more in ((), (when,))
    ]
    assert len(set(ids)) == len(ids)
    assert cloud_events.identity(kinds[0](upgrade=upgrades[0]), when) == ids[1]
