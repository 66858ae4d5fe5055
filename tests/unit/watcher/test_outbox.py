"""The stream contains the put messages in order, and never one that a newer writer has overwritten."""

import asyncio
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from common import errors
from common.bus import subjects
from common.bus.messages import ObjectState, Quarantined, Synced, Tombstone
from common.bus.subjects import TreeKind, TreeLocation
from support.fakes.stream import FakeStateStream
from support.tables import cases
from support.waiting import eventually
from watcher import outbox as outboxes
from watcher.outbox import Outbox
from watcher.ports import StreamEntry

PLACE = TreeLocation(1, TreeKind.CLUSTER)
SUBJECT = subjects.build_state_subject(PLACE, "Pod", "ns", "one")


def a_pod(version: int, *, form: str = "1", uid: str = "u") -> ObjectState:
    return ObjectState(
        kind="Pod", namespace="ns", name="one", uid=uid, version=str(version), form=form, body=b"{}"
    )


def gone(version: int) -> Tombstone:
    return Tombstone(kind="Pod", namespace="ns", name="one", version=str(version))


@asynccontextmanager
async def working(
    stream: FakeStateStream, *, is_open: bool = True
) -> AsyncGenerator[tuple[Outbox, list[str]]]:
    reasons: list[str] = []
    outbox = Outbox(stream, await stream.load(), reasons.append, is_open=is_open)
    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(outbox.work()) for _ in range(3)]
        yield outbox, reasons
        ends = len(reasons)
        for worker in workers:
            worker.cancel()
    assert set(reasons[ends:]) <= {"a worker of the outbox ended"}
    del reasons[ends:]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outboxes, "PAUSE_SECONDS", 0.0)


async def test_what_was_put_is_stored_when_flushed() -> None:
    stream = FakeStateStream()
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_pod(1))
        await outbox.flush()

        assert stream.messages[SUBJECT] == a_pod(1)
        assert len(outbox) == 0


async def test_only_the_newest_state_counts() -> None:
    stream = FakeStateStream()
    async with working(stream) as (outbox, _):
        for version in range(1, 50):
            outbox.put(SUBJECT, a_pod(version))
        await outbox.flush()

    assert stream.stored == [(SUBJECT, a_pod(49))]


async def test_what_the_stream_holds_is_not_published_again() -> None:
    stream = FakeStateStream()
    stream.put(SUBJECT, a_pod(1), 7)
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_pod(1))
        outbox.put(subjects.build_state_subject(PLACE, "Pod", "ns", "never"), gone(1))
        await outbox.flush()

    assert len(stream.stored) == 1


@pytest.mark.parametrize("again", [a_pod(1, form="2"), a_pod(1, uid="other"), a_pod(2), gone(1)])
async def test_another_form_or_another_object_is_published(again: ObjectState | Tombstone) -> None:
    stream = FakeStateStream()
    stream.put(SUBJECT, a_pod(1), 7)
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, again)
        await outbox.flush()

    assert stream.messages[SUBJECT] == again


async def test_a_failure_is_tried_again() -> None:
    stream = FakeStateStream()
    stream.failures = [errors.Unavailable("down"), errors.Unavailable("down")]
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_pod(1))
        await outbox.flush()

    assert stream.messages[SUBJECT] == a_pod(1)


async def test_a_newer_state_of_another_writer_stays() -> None:
    stream = FakeStateStream()
    async with working(stream) as (outbox, _):
        stream.put(SUBJECT, a_pod(9), 3)
        outbox.put(SUBJECT, a_pod(8))
        await outbox.flush()

    assert stream.messages[SUBJECT] == a_pod(9)


async def test_an_older_state_of_another_writer_is_replaced() -> None:
    stream = FakeStateStream()
    async with working(stream) as (outbox, _):
        stream.put(SUBJECT, a_pod(7), 3)
        outbox.put(SUBJECT, a_pod(8))
        await outbox.flush()

    assert stream.messages[SUBJECT] == a_pod(8)


async def test_a_subject_that_lost_its_message_ends_the_session() -> None:
    stream = FakeStateStream()
    stream.put(SUBJECT, a_pod(1), 7)
    async with working(stream) as (outbox, reasons):
        stream.entries.clear()
        outbox.put(SUBJECT, a_pod(2))
        await eventually(lambda: reasons, what="the end of the session")

    assert reasons == [f"the stream lost {SUBJECT}"]


