"""Reads the event stream in order: its content, and then new events.

A broken read is repeated behind the last consumed event. A stream that was created anew counts from 1
again, so it is read from its start; events that come twice are skipped by their id.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from common import errors
from common.bus.consumer import Begin, Reading, Source, consume, from_sequence
from common.bus.nats import Bus, Stored
from common.bus.subjects import EVENTS_STREAM

RETRY_SECONDS: Final = 1.0

Report = Callable[[str], None]


class Taker(Protocol):
    """Consumes the events one after the other; each method returns whether more are wanted."""

    def take(self, event: Stored) -> bool:
        """Take the next event."""
        ...

    def caught_up(self) -> bool:
        """Note that there are no more for now; called once after each begin."""
        ...


_Items = asyncio.Queue[Stored | str | None]
"""An event; None for "no more for now"; or the reason of a broken read."""


class Reader:
    """One pass over the events of a filter."""

    def __init__(self, bus: Bus, subject: str, begin: Begin) -> None:
        self._bus = bus
        self._subject = subject
        self._first = begin
        self._begin = begin
        self._created: str | None = None
        self._count = 0

    async def run(self, taker: Taker, *, is_patient: bool, report: Report) -> None:
        """Hand events on until no more are wanted; a patient reader waits for NATS and the stream to come back."""
        while True:
            try:
                why = await self._read(taker)
            except (errors.Unavailable, errors.NotFound) as problem:
                if self._created is None or not is_patient:
                    raise
                why = str(problem)
            if why is None:
                return
            report(f"{why}; going on after the last event in {RETRY_SECONDS:g} s")
            await asyncio.sleep(RETRY_SECONDS)

    async def _read(self, taker: Taker) -> str | None:
        """Read until no more are wanted (None), or until the reading breaks (the reason)."""
        info = await self._bus.stream(EVENTS_STREAM)
        if self._created not in {None, info.created}:
            self._begin = self._first
        self._created = info.created
        self._count += 1
        name = f"{self._bus.current.inbox.rpartition('.')[2]}-{self._count}"
        source = Source(stream=EVENTS_STREAM, filter=self._subject, name=name, begin=self._begin)
        items: _Items = asyncio.Queue()
        async with consume(self._bus, source, take=items.put_nowait, read=lambda: items.put_nowait(None)) as reading:
            return await self._consume(reading, items, taker)

    async def _consume(self, reading: Reading, items: _Items, taker: Taker) -> str | None:
        async with asyncio.TaskGroup() as group:
            watching = group.create_task(_put_when_broken(reading, items))
            why = await self._hand_on(items, taker)
            watching.cancel()
        return why

    async def _hand_on(self, items: _Items, taker: Taker) -> str | None:
        while True:
            match await items.get():
                case Stored() as event:
                    wants_more = taker.take(event)
                    self._begin = from_sequence(event.sequence + 1)
                case str() as why:
                    return why
                case None:
                    wants_more = taker.caught_up()
            if not wants_more:
                return None


async def _put_when_broken(reading: Reading, items: _Items) -> None:
    items.put_nowait(await reading.until_broken())
