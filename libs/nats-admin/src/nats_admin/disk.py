"""Restarts a NATS server that cannot write since its disk was full, and logs any other problem of its health check.

A stream that met a full disk once takes no message until the server starts again, even when there is room by then, and
leaves publishers without an answer (measured with nats-server 2.15). The probes that a kubelet may act on do not see that:
the check that does also fails while a cluster has no leader, when a restart would only make it worse.
"""

import asyncio
import os
import signal
from typing import Final

import httpx
import msgspec
import structlog

from nats_admin.reload import Beside

log = structlog.get_logger()

CHECK_SECONDS: Final = 5.0
ANSWER_SECONDS: Final = 5.0
BETWEEN_STARTS: Final = 60.0
"""A disk that is still full stops the server again; starting it more often gains nothing."""
WRITE_ERROR: Final = "write error"


class _Health(msgspec.Struct, frozen=True):
    error: str = ""


class DiskWatch:
    """Watches the NATS server in the same pod."""

    def __init__(self, server: Beside) -> None:
        self._server = server
        self._known = ""
        self._ended_at = float("-inf")

    async def run(self) -> None:
        """Check the server until cancelled."""
        async with httpx.AsyncClient(trust_env=False, timeout=ANSWER_SECONDS) as client:
            while True:
                try:
                    answer = await client.get(f"{self._server.monitor}/healthz")
                    self._judge(msgspec.json.decode(answer.content, type=_Health).error)
                except (httpx.HTTPError, OSError, ValueError) as problem:
                    self._log_change(f"{type(problem).__name__}: {problem}")
                await asyncio.sleep(CHECK_SECONDS)

    def _judge(self, problem: str) -> None:
        self._log_change(problem)
        now = asyncio.get_running_loop().time()
        if WRITE_ERROR not in problem or now - self._ended_at < BETWEEN_STARTS:
            return
        self._ended_at = now
        log.error(
            "the NATS server cannot write and is started anew; free its disk, or give it a larger one", why=problem
        )
        os.kill(int(self._server.pid_file.read_text()), signal.SIGTERM)

    def _log_change(self, problem: str) -> None:
        if problem and problem != self._known:
            log.warning("the NATS server is not well", why=problem)
        self._known = problem
