"""The stored history of upgrades, and the published and observed changes that are shown."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from common.api import ray_service
from common.api.opaque import Json
from common.api.ray_service import RayService
from common.bus.cloud_events import Event
from common.bus.nats import StoredMessage
from common.upgrade import events as upgrade_events
from raybus_dashboard import history as histories
from raybus_dashboard.history import KEPT, EventLog, History
from support.builders.example_upgrade import an_example_upgrade
from support.builders.snapshots import BLUE, GREEN, NOW, STEPS, UPGRADING, a_service, a_side
from support.upgrade_events import START

KEY = "default/greeter"


def _stored(event: Event, sequence: int = 1) -> StoredMessage:
    wire = upgrade_events.encode(event)
    return StoredMessage(subject=wire.subject, sequence=sequence, headers={}, payload=wire.payload)


def _a_log(*events: Event) -> tuple[EventLog, list[str]]:
    called: list[str] = []
    log = EventLog(called.append, lambda: called.append("caught up"))
    for each in events:
        assert log.receive(_stored(each))
    return log, called


def _a_history(*events: Event) -> tuple[History, list[str]]:
    log, called = _a_log(*events)
    return History(log), called


def _in_upgrade(weight: int, **fields: Any) -> RayService:
    active, pending = (
        a_side(BLUE, capacity=100, weight=100 - weight),
        a_side(GREEN, capacity=weight, weight=weight),
    )
    return ray_service.decode(
        a_service(UPGRADING, active=active, pending=pending, upgradeStrategy=STEPS, **fields)
    )


def _see(history: History, key: str, service: RayService, *, now: datetime) -> None:
    history.record(key, histories.derive_progress(service), now=now)


def _alone(side: Json) -> RayService:
    return ray_service.decode(a_service(active=side, upgradeStrategy=STEPS))


def test_an_event_that_comes_twice_is_kept_once() -> None:
    history, called = _a_history(*an_example_upgrade(), *an_example_upgrade())
    (timeline,) = history.list_timelines(KEY, has_all_events=True)
    assert len(timeline.lines) == len(an_example_upgrade()) == len(called)
    assert set(called) == {KEY}


def test_what_is_no_event_is_passed_over() -> None:
    log, called = _a_log()
    assert log.receive(StoredMessage(subject="s", sequence=1, headers={}, payload=b"{"))
    assert log.finish_stored()
    assert called == ["caught up"]


def test_the_events_of_all_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_TOTAL_EVENTS", 3)
    first = an_example_upgrade()[0]
    log, _ = _a_log()
    for number, name in enumerate(("a", "a", "b", "c")):
        log.receive(_stored(replace(first, id=str(number), name=name)))
    assert [name for name in ("a", "b", "c") if log.list_upgrades(f"default/{name}")] == ["b", "c"]


def test_the_service_without_an_event_for_the_longest_time_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(histories, "MAX_SERVICES", 2)
    first = an_example_upgrade()[0]
    log, _ = _a_log()
    for number, name in enumerate(("a", "b", "a", "c")):
        log.receive(_stored(replace(first, id=str(number), name=name)))
    assert [name for name in ("a", "b", "c") if log.list_upgrades(f"default/{name}")] == ["a", "c"]


def test_the_newest_upgrades_are_kept_and_shown_newest_first() -> None:
    events = [
        replace(
            an_example_upgrade()[0],
            id=str(number),
            time=START + timedelta(hours=number),
            data=replace(
                an_example_upgrade()[0].data,
                upgrade=upgrade_events.upgrade("uid", f"c{number}", f"c{number + 1}"),
            ),
        )
        for number in range(KEPT + 2)
    ]
    history, _ = _a_history(*events)
    assert [each.old for each in history.list_timelines(KEY, has_all_events=True)] == [
        "c6",
        "c5",
        "c4",
        "c3",
        "c2",
    ]


def test_observed_state_is_shown_where_no_event_was_published() -> None:
    history, _ = _a_history()
    for seconds, weight in ((0, 0), (2, 0), (4, 10)):
        _see(history, "default/demo", _in_upgrade(weight), now=NOW + timedelta(seconds=seconds))
    _see(
        history,
        "default/demo",
        _alone(a_side(GREEN, capacity=100, weight=100)),
        now=NOW + timedelta(seconds=9),
    )
    _see(
        history,
        "default/demo",
        _alone(a_side(GREEN, capacity=100, weight=100)),
        now=NOW + timedelta(seconds=10),
    )
    (seen,) = history.list_timelines("default/demo", has_all_events=False)
    assert [(each.old.traffic, each.new.traffic) for each in seen.points] == [
        (100, 0),
        (90, 10),
        (0, 100),
    ]
    assert (seen.ended, seen.outcome) == (NOW + timedelta(seconds=9), "Promoted")


def _seen(history: History, *keys: str) -> list[str]:
    return [key for key in keys if history.list_timelines(key, has_all_events=False)]


def test_the_service_without_a_sample_for_the_longest_time_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(histories, "MAX_SERVICES", 2)
    history, _ = _a_history()
    for weight, key in enumerate(("a", "b", "a", "c")):
        _see(history, key, _in_upgrade(weight), now=NOW)
    assert _seen(history, "a", "b", "c") == ["a", "c"]


def test_the_samples_of_all_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(histories, "MAX_SAMPLES", 2)
    monkeypatch.setattr(histories, "MAX_TOTAL_SAMPLES", 3)
    history, _ = _a_history()
    for weight, key in enumerate(("a", "a", "a", "b", "c")):
        _see(history, key, _in_upgrade(weight), now=NOW)
    assert _seen(history, "a", "b", "c") == ["b", "c"]
    _see(history, "b", _in_upgrade(50), now=NOW)
    assert _seen(history, "b", "c") == ["b", "c"]


def test_an_upgrade_that_went_back_is_seen_to_have_done_so() -> None:
    history, _ = _a_history()
    _see(history, "default/demo", _in_upgrade(30), now=NOW)
    _see(
        history,
        "default/demo",
        _alone(a_side(BLUE, capacity=100, weight=100)),
        now=NOW + timedelta(seconds=9),
    )
    assert history.list_timelines("default/demo", has_all_events=False)[0].outcome == "RolledBack"


def test_a_service_at_rest_has_no_upgrade() -> None:
    history, _ = _a_history()
    _see(history, "default/demo", _alone(a_side(BLUE)), now=NOW)
    assert history.list_timelines("default/demo", has_all_events=False) == []


def test_events_win_over_what_was_seen_as_soon_as_all_have_arrived() -> None:
    events = an_example_upgrade()[:4]
    upgrade = upgrade_events.upgrade("uid", BLUE, GREEN)
    published = [
        replace(each, name="demo", data=replace(each.data, upgrade=upgrade)) for each in events
    ]
    history, _ = _a_history(*published)
    _see(history, "default/demo", _in_upgrade(60), now=NOW)
    (with_bus,) = history.list_timelines("default/demo", has_all_events=True)
    (without,) = history.list_timelines("default/demo", has_all_events=False)
    assert (with_bus.points[-1].new.traffic, without.points[-1].new.traffic) == (5, 60)