async def test_a_publish_without_an_answer_is_repeated_before_what_is_newer() -> None:
    """The message may have been stored; only the server knows, and only after its answer is it
    known which messages are ours.
    """
    stream = FakeStateStream()
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_pod(1))
        stream.answers_lost = 1
        await eventually(lambda: stream.answers_lost == 0, what="the lost answer")
        outbox.put(SUBJECT, a_pod(2))
        await outbox.flush()

        assert stream.stored == [(SUBJECT, a_pod(1)), (SUBJECT, a_pod(2))]
        assert outbox.stored_count == len(stream.stored)


async def test_a_marker_without_an_answer_is_counted_once_it_is_met() -> None:
    stream, marker = FakeStateStream(), Synced(epoch="ours", version=8)
    stream.answers_lost = 1
    async with working(stream) as (outbox, reasons):
        outbox.put(subjects.build_marker_subject(3), marker)
        await outbox.flush()

        assert (stream.stored, outbox.stored_count, outbox.last_sequence) == (
            [(subjects.build_marker_subject(3), marker)],
            1,
            1,
        )
        assert reasons == []


async def test_what_is_ours_stays_so_while_the_subject_cannot_be_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, answers = FakeStateStream(), [errors.Unavailable("no answer")]
    stream.answers_lost = 1
    last = stream.last

    async def sometimes(subject: str) -> StreamEntry:
        if answers:
            raise answers.pop()
        return await last(subject)

    monkeypatch.setattr(stream, "last", sometimes)
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_pod(1))
        await outbox.flush()

        assert (answers, outbox.stored_count) == ([], len(stream.stored))


async def test_what_another_writer_has_stored_meanwhile_is_not_counted_as_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream = FakeStateStream()

    async def overtaken(*_: object, **_more: object) -> int:
        monkeypatch.undo()
        stream.put(SUBJECT, a_pod(2), 7)
        raise errors.Unavailable("no answer")

    monkeypatch.setattr(stream, "publish", overtaken)
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_pod(1))
        await outbox.flush()

        assert outbox.stored_count == 0
        assert stream.messages[SUBJECT] == a_pod(2)


async def test_a_slow_stream_makes_nobody_wait_and_nothing_grow() -> None:
    """There are 5,000 changes of ten objects while nothing is stored: ten messages wait, and each
    is the newest.
    """
    stream = FakeStateStream()
    where = [subjects.build_state_subject(PLACE, "Pod", "ns", f"p{number}") for number in range(10)]
    async with working(stream) as (outbox, _):
        stream.flows.clear()
        for version in range(1, 5001):
            outbox.put(where[version % 10], a_pod(version))
            if version % 500 == 0:
                await asyncio.sleep(0)
            assert len(outbox) <= 10
            assert outbox.in_flight <= 3
        stream.flows.set()
        await outbox.flush()

    assert {
        message.version for message in stream.messages.values() if isinstance(message, ObjectState)
    } == {str(version) for version in range(4991, 5001)}
    assert len(stream.stored) <= 13


async def test_a_marker_of_another_watcher_ends_the_session() -> None:
    """Two epochs must not exist at the same time, whichever of the two watchers is late."""
    stream = FakeStateStream()
    async with working(stream) as (outbox, reasons):
        stream.put(subjects.build_marker_subject(3), Synced(epoch="theirs", version=9), 7)
        outbox.put(subjects.build_marker_subject(3), Synced(epoch="ours", version=8))
        await eventually(lambda: reasons, what="the end of the session")

    assert reasons == [f"another watcher has marked {subjects.build_marker_subject(3)}"]
    assert stream.messages[subjects.build_marker_subject(3)] == Synced(epoch="theirs", version=9)


async def test_our_own_marker_is_renewed() -> None:
    stream = FakeStateStream()
    async with working(stream) as (outbox, reasons):
        for version in (8, 9):
            outbox.put(subjects.build_marker_subject(3), Synced(epoch="ours", version=version))
            await outbox.flush()

    assert reasons == []
    assert stream.messages[subjects.build_marker_subject(3)] == Synced(epoch="ours", version=9)


