"""A small Serve application: it answers with its version, at once, after some seconds, or repeatedly.

To see what a gate does with a bad version, FAIL_PERCENT in the pods' environment has so many percent of the requests fail.
"""

import asyncio
import os
import random
from collections.abc import AsyncGenerator

from ray import serve
from ray.serve.generated.serve_pb2 import UserDefinedMessage, UserDefinedResponse
from starlette.requests import Request


@serve.deployment(
    num_replicas=2,
    max_ongoing_requests=200,
    ray_actor_options={"num_cpus": 0.1},
    graceful_shutdown_timeout_s=20,
)
class Greeter:
    """Answers `GET /` and `GET /?think=SECONDS`; and, where Serve has a gRPC port, streams `num` messages."""

    async def __call__(self, request: Request) -> dict[str, str]:
        """Return the version that this replica's pod was started with."""
        await asyncio.sleep(float(request.query_params.get("think", "0")))
        if random.random() * 100 < float(os.environ.get("FAIL_PERCENT", "0")):
            raise RuntimeError("this version fails as FAIL_PERCENT asks")
        return {"version": os.environ.get("MODEL_VERSION", "unknown")}

    async def Streaming(self, request: UserDefinedMessage) -> AsyncGenerator[UserDefinedResponse, None]:
        """Send the version once each quarter of a second; the name is that of Ray's own service definition."""
        for _ in range(request.num):
            await asyncio.sleep(0.25)
            yield UserDefinedResponse(greeting=os.environ.get("MODEL_VERSION", "unknown"))


app = Greeter.bind()
