"""Noisy open-loop load; runs in a pod, prints one JSON line a request as `deploy/demo/load` does, ends by itself.

Arrivals are a Poisson process with a rate that swings by a half over 20 s, and every 3 s several requests come at once. A tenth of the
requests is for `/other`. With `--think-every` a stream of `--think` seconds begins every so often; it is whole if its last line came.
Nothing is sent a second time. Connections are kept alive. The client is asyncio's streams and no more: on two processors that Ray and
Envoy share, a larger client would measure itself.
"""

import argparse
import asyncio
import json
import math
import random
import signal
import sys
import time
from urllib.parse import urlsplit

DEADLINE = 10.0
BURST = 6
"""Requests at once."""
BURST_SECONDS = 3.0

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Load:
    """One client with a pool of kept-alive connections."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "", parts.port or 80
        self._idle: list[Connection] = []

    async def ask(self, path: str, think: float = 0.0) -> None:
        """Send one request and print how it ended."""
        started = time.time()
        result: dict[str, object] = {"at": started, "think": think, "path": path}
        try:
            async with asyncio.timeout(DEADLINE + think):
                status, body = await self._get(path)
            is_whole = not think or body.endswith(b"end\n")
            result["status"] = status if is_whole else None
            if status == 200 and is_whole:
                answer = {"version": body.split(b"\n")[0].decode()} if think else json.loads(body)
                result["version"] = answer["version"]
                if answer.get("model", "right") != "right":
                    result.update(status=None, error="another model's answer")
        except (OSError, TimeoutError, ValueError, EOFError) as problem:
            result["error"] = f"{type(problem).__name__}: {problem}"
        result["seconds"] = round(time.time() - started, 4)
        print(json.dumps(result), flush=True)

    async def _get(self, path: str) -> tuple[int, bytes]:
        while self._idle and self._idle[-1][0].at_eof():
            self._idle.pop()[1].close()
        reader, writer = (
            self._idle.pop()
            if self._idle
            else await asyncio.open_connection(self._host, self._port)
        )
        try:
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._host}\r\n\r\n".encode())
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            body = await self._body(reader, head)
        except BaseException:
            writer.close()
            raise
        if b"\r\nconnection: close\r\n" in head:
            writer.close()
        else:
            self._idle.append((reader, writer))
        return int(head.split(b" ", 2)[1]), body

    async def _body(self, reader: asyncio.StreamReader, head: bytes) -> bytes:
        if b"transfer-encoding: chunked" not in head:
            length = next(
                (line for line in head.split(b"\r\n") if line.startswith(b"content-length:")), b":0"
            )
            return await reader.readexactly(int(length.split(b":")[1]))
        body = b""
        while size := int(await reader.readuntil(b"\r\n"), 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readexactly(2)
        return body


async def main(options: argparse.Namespace) -> None:
    """Start requests until a signal arrives or the bound is reached."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    load, draws = Load(options.url), random.Random(1)
    shortest, _, longest = options.think.partition("-")
    async with asyncio.TaskGroup() as group:
        begin = due = time.monotonic()
        burst = stream = begin
        while not stop.is_set() and due - begin < options.seconds:
            await wait(stop, due - time.monotonic())
            number = 1
            if due >= burst + BURST_SECONDS:
                burst, number = due, BURST
            for _ in range(number):
                group.create_task(load.ask("/other" if draws.random() < 0.1 else "/"))
            if options.think_every and due >= stream + options.think_every:
                stream, think = (
                    due,
                    round(draws.uniform(float(shortest), float(longest or shortest)), 1),
                )
                group.create_task(load.ask(f"/stream?seconds={think}", think))
            swing = 1 + 0.5 * math.sin(2 * math.pi * (due - begin) / 20)
            due += draws.expovariate((options.rate - BURST / BURST_SECONDS) * swing)


async def wait(stop: asyncio.Event, seconds: float) -> None:
    """Wait for a signal, for so many seconds at most."""
    if seconds > 0:
        try:
            async with asyncio.timeout(seconds):
                await stop.wait()
        except TimeoutError:
            pass


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument(
        "--rate", type=float, default=60.0, help="short requests a second, on average"
    )
    parser.add_argument("--think", default="60-200", help="seconds of a stream")
    parser.add_argument(
        "--think-every", type=float, default=0.0, help="seconds between streams; none without"
    )
    parser.add_argument(
        "--retry", choices=["none"], default="none", help="as the demo's load has it"
    )
    parser.add_argument("--seconds", type=float, default=1800.0, help="longest run")
    asyncio.run(main(parser.parse_args()))
    sys.exit(0)