async def test_an_object_too_large_does_not_hold_up_the_rest() -> None:
    stream = FakeStateStream()
    stream.failures = [errors.Rejected("too large")]
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_pod(1))
        await outbox.flush()
        outbox.put(SUBJECT, a_pod(2))
        await outbox.flush()

    assert stream.messages[SUBJECT] == a_pod(2)


async def test_a_name_that_comes_back_is_stored_over_its_tombstone() -> None:
    stream = FakeStateStream()
    async with working(stream) as (outbox, _):
        for message in (a_pod(1), gone(2), a_pod(3, uid="second")):
            outbox.put(SUBJECT, message)
            await outbox.flush()

    assert [message for _, message in stream.stored] == [a_pod(1), gone(2), a_pod(3, uid="second")]


def a_large_pod(version: int) -> ObjectState:
    body = b'{"metadata":{"name":"one","namespace":"ns","uid":"u","resourceVersion":"1"},"spec":{}}'
    return ObjectState(
        kind="Pod", namespace="ns", name="one", uid="u", version=str(version), form="1", body=body
    )


@pytest.mark.parametrize(
    "problem", [errors.Rejected("2 MB are more than the server takes"), RecursionError("deep")]
)
async def test_what_cannot_be_published_never_counts_as_stored(problem: Exception) -> None:
    stream = FakeStateStream()
    stream.failures = [problem]
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_large_pod(1))
        await outbox.flush()

        stands = stream.messages[SUBJECT]
        assert isinstance(stands, Quarantined)
        assert str(problem) in stands.why
        outbox.put(SUBJECT, a_large_pod(2))
        await outbox.flush()
        assert stream.messages[SUBJECT] == a_large_pod(2)


def state_of(name: str) -> tuple[str, ObjectState]:
    subject = subjects.build_state_subject(PLACE, "Pod", "ns", name)
    return subject, ObjectState(
        kind="Pod", namespace="ns", name=name, uid="u", version="1", form="1", body=b"{}"
    )


async def test_a_full_stream_takes_deletions_and_heals_by_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outboxes, "FULL_SECONDS", 0.01)
    stream = FakeStateStream()
    async with working(stream) as (outbox, reasons):
        for name in ("one", "two", "three"):
            outbox.put(*state_of(name))
        await outbox.flush()
        stream.room = 3
        waiting = [state_of(f"more-{number}") for number in range(50)]
        for each in waiting:
            outbox.put(*each)
        await eventually(lambda: "insufficient" in (outbox.problem or ""), what="the refusal")

        outbox.put(SUBJECT, gone(2))
        await eventually(lambda: SUBJECT in stream.purged, what="the room")
        stream.room = 100
        await outbox.flush()

        assert stream.messages[SUBJECT] == gone(2)
        assert all(stream.messages[subject] == state for subject, state in waiting)
        assert (outbox.problem, reasons) == (None, [])


async def test_a_full_stream_is_not_asked_for_each_state_that_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outboxes, "FULL_SECONDS", 0.2)
    stream = FakeStateStream()
    stream.room = 0
    asked = 0
    publish = stream.publish

    async def counted(*message: Any, **options: Any) -> int:
        nonlocal asked
        asked += 1
        return await publish(*message, **options)

    monkeypatch.setattr(stream, "publish", counted)
    async with working(stream) as (outbox, _):
        for number in range(500):
            outbox.put(*state_of(f"pod-{number}"))
        await asyncio.sleep(0.1)
        assert asked <= 3, "one for each worker"


async def test_a_state_that_waited_for_room_is_in_the_hand_of_one_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(outboxes, "FULL_SECONDS", 0.01)
    stream, asked = FakeStateStream(), asyncio.Event()
    stream.room = 0
    publish = stream.publish

    async def never_answered_again(*message: Any, **options: Any) -> int:
        monkeypatch.setattr(stream, "publish", unanswered)
        return await publish(*message, **options)

    async def unanswered(*_: object, **_more: object) -> int:
        asked.set()
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(stream, "publish", never_answered_again)
    async with working(stream) as (outbox, _):
        outbox.put(*state_of("pod"))
        await asked.wait()
        await asyncio.sleep(0.05)
        assert outbox.in_flight == 1


