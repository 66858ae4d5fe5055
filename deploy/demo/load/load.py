"""Open-loop load as real clients make it; runs in a pod, prints one JSON line a request, ends by itself.

Connections are kept alive and pooled. A short request has 10 s. An idempotent request whose kept-alive connection the
server closed before answering is sent once more on another connection, as Go's and most other pools do; nothing else is
retried, and a retry is counted. Requests start on schedule whether or not earlier ones have been answered.
"""

import argparse
import asyncio
import json
import signal
import sys
import time
from types import SimpleNamespace

import aiohttp

SHORT_DEADLINE = 10.0


async def on_attempt(_session: object, context: SimpleNamespace, _params: object) -> None:
    """Count one attempt: a request takes one connection for each."""
    context.trace_request_ctx["attempts"] += 1


async def ask(session: aiohttp.ClientSession, url: str, think: float) -> None:
    """Send one request and print how it ended."""
    told = {"attempts": 0}
    started = time.time()
    result: dict[str, object] = {"at": started, "think": think}
    deadline = aiohttp.ClientTimeout(total=SHORT_DEADLINE + think)
    query = {"think": str(think)} if think else {}
    try:
        async with session.get(url, params=query, timeout=deadline, trace_request_ctx=told) as answer:
            body = await answer.read()
            result["status"] = answer.status
            result["version"] = json.loads(body)["version"] if answer.status == 200 else None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as problem:
        result["error"] = f"{type(problem).__name__}: {problem}"
    result["seconds"] = round(time.time() - started, 4)
    result["retries"] = max(0, told["attempts"] - 1)
    print(json.dumps(result), flush=True)


async def wait_for_service(session: aiohttp.ClientSession, url: str, patience: float) -> None:
    """Wait for a first answer: a node may take a second to route to a Service that was just made. Not counted."""
    until = time.monotonic() + patience
    while time.monotonic() < until:
        try:
            limit = aiohttp.ClientTimeout(total=2)
            async with session.get(url, timeout=limit, trace_request_ctx={"attempts": 0}) as answer:
                if answer.status == 200:
                    return
        except (aiohttp.ClientError, TimeoutError, OSError):
            pass
        await asyncio.sleep(0.2)


async def main(options: argparse.Namespace) -> None:
    """Start requests on schedule until told to stop or the bound is reached."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    trace = aiohttp.TraceConfig()
    trace.on_connection_create_end.append(on_attempt)
    trace.on_connection_reuseconn.append(on_attempt)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=60)
    async with aiohttp.ClientSession(connector=connector, trace_configs=[trace]) as session, asyncio.TaskGroup() as group:
        await wait_for_service(session, options.url, 30.0)
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
            group.create_task(ask(session, options.url, 0.0))
            if number % int(options.rate * options.think_every) == 0:
                group.create_task(ask(session, options.url, options.think))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--url", required=True)
    parser.add_argument("--rate", type=float, default=40.0, help="short requests a second")
    parser.add_argument("--think", type=float, default=8.0, help="seconds that a slow request takes")
    parser.add_argument("--think-every", type=float, default=2.0, help="seconds between slow requests")
    parser.add_argument("--seconds", type=float, default=600.0, help="longest run")
    asyncio.run(main(parser.parse_args()))
    sys.exit(0)
