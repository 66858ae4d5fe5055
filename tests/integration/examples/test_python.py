"""The Python subscriber: every event once and in order, whatever dies."""

import contextlib
import sqlite3
from collections.abc import Generator
from pathlib import Path

import msgspec
import pytest

from common import errors
from support.builders.example_upgrade import a_retreat, an_example_upgrade
from support.servers.outside import Outside
from support.waiting import eventually, eventually_true

from .conftest import TIMEOUT, Running, access, python, running

pytestmark = [pytest.mark.integration]

EVENTS = an_example_upgrade()
KINDS = [event.data.kind for event in EVENTS]


def _kinds(example: Running) -> list[str]:
    """Return the kinds of the handled events; a line has time, service, kind and both clusters."""
    return [line.split()[2] for line in example.out]


class _Place(msgspec.Struct, frozen=True):
    stream_seq: int


class _Consumer(msgspec.Struct, frozen=True):
    ack_floor: _Place


async def _is_done(at: Outside, count: int) -> bool:
    """Return whether so many events are acknowledged."""
    try:
        found = await (await at.bus("subscriber")).api(
            "CONSUMER.INFO.RAY_EVENTS.python-example", None, _Consumer
        )
    except errors.RaybusError:
        return False
    return found.ack_floor.stream_seq == count


async def _until(example: Running, count: int) -> None:
    await eventually(
        lambda: len(example.out) >= count, within=TIMEOUT, what=f"{count} events; {example.err}"
    )


@contextlib.contextmanager
def _locked(database: Path) -> Generator[None]:
    """Keep all other connections from writing to a database."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.execute("ROLLBACK")


async def test_it_goes_on_where_it_was_killed_and_handles_each_event_once(
    at: Outside, tmp_path: Path
) -> None:
    variables = {**access(at), "SUBSCRIBER_DATABASE": str(tmp_path / "handled.db")}
    await at.publish(EVENTS[:4])
    async with running(*python("python", "subscriber.py"), variables=variables) as first:
        await eventually_true(lambda: _is_done(at, 4), what="four acknowledgements")
        await first.kill()
    await at.publish(EVENTS[:4], again="-again")
    await at.publish(EVENTS[4:])
    async with running(*python("python", "subscriber.py"), variables=variables) as second:
        await _until(second, len(EVENTS) - 4)
        assert await second.end() == 0
    assert (_kinds(first), _kinds(second)) == (KINDS[:4], KINDS[4:])


async def test_it_outlives_nats_and_the_loss_of_the_stream(at: Outside, tmp_path: Path) -> None:
    variables = {**access(at), "SUBSCRIBER_DATABASE": str(tmp_path / "handled.db")}
    await at.publish(EVENTS)
    async with running(*python("python", "subscriber.py"), variables=variables) as example:
        await _until(example, len(EVENTS))
        at.secured.server.kill()
        at.secured.server.lose_store()
        at.secured.server.start()
        await at.provide()
        await at.publish([*EVENTS[-2:], *a_retreat()])
        await _until(example, len(EVENTS) + len(a_retreat()))
        assert await example.end() == 0
    assert _kinds(example) == [*KINDS, *(event.data.kind for event in a_retreat())]


async def test_an_event_that_cannot_be_handled_comes_again(at: Outside, tmp_path: Path) -> None:
    """The database cannot be written to at first, as on a full disk."""
    database = tmp_path / "handled.db"
    variables = {**access(at), "SUBSCRIBER_DATABASE": str(database)}
    async with running(*python("python", "subscriber.py"), variables=variables) as example:
        await eventually_true(lambda: _is_done(at, 0), what="the consumer")
        with _locked(database):
            await at.publish(EVENTS)
            await eventually(lambda: example.err, within=TIMEOUT, what="a message about the event")
            assert example.out == []
        await _until(example, len(EVENTS))
    assert "is delivered again in 5 s" in example.err[0]
    assert _kinds(example) == KINDS


async def test_it_names_what_it_needs_and_leaves_nothing_behind(tmp_path: Path) -> None:
    database = tmp_path / "handled.db"
    variables = {"RAYBUS_NATS_CREDENTIALS": "/nowhere", "SUBSCRIBER_DATABASE": str(database)}
    async with running(*python("python", "subscriber.py"), variables=variables) as example:
        assert await example.ended() == 1
    assert not database.exists()
    assert example.err == [
        "the environment variable 'RAYBUS_NATS_URL' is needed; see the top of subscriber.py"
    ]
