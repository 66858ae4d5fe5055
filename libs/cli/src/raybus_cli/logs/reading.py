"""Reads logs and copies them line by line, concurrently while they are followed.

Lines pass through a queue to a single writer. If a reader wrote inside the block of its stream, a
closed output pipe would look like an error of the API server.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec

from common import errors, untrusted
from common.kube.client import KubeClient
from common.kube.resources import POD
from common.untrusted import clipped
from raybus_cli import session
from raybus_cli.logs import selection
from raybus_cli.logs.replicas import FAILED
from raybus_cli.logs.selection import Form, Log, Splitter

QUEUED: Final = 256
"""Chunks of output that wait to be written; a full queue slows down the readers."""
MAX_REFUSAL_SIZE: Final = 64 * 2**10
MAX_REASON_LENGTH: Final = 500
NOT_STARTED: Final = "is waiting to start"
"""Part of the API server's message for a container that has not started."""
NO_PREVIOUS: Final = "previous terminated container"
Queue = asyncio.Queue[bytes | None]


class Reader:
    """Copies logs to the output."""

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        form: Form,
        *,
        is_following: bool,
        report: Callable[[str], None],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """`headers` are sent with requests for logs that Ray's dashboard serves."""
        self._headers = headers
        self._kube = kube
        self._namespace = namespace
        self._form = form
        self._is_following = is_following
        self._report = report
        self._queue: Queue = asyncio.Queue(QUEUED)

    async def copy(self, found: Sequence[Log], write: Callable[[bytes], None]) -> int:
        """Copy all logs, and return how many could not be read.

        Failed logs are reported. If there is only one log, its error is raised.
        """
        failed, met = 0, None
        async with asyncio.TaskGroup() as group:
            group.create_task(_write(self._queue, write))
            try:
                failed = await self._read_all(found)
            except (
                errors.RaybusError,
                ExceptionGroup,
            ) as problem:  # the lines before the error are still written
                met = problem
            await self._queue.put(None)
        if met is not None:
            raise met
        return failed

    async def _read_all(self, found: Sequence[Log]) -> int:
        is_only = len(found) == 1
        if not self._is_following:
            return sum([await self._read(each, is_only=is_only) for each in found])
        async with asyncio.TaskGroup() as readers:
            tasks = [readers.create_task(self._read(each, is_only=is_only)) for each in found]
        return sum(each.result() for each in tasks)

    async def _read(self, log: Log, *, is_only: bool) -> bool:
        """Copy one log; return whether it failed."""
        try:
            await self._stream(log)
            if self._is_following and not log.is_of_ray:
                await self._report_end(log)
        except (errors.Rejected, errors.NotFound, errors.Unavailable) as problem:
            found = refined(problem, log)
            if is_only:
                raise found from problem
            self._report(f"{log.source}: {session.line(found)}")
            return True
        return False

    async def _stream(self, log: Log) -> None:
        if not log.is_placed:
            raise errors.Rejected(
                f"pod {log.source.pod} has no node yet, and so no log; see why with 'raybus "
                "explain'"
            )
        splitter = Splitter()
        most, headers = (MAX_REFUSAL_SIZE, self._headers) if log.is_of_ray else (None, None)
        async with self._kube.stream(
            log.path, query=log.query, headers=headers, max_size=most
        ) as content:
            async for chunk in content.iter_any():
                await self._pass_on(log, self._without_token(splitter.feed(chunk)))
        await self._pass_on(log, self._without_token(splitter.end()))

    def _without_token(self, found: list[bytes]) -> list[bytes]:
        """Remove the dashboard's token from lines.

        The dashboard may repeat the request headers in its response.
        """
        for value in (self._headers or {}).values():
            found = [untrusted.without(each, value.rpartition(" ")[2]) for each in found]
        return found

    async def _pass_on(self, log: Log, found: list[bytes]) -> None:
        failure = next((each for each in found if log.is_of_ray and each.startswith(FAILED)), None)
        whole = found if failure is None else found[: found.index(failure)]
        if whole:
            await self._queue.put(
                b"".join(selection.render(log.source, each, self._form) for each in whole)
            )
        if failure is not None:
            text = clipped(failure.decode(errors="replace"), MAX_REASON_LENGTH)
            raise errors.Rejected(
                f"Ray cannot read {log.source}: {text}; its node may be gone, see 'raybus explain'"
            )

    async def _report_end(self, log: Log) -> None:
        """Report why a followed log ended: its pod was deleted, or its container ended."""
        try:
            await self._kube.get(POD, self._namespace, log.source.pod)
        except errors.NotFound:
            self._report(f"{log.source}: the pod is gone; its log ends here")
        except errors.RaybusError:  # the log was read; the reason for its end is optional
            return
        else:
            self._report(f"{log.source}: the container ended; after a restart -p reads this log")


async def _write(queue: Queue, write: Callable[[bytes], None]) -> None:
    while (chunk := await queue.get()) is not None:
        write(chunk)


def refined(problem: errors.RaybusError, log: Log) -> errors.RaybusError:
    """Return the error of a log with a remedy."""
    text = str(problem)
    if log.is_of_ray:
        return problem
    if NOT_STARTED in text:
        return errors.Rejected(
            f"{text}; wait, see why with 'raybus explain', or read an init container with -c "
            f"(kubectl describe pod {log.source.pod})"
        )
    if NO_PREVIOUS in text:
        return errors.Rejected(f"{text}: it has not restarted; leave -p out")
    if isinstance(problem, errors.NotFound):
        return errors.Rejected(
            f"pod {log.source.pod} is gone, and its log with it; 'raybus bundle' keeps the "
            "events, and of a container that restarted -p reads "
            "the previous log"
        )
    return problem


MOST: Final = 256 * 2**10
"""Maximum bytes kept of a log."""
LINES: Final = 5000
"""Lines requested from the end of a log."""
SECONDS: Final = 10.0


class Tail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The end of a log."""

    pod: str
    container: str
    text: str
    is_cut: bool
    """Whether earlier text is missing."""
    is_late: bool
    """Whether a timeout ended the read, so that the newest lines may be missing."""


async def read(kube: KubeClient, log: Log, *, seconds: float = SECONDS) -> Tail:
    """Read the end of a log, without terminal escapes.

    Raise `Rejected` or another error if it cannot be read.
    """
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
        raise refined(problem, log) from problem
    kept = b"".join(chunks)
    is_cut = is_cut or len(kept) > MOST
    if is_cut:
        kept = kept[-MOST:].partition(b"\n")[2]
    text = untrusted.plain(kept.decode(errors="replace"))
    return Tail(
        pod=log.source.pod,
        container=log.source.container,
        text=text,
        is_cut=is_cut,
        is_late=is_late,
    )
