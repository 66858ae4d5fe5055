"""Tells a NATS server to read its files again when they have changed, and warns before its certificate ends.

It stands beside the server and sees its process, so it works also when nobody can connect any more. Whether files have
changed is asked of the server, which tells when it read them: so neither's restart makes a difference.
"""

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import httpx
import msgspec
import structlog

from common.bus import credentials
from common.runtime.clock import Clock

log = structlog.get_logger()

CHECK_SECONDS: Final = 1.0
ANSWER_SECONDS: Final = 5.0
TRIES: Final = 5
"""A server that has not read its files after so many looks does not take them."""
AGAIN: Final = timedelta(seconds=30)
"""Between two signals about the same files."""
WARN_EVERY: Final = timedelta(days=1)
READ: Final = ("nats-server.conf", "tls.crt", "tls.key", "ca.crt")
"""What the server reads from its folder."""


class Beside(msgspec.Struct, frozen=True, kw_only=True):
    """A server as its neighbour sees it."""

    folder: Path
    pid_file: Path
    monitor: str
    """URL of its monitoring port."""


class _State(msgspec.Struct, frozen=True):
    config_load_time: datetime


class Reloader:
    """Keeps one server up with its files."""

    def __init__(self, server: Beside, clock: Clock) -> None:
        self._server = server
        self._clock = clock
        self._told: tuple[datetime, datetime] | None = None
        """How new the files were of which the server was told last, and when."""
        self._warned: datetime | None = None
        self._known: str | None = None

    async def run(self) -> None:
        """Look until cancelled."""
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS) as client:
            while True:
                try:
                    await self._look(client)
                except (httpx.HTTPError, OSError, ValueError, msgspec.ValidationError) as problem:
                    self._complain(f"{type(problem).__name__}: {problem}")
                else:
                    self._known = None
                self._warn()
                await asyncio.sleep(CHECK_SECONDS)

    async def _look(self, client: httpx.AsyncClient) -> None:
        newest = newest_of(self._server.folder)
        if newest <= await self._loaded(client):
            return
        now = self._clock.now()
        if self._told is not None and self._told[0] == newest and now - self._told[1] < AGAIN:
            return
        self._told = (newest, now)
        os.kill(int(self._server.pid_file.read_text()), signal.SIGHUP)
        log.info("the server is told to read its files again", folder=str(self._server.folder))
        for _ in range(TRIES):
            await asyncio.sleep(CHECK_SECONDS)
            if newest <= await self._loaded(client):
                log.info("the server has read its files", folder=str(self._server.folder))
                return
        log.error(
            "the server does not take its new configuration and goes on with the old one; its own log says why, and "
            "some changes (to or from a cluster, the port) need a restart: kubectl rollout restart statefulset/nats"
        )

    async def _loaded(self, client: httpx.AsyncClient) -> datetime:
        """Return when the server read its files."""
        answer = await client.get(f"{self._server.monitor}/varz")
        return msgspec.json.decode(answer.content, type=_State).config_load_time

    def _warn(self) -> None:
        """Say once a day that a certificate ends soon."""
        now = self._clock.now()
        if self._warned is not None and now - self._warned < WARN_EVERY:
            return
        for file, what in (("tls.crt", "server"), ("ca.crt", "authority")):
            try:
                end = credentials.end_of((self._server.folder / file).read_bytes())
            except (OSError, ValueError):
                continue
            if end - now < credentials.RENEW_BEFORE:
                self._warned = now
                log.warning(
                    "a certificate of NATS ends soon",
                    certificate=what,
                    ends=end.isoformat(timespec="seconds"),
                    remedy=f"python -m common.bus.provision credentials … --rotate {what}",
                )

    def _complain(self, problem: str) -> None:
        if problem != self._known:
            log.warning("the server beside cannot be looked after", problem=problem)
        self._known = problem


def newest_of(folder: Path) -> datetime:
    """Return when the newest of a server's files was written; a Secret's files change all at once."""
    times = [path.stat().st_mtime for name in READ if (path := folder / name).exists()]
    if not times:
        raise FileNotFoundError(f"{folder} holds none of {', '.join(READ)}")
    return datetime.fromtimestamp(max(times), tz=UTC)
