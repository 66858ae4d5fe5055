"""Open-loop gRPC load in a pod: two streams a second of 2 to 10 s each over one channel; one JSON line a stream.

Two messages of one stream from two versions, or a stream that is cut, count as failed; nothing is sent a second time.
"""

import asyncio
import json
import random
import signal
import sys
import time

import grpc.aio
from ray.serve.generated import serve_pb2, serve_pb2_grpc

RATE = 2.0
APPLICATION = (("application", "greeter"),)


async def stream(stub: serve_pb2_grpc.UserDefinedServiceStub, messages: int) -> None:
    """Open one stream and print how it ended; it is whole when every message came, all from one version."""
    started = time.time()
    result: dict[str, object] = {"at": started, "think": messages / 4}
    try:
        call = stub.Streaming(
            serve_pb2.UserDefinedMessage(name="", foo="", num=messages), metadata=APPLICATION, timeout=messages / 4 + 10
        )
        versions = [answer.greeting async for answer in call]
        result["status"] = 200 if len(versions) == messages and len(set(versions)) == 1 else 500
        result["version"] = versions[0] if versions else None
    except grpc.aio.AioRpcError as problem:
        result["error"] = f"{problem.code()}: {problem.details()}"
    result["seconds"] = round(time.time() - started, 4)
    print(json.dumps(result), flush=True)


async def main(address: str) -> None:
    """Open streams on schedule until a signal arrives."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    lengths = random.Random(1)
    # A channel never sends a call twice unless it was never seen by a server; not even that is allowed here.
    options = [("grpc.enable_retries", 0)]
    async with grpc.aio.insecure_channel(address, options=options) as channel, asyncio.TaskGroup() as group:
        stub = serve_pb2_grpc.UserDefinedServiceStub(channel)
        begin, number = time.monotonic(), 0
        while not stop.is_set():
            group.create_task(stream(stub, lengths.randint(8, 40)))
            number += 1
            try:
                async with asyncio.timeout(max(0.0, begin + number / RATE - time.monotonic())):
                    await stop.wait()
            except TimeoutError:
                continue


asyncio.run(main(sys.argv[1]))
