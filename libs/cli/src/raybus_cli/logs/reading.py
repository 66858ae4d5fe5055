"""Copies logs to the output line by line; followed logs are read concurrently.

The readers put lines into a queue, and a single writer prints them. If the readers printed, a
closed output pipe would look like an error of the API server.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import msgspec
import re2

from common import errors, untrusted
from common.api.core import ContainerState, Pod
from common.kube.client import KubeClient
from common.kube.resources import POD
from common.untrusted import clipped
from raybus_cli import session
from raybus_cli.logs import selection
from raybus_cli.logs.replicas import READ_FAILED
from raybus_cli.logs.selection import LineFormat, Log, Piece, Splitter

MAX_QUEUED_CHUNKS: Final = 256
"""Maximum chunks of output that wait to be written; a full queue slows down the readers."""
MAX_REFUSAL_SIZE: Final = 64 * 2**10
MAX_REASON_LENGTH: Final = 500
NOT_STARTED: Final = "is waiting to start"
"""Part of the API server's message for a container that has not started."""
NO_PREVIOUS: Final = "previous terminated container"
RETRY_SECONDS: Final = 1.0
"""Seconds before a broken stream is opened again."""
Queue = asyncio.Queue[bytes | None]
_BEGINNINGS: Final = frozenset({"tailLines", "sinceSeconds"})
"""Query parameters that apply only to the first request for a followed log."""
_STAMP: Final = re2.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)) ")
"""Matches the time that the kubelet writes before each line on request."""


class LogPosition:
    """The position in a followed log up to which lines were copied.

    A resumed stream begins at the time of the last line, so it repeats all lines of that time.
    """

    def __init__(self) -> None:
        self.has_begun = False
        """Whether the stream was opened at least once."""
        self._last = b""
        """The time of the last line that was copied."""
        self._count = 0
        """Number of copied lines that have the time `_last`."""
        self._repeated = 0
        """Number of lines with the time `_last` that the current stream has repeated so far."""
        self._pieces = 0
        """Number of pieces of the last line that were copied."""
        self._skipped = 0.0
        """Number of pieces of the current line still to skip, because they were copied before."""

    def build_query(self, query: Mapping[str, str]) -> dict[str, str]:
        """Return the parameters of a request that continues at this position."""
        self._repeated = 0
        if not self._last:
            return {**query, "timestamps": "true"}
        kept = {name: value for name, value in query.items() if name not in _BEGINNINGS}
        return {**kept, "timestamps": "true", "sinceTime": self._last.decode()}

    def skip_copied(self, pieces: list[Piece]) -> list[bytes]:
        """Return the texts of pieces that were not copied before, without the kubelet's times."""
        return [text for piece in pieces if (text := self._skip_copied(piece)) is not None]

    def _skip_copied(self, piece: Piece) -> bytes | None:
        text = piece.text
        if piece.begins_line:
            stamp = _STAMP.match(text)
            self._skipped = 0 if stamp is None else self._count_copied(stamp[1])
            text = text if stamp is None else text[stamp.end() :]
        if self._skipped > 0:
            self._skipped -= 1
            return None
        self._pieces += 1
        return text

    def _count_copied(self, stamp: bytes) -> float:
        """Return how many pieces of a line, at its beginning, were copied before; inf for all.

        `stamp` is the time that precedes the line.
        """
        if stamp != self._last:
            if self._last and _build_time_key(stamp) < _build_time_key(self._last):
                return math.inf
            self._last, self._count, self._repeated = stamp, 0, 0
        elif self._repeated < self._count:
            self._repeated += 1
            return self._pieces if self._repeated == self._count else math.inf
        self._count += 1
        self._repeated += 1
        self._pieces = 0
        return 0


def _build_time_key(stamp: bytes) -> tuple[bytes, bytes]:
    """Return a sort key for the times in a log; all of them have the time zone of the node."""
    return stamp[:19], stamp[19:].rstrip(b"Z").ljust(10, b"0")


