"""Requests through a gateway: an open loop of short ones, and long ones beside it; none is
repeated.
"""

import asyncio
import itertools
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final

import aiohttp
import msgspec

from integration.gateways.backends import REQUEST, Answer

RATE: Final = 60.0
"""Short requests a second."""
LONG_SECONDS: Final = 4.0
LONG_EVERY: Final = 2.0
"""Seconds between two long requests."""
TIMEOUT: Final = 20.0

_numbers = itertools.count(1)


class LoadAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one request."""

    number: str
    began: float
    """Seconds of the wall clock."""
    seconds: float
    cluster: str = ""
    """The cluster that answered; empty if the request failed."""
    error: str = ""
    cookies: dict[str, str] = {}
    """The cookies that the answer set."""


class Client:
    """A client of one gateway; its connections are kept alive."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def ask(
        self, host: str, *, seconds: float = 0.0, headers: Mapping[str, str] | None = None
    ) -> LoadAnswer:
        """Send one request; `seconds` is how long the backend takes to answer."""
        number, began = str(next(_numbers)), time.time()  # noqa: TID251  (that of the watches)
        sent = {"Host": host, REQUEST: number, **(headers or {})}
        query = {"seconds": f"{seconds:g}"} if seconds else {}
        cluster, error, cookies = "", "", dict[str, str]()
        try:
            async with self._session.get(self._url, headers=sent, params=query) as answer:
                body = await answer.read()
                cookies = {name: morsel.value for name, morsel in answer.cookies.items()}
                if answer.status == HTTPStatus.OK:
                    cluster = msgspec.json.decode(body, type=Answer).cluster
                else:
                    error = f"{answer.status} {body[:80].decode(errors='replace')}"
        except (aiohttp.ClientError, TimeoutError, OSError, msgspec.DecodeError) as problem:
            error = f"{type(problem).__name__}: {problem}"
        return LoadAnswer(
            number=number,
            began=began,
            seconds=time.time() - began,  # noqa: TID251
            cluster=cluster,
            error=error,
            cookies=cookies,
        )

    @asynccontextmanager
    async def load(self, host: str) -> AsyncGenerator[list[LoadAnswer]]:
        """Send requests until the end of the block; then wait for the last answers."""
        answers: list[LoadAnswer] = []

        async def ask(seconds: float) -> None:
            answers.append(await self.ask(host, seconds=seconds))

        async def repeat(seconds: float, every: float) -> None:
            due = time.monotonic()
            while True:
                requests.create_task(ask(seconds))
                due += every
                await asyncio.sleep(max(0.0, due - time.monotonic()))

        async with asyncio.TaskGroup() as requests, asyncio.TaskGroup() as senders:
            sending = [
                senders.create_task(repeat(0.0, 1 / RATE)),
                senders.create_task(repeat(LONG_SECONDS, LONG_EVERY)),
            ]
            try:
                yield answers
            finally:
                for task in sending:
                    task.cancel()


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[Client]:
    """Return a client of a gateway for the length of a block."""
    connector = aiohttp.TCPConnector(limit=0)
    timeout = aiohttp.ClientTimeout(total=TIMEOUT)
    cookies = aiohttp.DummyCookieJar()
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=cookies
    ) as session:
        yield Client(session, url)
