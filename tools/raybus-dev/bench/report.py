"""Output of the benchmarks: progress on standard error, figures as table or JSON, and files."""

import asyncio
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import structlog
from rich.console import Console
from rich.table import Table

from localcluster.errors import ClusterError

OUTPUT: Final = Path(__file__).parents[3] / "build" / "bench"

Found = TypeVar("Found")


def emit(line: str) -> None:
    """Print a line of progress to standard error."""
    sys.stderr.write(f"bench: {line}\n")
    sys.stderr.flush()


def keep_stdout_clean() -> None:
    """Send the log lines of the benchmark's own process to standard error."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


def measured(
    measuring: Coroutine[Any, Any, Found], *, loop: Callable[[], AbstractEventLoop] | None = None
) -> Found:
    """Run a measurement on an event loop and return its result.

    A `ClusterError` ends the program with one line.
    """
    try:
        with asyncio.Runner(loop_factory=loop) as runner:
            return runner.run(measuring)
    except ClusterError as problem:
        raise SystemExit(f"bench: {problem}") from None


def show(
    figures: msgspec.Struct, table: Callable[[], Table], *, form: str, width: int = 120
) -> None:
    """Print the figures: as JSON if `form` is `json`, else as a table of this width."""
    if form == "json":
        sys.stdout.buffer.write(_json(figures))
    else:
        Console(width=width).print(table())


def write(
    result: msgspec.Struct, to: Path, *, picture: str = "", others: Mapping[str, str] = {}
) -> None:
    """Write the figures as JSON and the pictures as SVG; print the paths of the files.

    `to` is the path without its extension. `others` maps a suffix of the file name to another
    picture.
    """
    to.parent.mkdir(parents=True, exist_ok=True)
    written = [to.with_suffix(".json")]
    written[0].write_bytes(_json(result))
    pictures = {to.name: picture} if picture else {}
    for name, drawn in (
        pictures | {f"{to.name}-{suffix}": drawn for suffix, drawn in others.items()}
    ).items():
        written.append(to.with_name(f"{name}.svg"))
        written[-1].write_text(drawn)
    emit(f"written: {', '.join(map(str, written))}")


def _json(figures: msgspec.Struct) -> bytes:
    return msgspec.json.format(msgspec.json.encode(figures)) + b"\n"
