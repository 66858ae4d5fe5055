"""Open-loop load as real clients make it; runs in a pod, prints one JSON line a request, ends by itself.

Connections are kept alive and pooled. A short request has 10 s, a slow one 10 s more than its own duration. An idempotent request
on a kept-alive connection that the server closed before answering is sent once more, on a new connection, as Go's and most other
pools do; nothing else is retried, and a retry is counted. With `--retry none` it is not retried either. Requests start on
schedule, answered or not.
"""

import argparse
import asyncio
import json
import random
import signal
import sys
import time

import aiohttp

DEADLINE = 10.0


class Load:
    """One client with a pool of kept-alive connections.

    aiohttp takes a tenth of httpx's processor time for a request, which the servers of a demo on
    two processors need.
    """

    def __init__(self, url: str, *, retries: bool) -> None:
        self._url = url
        self._retries = retries
        self._pool = _open_session(aiohttp.TCPConnector(limit=0, keepalive_timeout=60))
        self._fresh = _open_session(aiohttp.TCPConnector(limit=0, force_close=True))

    async def close(self) -> None:
        """Close all connections."""
        await self._pool.close()
        await self._fresh.close()

    async def wait(self, at_most: float) -> None:
        """Wait for a first answer: a node may take a second to route to a Service that was just made. Not counted."""
        until = time.monotonic() + at_most
        while time.monotonic() < until:
            try:
                async with asyncio.timeout(2):
                    if (await _get(self._fresh, self._url, {}, []))[0] == 200:
                        return
            except (aiohttp.ClientError, TimeoutError):
                await asyncio.sleep(0.2)

    async def ask(self, think: float) -> None:
        """Send one request and print how it ended."""
        started = time.time()
        result: dict[str, object] = {"at": started, "think": think, "retries": 0}
        try:
            async with asyncio.timeout(DEADLINE + think):
                status, body = await self._send({"think": str(think)} if think else {}, result)
            result["status"] = status
            result["version"] = json.loads(body)["version"] if status == 200 else None
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as problem:
            result["error"] = f"{type(problem).__name__}: {problem}"
        result["seconds"] = round(time.time() - started, 4)
        print(json.dumps(result), flush=True)

    async def _send(self, query: dict[str, str], result: dict[str, object]) -> tuple[int, bytes]:
        """Send a request; return the status and body of its answer.

        aiohttp itself sends a request once more if the server closed its kept-alive connection.
        This counts as a retry, too.
        """
        connections: list[bool] = []
        try:
            answer = await _get(self._pool, self._url, query, connections)
        except aiohttp.ClientConnectionError:
            if not (connections and connections[-1] and self._retries):
                raise  # on a new connection it is no stale one, and the failure is the server's
            result["retries"] = 1
            return await _get(self._fresh, self._url, query, [])
        if len(connections) > 1:
            result["retries"] = 1
            if not self._retries:
                raise aiohttp.ServerDisconnectedError
        return answer


async def _get(
    session: aiohttp.ClientSession, url: str, query: dict[str, str], connections: list[bool]
) -> tuple[int, bytes]:
    """Send a request; add to `connections` whether each connection that it used was kept alive."""
    async with session.get(url, params=query, trace_request_ctx=connections) as answer:
        return answer.status, await answer.read()


def _open_session(connector: aiohttp.TCPConnector) -> aiohttp.ClientSession:
    """Open a session that records the connections of each request in the request's context."""
    trace = aiohttp.TraceConfig()

    async def reused(_session: object, context: object, _info: object) -> None:
        context.trace_request_ctx.append(True)

    async def created(_session: object, context: object, _info: object) -> None:
        context.trace_request_ctx.append(False)

    trace.on_connection_reuseconn.append(reused)
    trace.on_connection_create_start.append(created)
    timeout = aiohttp.ClientTimeout(total=None)
    return aiohttp.ClientSession(connector=connector, timeout=timeout, trace_configs=[trace])


async def main(options: argparse.Namespace) -> None:
    """Start requests on schedule until a signal arrives or the bound is reached."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    load = Load(options.url, retries=options.retry == "standard")
    thinking = random.Random(1)
    shortest, _, longest = options.think.partition("-")
    await load.wait(30.0)
    async with asyncio.TaskGroup() as group:
        begin = time.monotonic()
        for number in range(int(options.rate * options.seconds)):
            pause = begin + number / options.rate - time.monotonic()
            if pause > 0:
                try:
                    async with asyncio.timeout(pause):
                        await stop.wait()
                except TimeoutError:
                    pass
            if stop.is_set():
                break
            group.create_task(load.ask(0.0))
            if number % int(options.rate * options.think_every) == 0:
                group.create_task(load.ask(round(thinking.uniform(float(shortest), float(longest or shortest)), 1)))
    await load.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--rate", type=float, default=40.0, help="short requests a second")
    parser.add_argument("--think", default="8", help="seconds that a slow request takes: 8, or from 5-20")
    parser.add_argument("--think-every", type=float, default=2.0, help="seconds between slow requests")
    parser.add_argument("--retry", choices=["standard", "none"], default="standard", help="what is sent once more")
    parser.add_argument("--seconds", type=float, default=600.0, help="longest run")
    asyncio.run(main(parser.parse_args()))
    sys.exit(0)