class LogReader:
    """Copies logs to the output."""

    def __init__(
        self,
        kube: KubeClient,
        namespace: str,
        form: LineFormat,
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
        self._queue: Queue = asyncio.Queue(MAX_QUEUED_CHUNKS)

    async def copy(self, logs: Sequence[Log], write: Callable[[bytes], None]) -> int:
        """Copy all logs, and return how many could not be read.

        Failed logs are reported. If there is only one log, its error is raised.
        """
        failed, met = 0, None
        async with asyncio.TaskGroup() as group:
            group.create_task(_write(self._queue, write))
            try:
                failed = await self._read_all(logs)
            except (
                errors.RaybusError,
                ExceptionGroup,
            ) as problem:  # the lines before the error are still written
                met = problem
            await self._queue.put(None)
        if met is not None:
            raise met
        return failed

    async def _read_all(self, logs: Sequence[Log]) -> int:
        is_only = len(logs) == 1
        if not self._is_following:
            return sum([await self._read(log, is_only=is_only) for log in logs])
        async with asyncio.TaskGroup() as readers:
            tasks = [readers.create_task(self._read(log, is_only=is_only)) for log in logs]
        return sum(task.result() for task in tasks)

    async def _read(self, log: Log, *, is_only: bool) -> bool:
        """Copy one log; return whether it failed. If `is_only`, the error is raised instead."""
        try:
            if self._is_following and not log.is_of_ray:
                await self._follow(log)
            else:
                await self._write_lines(log, self._skip_copied(await self._stream(log), None))
        except (errors.Rejected, errors.NotFound, *session.RETRYABLE_ERRORS) as problem:
            error = refine_error(problem, log)
            if is_only:
                raise error from problem
            self._report(f"{log.source}: {session.format_error(error)}")
            return True
        return False

    async def _follow(self, log: Log) -> None:
        """Copy a log until its container ends; continue where a broken stream stopped."""
        position = LogPosition()
        while True:
            query = position.build_query(log.query)
            try:
                rest = await self._stream(msgspec.structs.replace(log, query=query), position)
            except session.RETRYABLE_ERRORS as problem:
                if not position.has_begun or session.is_interrupted():
                    raise
                self._report(f"{log.source}: {session.format_error(problem)}; reading on")
            else:
                if (end := await self._find_end(log)) is not None:
                    await self._write_lines(log, self._skip_copied(rest, position))
                    if end:
                        self._report(f"{log.source}: {end}")
                    return
            await asyncio.sleep(RETRY_SECONDS)

    async def _stream(self, log: Log, position: LogPosition | None = None) -> list[Piece]:
        """Copy the complete lines of a log; return the rest, which has no line end.

        `position` records the copied lines, and skips lines that an earlier stream has copied. The
        rest is not copied, since a resumed stream repeats the whole line.
        """
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
            if position is not None:
                position.has_begun = True
            async for chunk in content.iter_any():
                await self._write_lines(
                    log, self._skip_copied(splitter.split_pieces(chunk), position)
                )
        return splitter.end_pieces()

    def _skip_copied(self, pieces: list[Piece], position: LogPosition | None) -> list[bytes]:
        return self._remove_token(
            [piece.text for piece in pieces] if position is None else position.skip_copied(pieces)
        )

    def _remove_token(self, lines: list[bytes]) -> list[bytes]:
        """Remove the dashboard's token from lines; the dashboard may repeat request headers."""
        for value in (self._headers or {}).values():
            lines = [untrusted.without(line, value.rpartition(" ")[2]) for line in lines]
        return lines

    async def _write_lines(self, log: Log, lines: list[bytes]) -> None:
        failure = next(
            (line for line in lines if log.is_of_ray and line.startswith(READ_FAILED)), None
        )
        whole = lines if failure is None else lines[: lines.index(failure)]
        if whole:
            await self._queue.put(
                b"".join(selection.render(log.source, line, self._form) for line in whole)
            )
        if failure is not None:
            text = clipped(failure.decode(errors="replace"), MAX_REASON_LENGTH)
            raise errors.Rejected(
                f"Ray cannot read {log.source}: {text}; its node may be gone, see 'raybus explain'"
            )

    async def _find_end(self, log: Log) -> str | None:
        """Return why a log has ended, after its stream has ended; None if the log continues.

        The API server also ends the stream of a running container, for example when the API server
        restarts. The result is empty if the user may not read the pod.
        """
        try:
            body = await self._kube.get(POD, self._namespace, log.source.pod)
        except errors.NotFound:
            return "the pod is gone; its log ends here"
        except session.RETRYABLE_ERRORS:
            if session.is_interrupted():
                raise
            return None
        except errors.RaybusError:  # the log was read; the reason for its end is optional
            return ""
        if _is_running(body, log.source.container):
            return None
        return "the container ended; after a restart -p reads this log"


def _is_running(body: bytes, container: str) -> bool:
    try:
        pod = msgspec.json.decode(body, type=Pod)
    except msgspec.DecodeError:
        return False
    statuses = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return any(status.name == container and status.state == ContainerState() for status in statuses)


async def _write(queue: Queue, write: Callable[[bytes], None]) -> None:
    while (chunk := await queue.get()) is not None:
        write(chunk)


def refine_error(problem: errors.RaybusError, log: Log) -> errors.RaybusError:
    """Add a remedy, if one is known, to an error that was raised by reading a log."""
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


MAX_TAIL_SIZE: Final = 256 * 2**10
"""Maximum bytes kept of a log."""
MAX_TAIL_LINES: Final = 5000
"""Lines requested from the end of a log."""
TAIL_TIMEOUT_SECONDS: Final = 10.0


class Tail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The end of a log."""

    pod: str
    container: str
    text: str
    is_cut: bool
    """Whether earlier text is missing."""
    is_late: bool
    """Whether a timeout ended the read, so that the newest lines may be missing."""


async def read(kube: KubeClient, log: Log, *, seconds: float = TAIL_TIMEOUT_SECONDS) -> Tail:
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
                while size - len(chunks[0]) >= MAX_TAIL_SIZE:
                    size, is_cut = size - len(chunks.popleft()), True
    except TimeoutError:
        is_late = True
    except (errors.Rejected, errors.NotFound) as problem:
        raise refine_error(problem, log) from problem
    kept = b"".join(chunks)
    is_cut = is_cut or len(kept) > MAX_TAIL_SIZE
    if is_cut:
        kept = kept[-MAX_TAIL_SIZE:].partition(b"\n")[2]
    text = untrusted.plain(kept.decode(errors="replace"))
    return Tail(
        pod=log.source.pod,
        container=log.source.container,
        text=text,
        is_cut=is_cut,
        is_late=is_late,
    )
