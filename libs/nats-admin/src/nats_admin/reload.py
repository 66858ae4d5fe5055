"""Makes the NATS server in the same pod reload its configuration and certificates after a change.

A signal to the server's process requests the reload, so it works even if no client can connect. The
server itself reports when it last read its files, so a restart of the server or of this process
does no harm.
"""

import asyncio
import hashlib
import os
import signal
from pathlib import Path
from typing import Final

import httpx
import msgspec
import structlog

log = structlog.get_logger()

POLL_SECONDS: Final = 0.05
TAKES_SECONDS: Final = 5.0
"""Seconds after which the files count as rejected if the server has not reloaded them."""
AGAIN_SECONDS: Final = 30.0
"""Seconds after which the reload of the same rejected files is tried again."""
READ: Final = ("nats-server.conf", "tls.crt", "tls.key", "ca.crt")


class NeighborServer(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach the NATS server in another container of the pod: files and addresses."""

    folder: Path
    pid_file: Path
    monitor: str
    """URL of the server's monitoring port."""


class _ReloadState(msgspec.Struct, frozen=True):
    start: str
    config_load_time: str


class Reloader:
    """Makes one NATS server reload its files when they change."""

    def __init__(self, server: NeighborServer) -> None:
        self._server = server
        self._done: tuple[str, str] | None = None
        """Digest of the files that the server has read, and start time of the server process."""
        self._refused: tuple[str, str] | None = None
        self._refused_at = 0.0

    async def settle(self, client: httpx.AsyncClient) -> None:
        """Make the server reload files that have changed since it last read them.

        Waits for the reload; after `TAKES_SECONDS` without a reload, logs an error and returns.
        Raises `OSError` or `httpx.HTTPError` if the server cannot be signalled or does not answer.
        """
        before = await self._read_state(client)
        expected = (compute_digest(self._server.folder), before.start)
        now = asyncio.get_running_loop().time()
        if expected == self._done or (
            expected == self._refused and now - self._refused_at < AGAIN_SECONDS
        ):
            return
        os.kill(int(self._server.pid_file.read_text()), signal.SIGHUP)
        while asyncio.get_running_loop().time() - now < TAKES_SECONDS:
            await asyncio.sleep(POLL_SECONDS)
            if (await self._read_state(client)).config_load_time != before.config_load_time:
                log.info("NATS server has reloaded its files", folder=str(self._server.folder))
                self._done = expected
                return
        self._refused, self._refused_at = expected, now
        log.error(
            "the NATS server does not take its new configuration and goes on with the old one; "
            "its own log has the reason, and "
            "some changes (to or from a cluster, the port) need a restart: kubectl rollout "
            "restart statefulset/nats"
        )

    async def _read_state(self, client: httpx.AsyncClient) -> _ReloadState:
        answer = await client.get(f"{self._server.monitor}/varz")
        return msgspec.json.decode(answer.content, type=_ReloadState)


def compute_digest(folder: Path) -> str:
    """Return one digest over the contents of the files that a server reads from its folder."""
    digest = hashlib.sha256()
    for name in READ:
        content = (folder / name).read_bytes() if (folder / name).exists() else b""
        digest.update(f"{name} {len(content)} ".encode() + content)
    return digest.hexdigest()