@pytest.mark.looptime
async def test_changes_of_many_objects_in_a_moment_are_handed_out_together() -> None:
    stream, loop = FakeStateStream(), asyncio.get_running_loop()
    names = [
        subjects.build_state_subject(PLACE, "Pod", "ns", name)
        for name in ("one", "two", "three", "four")
    ]
    found: dict[float, int] = {}
    async with working(stream) as (outbox, _):
        for put_at, subject in zip(
            (0.0, 0.2, 0.6, 1.2), names, strict=True
        ):  # the first after a rest waits for nothing
            loop.call_at(put_at * outboxes.MIN_GATHER_SECONDS, outbox.put, subject, a_pod(1))
        for at in (0.1, 0.9, 1.1, 2.9, 3.1):
            await asyncio.sleep(at * outboxes.MIN_GATHER_SECONDS - loop.time())
            found[at] = len(stream.stored)

    # Two were given at 1, so the next ones wait for twice the time.
    assert found == {0.1: 1, 0.9: 1, 1.1: 3, 2.9: 3, 3.1: 4}
    assert [subject for subject, _ in stream.stored] == names


@pytest.mark.looptime
async def test_after_very_many_changes_the_next_one_waits_for_a_limited_time() -> None:
    stream, loop = FakeStateStream(), asyncio.get_running_loop()
    async with working(stream) as (outbox, _):
        outbox.put(*state_of("first"))
        for number in range(1000):
            outbox.put(subjects.build_state_subject(PLACE, "Pod", "ns", str(number)), a_pod(1))
        await outbox.flush()
        given_at = loop.time()
        await asyncio.sleep(outboxes.MIN_GATHER_SECONDS)
        outbox.put(*state_of("next"))
        await outbox.flush()
        first_wait = loop.time() - given_at
        await asyncio.sleep(outboxes.MAX_GATHER_SECONDS)
        outbox.put(*state_of("last"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        is_sent_at_once = len(stream.stored) == 1003

    assert first_wait == pytest.approx(outboxes.MAX_GATHER_SECONDS)
    assert is_sent_at_once


@pytest.mark.looptime
async def test_subjects_that_are_handed_out_together_go_out_in_the_order_of_their_puts() -> None:
    stream, names = (
        FakeStateStream(),
        [subjects.build_state_subject(PLACE, "Pod", "ns", str(number)) for number in range(50)],
    )
    async with working(stream) as (outbox, _):
        outbox.put(*state_of("first"))
        await asyncio.sleep(outboxes.MIN_GATHER_SECONDS / 2)
        for name in names:
            outbox.put(name, a_pod(1))
        await outbox.flush()

    assert [subject for subject, _ in stream.stored[1:]] == names


async def test_no_change_overtakes_those_of_a_moment_that_is_over_and_not_yet_handed_out() -> None:
    stream = FakeStateStream()
    names = [
        subjects.build_state_subject(PLACE, "Pod", "ns", f"pod-{number}") for number in range(4)
    ]
    async with working(stream) as (outbox, _):
        for subject in names[:-1]:
            outbox.put(subject, a_pod(1))
        time.sleep(3 * outboxes.MIN_GATHER_SECONDS)  # noqa: ASYNC251  (the loop is busy, so no timer runs)
        outbox.put(names[-1], a_pod(1))
        await outbox.flush()

    assert [subject for subject, _ in stream.stored] == names


async def test_changes_are_gathered_for_a_moment_only() -> None:
    stream = FakeStateStream()
    async with working(stream) as (outbox, _):
        for version in (1, 2):
            outbox.put(SUBJECT, a_pod(version))
            await outbox.flush()

    assert stream.stored == [(SUBJECT, a_pod(1)), (SUBJECT, a_pod(2))]


async def test_an_object_that_comes_back_in_the_same_version_is_no_repetition() -> None:
    stream = FakeStateStream()
    async with working(stream) as (outbox, _):
        for message in (a_pod(1), gone(1), a_pod(1), gone(1), a_pod(1)):
            outbox.put(SUBJECT, message)
            await outbox.flush()
            assert stream.messages[SUBJECT] == message


async def test_a_state_that_may_wait_gives_its_place_to_a_newer_one() -> None:
    stream = FakeStateStream()
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_pod(1), wait=0.05)
        outbox.put(SUBJECT, a_pod(2), wait=60.0)
        await asyncio.sleep(0.01)
        assert stream.stored == []
        await outbox.flush()

    assert stream.stored == [(SUBJECT, a_pod(2))], (
        "it is sent after the time that the first one may wait"
    )


@pytest.mark.parametrize("newer", [a_pod(2), gone(2)], ids=["a state", "a tombstone"])
async def test_an_urgent_message_takes_the_place_of_a_deferred_one(
    newer: ObjectState | Tombstone,
) -> None:
    stream = FakeStateStream()
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_pod(1), wait=60.0)
        outbox.put(SUBJECT, newer)
        await outbox.flush()

    assert stream.stored == [(SUBJECT, newer)]


