"""Events: which are written, which are not repeated, and which may be lost."""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec.structs import replace

from common import errors
from common.api.meta import ObjectMeta
from common.kube.resources import RAY_CLUSTER
from common.runtime import events
from common.runtime.actions import KubeEvent
from common.runtime.events import EventRecorder
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube
from support.memory import measured

META = ObjectMeta(namespace="default", name="demo", uid="u1", resource_version="7")
CREATED = KubeEvent(
    type="Normal",
    reason="CreatedHeadPod",
    action="Create",
    note="Created head Pod default/demo-head-x",
)


def a_recorder(kube: FakeKube, clock: FakeClock) -> EventRecorder:
    return EventRecorder(
        kube,
        RAY_CLUSTER,
        controller="raycluster-controller",
        instance="raycluster-controller-a",
        clock=clock,
    )


async def test_an_event_names_its_object_and_controller() -> None:
    kube = FakeKube()
    await a_recorder(kube, FakeClock()).record(META, CREATED)
    body = kube.requests[0].body
    assert body["regarding"] == {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "namespace": "default",
        "name": "demo",
        "uid": "u1",
        "resourceVersion": "7",
    }
    assert (body["type"], body["reason"], body["action"]) == ("Normal", "CreatedHeadPod", "Create")
    assert body["reportingController"] == "raycluster-controller"
    assert body["metadata"]["name"].startswith("demo.")


@pytest.mark.parametrize("name", ["x" * 253, "x" * 235 + "-.-" + "y" * 15])
async def test_an_event_has_a_name_however_long_that_of_its_object_is(name: str) -> None:
    kube = FakeKube()
    await a_recorder(kube, FakeClock()).record(replace(META, name=name), CREATED)
    found = kube.requests[0].body["metadata"]["name"]
    assert len(found) <= 253
    assert re.fullmatch(r"x+\.[0-9a-f]+", found)
    assert kube.requests[0].body["regarding"]["name"] == name


async def test_repeats_are_counted_and_seldom_written_until_there_is_silence() -> None:
    kube, clock = FakeKube(), FakeClock()
    recorder = a_recorder(kube, clock)
    written: list[tuple[str, object]] = []
    for seconds in (0, 10, 10, 300, 60, 361):
        clock.advance(seconds)
        kube.requests.clear()
        await recorder.record(META, CREATED)
        written += [(each.verb, each.body.get("series", {}).get("count")) for each in kube.requests]
    assert written == [("create", None), ("patch", 2), ("patch", 5), ("create", None)]


async def test_many_at_once_are_one_event_with_their_number() -> None:
    kube = FakeKube()
    await a_recorder(kube, FakeClock()).record(META, CREATED, count=3)
    (request,) = kube.requests
    assert request.body["series"] == {"count": 3, "lastObservedTime": request.body["eventTime"]}


async def test_an_event_that_is_gone_by_now_is_not_missed() -> None:
    kube, clock = FakeKube(), FakeClock()
    recorder = a_recorder(kube, clock)
    await recorder.record(META, CREATED)
    kube.objects.clear()
    await recorder.record(META, CREATED)
    assert [each.verb for each in kube.requests] == ["create", "patch"]


async def test_a_long_note_is_cut_to_what_the_api_server_takes() -> None:
    kube = FakeKube()
    long = KubeEvent(type="Warning", reason="X", action="Validate", note="ü" * 2000)
    await a_recorder(kube, FakeClock()).record(META, long)
    assert len(kube.requests[0].body["note"].encode()) <= 1024


async def test_of_long_notes_no_more_is_remembered_than_is_written() -> None:
    recorder = a_recorder(FakeKube(), FakeClock())
    with measured() as kept:
        for number in range(50):
            await recorder.record(META, replace(CREATED, note=f"{number}{'x' * 1_000_000}"))
        assert kept() < 1_000_000


async def test_of_long_notes_no_more_waits_than_is_written() -> None:
    async with writing(FakeKube(), lambda: True) as recorder:
        with measured() as kept:
            for number in range(50):
                await recorder.record(META, replace(CREATED, note=f"{number}{'x' * 1_000_000}"))
            assert kept() < 1_000_000


async def test_a_lost_event_does_not_fail_the_reconcile() -> None:
    kube = FakeKube()
    kube.faults.append(lambda _request: errors.Forbidden("no"))
    await a_recorder(kube, FakeClock()).record(META, CREATED)
    assert len(kube.requests) == 1


@asynccontextmanager
async def writing(kube: FakeKube, is_busy: Callable[[], bool]) -> AsyncGenerator[EventRecorder]:
    """Run a recorder's writer for the duration of a block."""
    recorder = a_recorder(kube, FakeClock())
    async with asyncio.TaskGroup() as group:
        writer = group.create_task(recorder.run(is_busy))
        await asyncio.sleep(0)
        yield recorder
        writer.cancel()


def other(number: int) -> KubeEvent:
    return replace(CREATED, note=f"Created head Pod default/demo-{number}")


@pytest.mark.looptime
async def test_events_are_written_in_their_order_once_no_reconcile_waits() -> None:
    kube, busy = FakeKube(), [True]
    async with writing(kube, lambda: bool(busy)) as recorder:
        for number in range(3):
            await recorder.record(META, other(number))
        await asyncio.sleep(1.0)
        assert kube.requests == []
        busy.clear()
        await asyncio.sleep(0.1)
        assert [each.body["note"] for each in kube.requests] == [
            other(number).note for number in range(3)
        ]


@pytest.mark.looptime
async def test_an_event_waits_for_reconciles_for_a_while_only() -> None:
    kube = FakeKube()
    async with writing(kube, lambda: True) as recorder:
        await recorder.record(META, CREATED)
        await asyncio.sleep(events.MAX_WAIT - 0.2)
        assert kube.requests == []
        await asyncio.sleep(0.4)
        assert len(kube.requests) == 1


@pytest.mark.looptime
async def test_with_too_many_events_that_wait_a_reconcile_writes_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "MAX_QUEUED_EVENTS", 2)
    kube = FakeKube()
    async with writing(kube, lambda: True) as recorder:
        for number in range(3):
            await recorder.record(META, other(number))
        assert [each.body["note"] for each in kube.requests] == [other(2).note]


@pytest.mark.looptime
async def test_a_repeat_that_is_only_counted_takes_no_place_among_those_that_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(events, "MAX_QUEUED_EVENTS", 3)
    kube = FakeKube()
    async with writing(kube, lambda: True) as recorder:
        for _ in range(100):
            await recorder.record(META, CREATED)
        await recorder.record(META, other(1))
        assert kube.requests == [], (
            "one event, one repeat that is written, and the other event wait"
        )
        await asyncio.sleep(events.MAX_WAIT + 0.1)
        assert [each.verb for each in kube.requests] == ["create", "patch", "create"]


@pytest.mark.looptime
async def test_an_event_that_fails_by_our_own_fault_does_not_stop_those_after_it() -> None:
    class Broken(FakeKube):
        async def create(self, *args: Any, **named: Any) -> bytes:
            if args[2]["note"] == other(1).note:
                raise ValueError("it cannot be encoded")
            return await super().create(*args, **named)

    kube = Broken()
    async with writing(kube, lambda: False) as recorder:
        await recorder.record(META, other(1))
        await recorder.record(META, CREATED)
        await asyncio.sleep(0.1)
        assert [each.body["note"] for each in kube.requests] == [CREATED.note]
