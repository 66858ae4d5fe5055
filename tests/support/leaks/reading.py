"""Reads everything that NATS holds, with users that are allowed to: our own account as `watcher`,
the mirror as `subscriber`.

No user may read RAY_EVENTS itself, so `provisioner` is asked for its last sequence, and the mirror
must reach it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final

from common import errors
from common.bus import subjects
from common.bus.consumer import StreamSource, consume, from_sequence
from common.bus.nats import Bus, connect
from common.settings import Settings
from support.leaks.scan import Message
from support.waiting import eventually_true

TIMEOUT: Final = 60.0
TRIES: Final = 3
"""Maximum number of attempts of a read whose connection is lost: kubectl's port-forward ends with
any broken connection, and is started again."""
MIRROR: Final = "the mirror of RAY_EVENTS"

As = Callable[[str], Settings]
"""Function that returns the connection settings of a user."""


def users_of(folder: Path, url: str) -> As:
    """Return a function for the connection settings of users with the keys in a folder, as `raybus
    up --data-dir` writes them.
    """
    return lambda user: Settings(
        service=user,
        nats_url=url,
        nats_ca_file=folder / "ca.crt",
        nats_seed_file=folder / "users" / f"{user}.seed",
    )


async def everything(user: As) -> list[Message]:
    """Return every message that NATS stores."""
    async with (
        connect(user("watcher")) as own,
        connect(user("subscriber")) as outside,
        connect(user("provisioner")) as at,
    ):
        for bus in (own, outside, at):
            await bus.session()
        await eventually_true(
            lambda: _is_mirrored(at, outside), every=0.1, what="a complete mirror"
        )
        state = await _all_of(own, subjects.STATE_STREAM, subjects.ALL_STATE)
        events = await _all_of(outside, subjects.EVENTS_STREAM, subjects.ALL_EVENTS)
    return [*state, *(Message(MIRROR, each.stored) for each in events)]


async def _is_mirrored(own: Bus, outside: Bus) -> bool:
    try:
        origin, mirror = (
            await own.stream(subjects.EVENTS_STREAM),
            await outside.stream(subjects.EVENTS_STREAM),
        )
    except errors.Unavailable:
        return False
    return origin.state.last_seq == mirror.state.last_seq


async def _all_of(bus: Bus, stream: str, subject: str) -> list[Message]:
    for _ in range(TRIES):
        with suppress(errors.Unavailable):
            async with followed(bus, stream, subject) as (found, is_read), asyncio.timeout(TIMEOUT):
                await is_read.wait()
                return list(found)
    raise AssertionError(f"{stream} could not be read: the connection was lost {TRIES} times")


@asynccontextmanager
async def followed(
    bus: Bus, stream: str, subject: str
) -> AsyncGenerator[tuple[list[Message], asyncio.Event]]:
    """Collect the messages that a stream holds and receives, including those that are overwritten
    meanwhile.
    """
    found: list[Message] = []
    is_read = asyncio.Event()
    session = await bus.session()
    name = f"scan-{session.inbox.rpartition('.')[2]}"
    source = StreamSource(stream=stream, filter=subject, name=name, begin=from_sequence(1))
    async with consume(
        bus, source, take=lambda stored: found.append(Message(stream, stored)), read=is_read.set
    ) as reading:
        yield found, is_read
        is_broken = reading._broken.done()  # pyright: ignore[reportPrivateUsage]  (what `until_broken` waits for)
        assert not is_broken, f"the reading of {stream} broke: messages may be missing"
