"""Records where a process of raybus hands over work. Python imports this module at its start.

`bench.hops` puts this folder on the module path, where Python looks for `sitecustomize`. Each line
of the file `$RAYBUS_HOPS/<pid>` is a hand-over of work to a waiting task, to NATS or to the API
server, with raybus's functions on the stack at that moment. A function that returns an action gets
a line too.
"""

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, Final, cast

OURS: Final = re.compile(r"/((?:libs/common|services/[a-z-]+)/src/.*\.py)$")
RESUMES: Final = "set_result"
"""Name of the built-in method that resumes a waiting task."""
_paths: dict[str, str] = {}


def _path(file: str) -> str:
    """Return the path of a raybus file within the project; empty for other files."""
    if file not in _paths:
        match = OURS.search(file)
        _paths[file] = match[1] if match else ""
    return _paths[file]


def _stack(frame: FrameType | None) -> Iterator[str]:
    while frame is not None:
        if (path := _path(frame.f_code.co_filename)) and not frame.f_code.co_name.startswith("<"):
            yield f"{path}:{frame.f_code.co_qualname}"
        frame = frame.f_back


def _is_action(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        some = cast("Sequence[Any]", value[:4])
        return any(_is_action(part) for part in some)
    return bool(getattr(value, "actions", None)) or any(
        base.__name__ == "Action" for base in type(value).__mro__
    )


class _Probe:
    def __init__(self, folder: Path) -> None:
        self._file = (folder / str(os.getpid())).open("w", buffering=1)

    def __call__(self, frame: FrameType, event: str, value: Any) -> None:
        code = frame.f_code
        if event == "c_call":
            if getattr(value, "__name__", "") == RESUMES:
                self._write("resumes a task", frame)
        elif event == "call":
            if code.co_name == "publish" and "/nats/" in code.co_filename:
                self._write(f"publishes {frame.f_locals['subject']}", frame)
            elif code.co_name == "_request" and code.co_filename.endswith("aiohttp/client.py"):
                held = frame.f_locals
                self._write(
                    f"{held.get('method')} {str(held.get('str_or_url')).partition('?')[0]}", frame
                )
        elif (
            event == "return"
            and _path(code.co_filename)
            and value is not None
            and _is_action(value)
        ):
            self._write("returns actions", frame, one=True)

    def _write(self, what: str, frame: FrameType, *, one: bool = False) -> None:
        held = list(_stack(frame))
        if held:
            self._file.write(json.dumps([time.monotonic(), what, held[:1] if one else held]) + "\n")


if "RAYBUS_HOPS" in os.environ:
    sys.setprofile(_Probe(Path(os.environ["RAYBUS_HOPS"])))
