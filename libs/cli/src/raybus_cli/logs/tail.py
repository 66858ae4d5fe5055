"""The end of one log: its last bytes, read within a time limit."""

import asyncio
from collections import deque
from typing import Final

import msgspec

from common import errors, untrusted
from common.kube.client import KubeClient
from raybus_cli.logs import reading
from raybus_cli.logs.selection import Log

MOST: Final = 256 * 2**10
"""Bytes of a log that are kept."""
LINES: Final = 5000
"""Lines at the end of a log that the API server is asked for."""
SECONDS: Final = 10.0


class Tail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The end of a log."""

    pod: str
    container: str
    text: str
    is_cut: bool
    """Whether the log began before."""
    is_late: bool
    """Whether the time limit ended the read, so that its newest lines may be missing."""


async def read(kube: KubeClient, log: Log, *, seconds: float = SECONDS) -> Tail:
    """Return the end of a log, without escapes for a terminal; raise the problem of a log that cannot be read."""
    if not log.is_placed:
        raise errors.Rejected(f"pod {log.source.pod} has no node yet, and so no log")
    chunks: deque[bytes] = deque()
    size, is_cut, is_late = 0, False, False
    try:
        async with asyncio.timeout(seconds), kube.stream(log.path, query=log.query) as content:
            async for chunk in content.iter_any():
                chunks.append(chunk)
                size += len(chunk)
                while size - len(chunks[0]) >= MOST:
                    size, is_cut = size - len(chunks.popleft()), True
    except TimeoutError:
        is_late = True
    except (errors.Rejected, errors.NotFound) as problem:
        raise reading.refined(problem, log) from problem
    kept = b"".join(chunks)
    is_cut = is_cut or len(kept) > MOST
    if is_cut:
        kept = kept[-MOST:].partition(b"\n")[2]
    text = untrusted.plain(kept.decode(errors="replace"))
    return Tail(pod=log.source.pod, container=log.source.container, text=text, is_cut=is_cut, is_late=is_late)
