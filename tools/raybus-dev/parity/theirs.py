"""Runs KubeRay's code, compiled into the program of `tools/raybus-dev/parity/kuberay`.

The program answers each request line on its standard input with a line of output.
"""

import os
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import IO, Any, cast

import msgspec

from common.api.opaque import Body, Json
from common.clock import SystemClock
from parity.cases import OperatorSettings, RoundOutcome
from parity.rounds import dated


class KubeRay:
    """The running program with KubeRay's code. `requests` is its input, `responses` its output."""

    def __init__(self, requests: IO[bytes], responses: IO[bytes]) -> None:
        self._requests = requests
        self._responses = responses
        hello = self._read()
        self.version: str = hello["version"]
        """The version that this KubeRay writes into objects."""
        self.release: str = hello.get("release", "1.7")
        """The minor version, such as `1.7`, which determines KubeRay's behaviour."""
        self.gates: frozenset[str] = frozenset(hello["gates"])
        """The feature gates that this KubeRay knows."""

    def answer(self, asked: Sequence[tuple[OperatorSettings, list[Body]]]) -> list[RoundOutcome]:
        """Return KubeRay's outcome of each request, which has settings and objects.

        A RayService or a RayCronJob is evaluated alone, a RayJob together with the objects that
        follow it. Other objects are reconciled until nothing changes.
        """
        lines = [self._request(settings, objects) for settings, objects in asked]
        writer = Thread(target=self._write, args=(lines,))  # all lines do not fit into the pipe
        writer.start()
        answers = [self._read() for _ in lines]
        writer.join()
        return [
            msgspec.convert(
                {key: value for key, value in answer.items() if value is not None}, RoundOutcome
            )
            for answer in answers
        ]

    def _request(self, settings: OperatorSettings, objects: list[Body]) -> bytes:
        gates = {name: is_on for name, is_on in settings.gates.items() if name in self.gates}
        request: Json = {"settings": msgspec.structs.replace(settings, gates=gates)}
        dated_objects = dated(objects, SystemClock().now())
        match objects[0]["kind"] if objects else "":
            case "RayService":
                request |= {"service": dated_objects[0]}
            case "RayJob":
                request |= {"job": dated_objects[0], "objects": dated_objects[1:]}
            case "RayCronJob":
                request |= {"cronJob": dated_objects[0]}
            case _:
                request |= {"objects": dated_objects}
        return msgspec.json.encode(request) + b"\n"

    def _write(self, lines: Sequence[bytes]) -> None:
        for line in lines:
            self._requests.write(line)
        self._requests.flush()

    def _read(self) -> dict[str, Any]:
        line = self._responses.readline()
        assert line, "the program with KubeRay's code has ended; run it by hand for the reason"
        return msgspec.json.decode(line)


@contextmanager
def started(program: Path) -> Generator[KubeRay]:
    """Run the program during the `with` block, and end it afterwards."""
    pipe, environment = subprocess.PIPE, {**os.environ, "GOMAXPROCS": "1", "GOGC": "400"}
    with subprocess.Popen(
        [program], env=environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL
    ) as process:
        try:
            yield KubeRay(cast("IO[bytes]", process.stdin), cast("IO[bytes]", process.stdout))
        finally:
            process.kill()