async def test_a_timer_that_ends_late_hands_no_subject_to_a_second_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stream, asked = FakeStateStream(), 0

    async def unanswered(*_: object, **_more: object) -> int:
        nonlocal asked
        asked += 1
        await asyncio.Event().wait()
        return 0

    monkeypatch.setattr(stream, "publish", unanswered)
    async with working(stream) as (outbox, _):
        outbox.put(SUBJECT, a_pod(1), wait=0.01)
        outbox.put(SUBJECT, a_pod(2))
        await asyncio.sleep(0)
        outbox.put(SUBJECT, a_pod(3))
        await asyncio.sleep(0.05)

    assert asked == 1


def other(number: int) -> str:
    return subjects.build_state_subject(PLACE, "Pod", "ns", f"p{number}")


@cases(
    ("held", "put", "stored", "expected"),
    {
        "nothing happened": (None, a_pod(1), None, [a_pod(1)]),
        "it has stored the same": (None, a_pod(1), a_pod(1), []),
        "it has stored something newer": (None, a_pod(1), a_pod(2), []),
        "it has stored something older": (a_pod(1), a_pod(3), a_pod(2), [a_pod(3)]),
        "it did not notice a deletion": (a_pod(1), gone(2), a_pod(1), [gone(2)]),
        "it has stored the deletion": (a_pod(1), gone(2), gone(2), []),
        "it has stored the deletion of what we put": (a_pod(1), a_pod(2), gone(3), []),
        "it has stored what was created anew": (a_pod(1), gone(2), a_pod(4, uid="v"), []),
    },
)
async def test_an_outbox_that_opens_sends_what_another_watcher_has_not_stored(
    held: ObjectState | None,
    put: ObjectState | Tombstone,
    stored: ObjectState | Tombstone | None,
    expected: list[ObjectState | Tombstone],
) -> None:
    """A stream never returns to an older state, and contains no message twice, after a hand-over
    (ADR 39).
    """
    stream = FakeStateStream()
    if held is not None:
        stream.put(SUBJECT, held, 1)
    begin = (await stream.identity()).state.last_seq
    async with working(stream, is_open=False) as (outbox, _):
        outbox.put(SUBJECT, put, wait=5.0)
        await asyncio.sleep(0.05)
        if stored is not None:
            stream.put(SUBJECT, stored, 2)
        before = len(stream.stored)
        outbox.open(await stream.since(begin + 1))
        await outbox.flush()
        assert [message for _, message in stream.stored[before:]] == expected
        outbox.put(SUBJECT, a_pod(5))
        await outbox.flush()
        assert stream.messages[SUBJECT] == a_pod(5)


async def test_an_outbox_that_is_not_open_sends_nothing() -> None:
    stream = FakeStateStream()
    async with working(stream, is_open=False) as (outbox, _):
        for number in range(3):
            outbox.put(other(number), a_pod(number))
            outbox.put(other(number), a_pod(number + 1), wait=0.01)
        await asyncio.sleep(0.1)
        assert stream.stored == []


@pytest.mark.parametrize("stored", [a_pod(9), gone(9)])
async def test_a_watch_that_lags_behind_the_leader_before_publishes_nothing_older(
    stored: ObjectState | Tombstone,
) -> None:
    """On a busy machine the successor's watches report changes that the previous leader has
    published already.
    """
    stream = FakeStateStream()
    begin = (await stream.identity()).state.last_seq
    async with working(stream, is_open=False) as (outbox, _):
        stream.put(SUBJECT, stored, begin + 1)
        outbox.open(await stream.since(begin + 1))
        outbox.put(SUBJECT, a_pod(7))
        await outbox.flush()
        assert stream.messages.get(SUBJECT, stored) == stored
        outbox.put(SUBJECT, a_pod(10))
        await outbox.flush()
        assert stream.messages[SUBJECT] == a_pod(10)
