"""A small Serve application: it says which version answered, at once or after some seconds of thought."""

import asyncio
import os

from ray import serve
from starlette.requests import Request


@serve.deployment(
    num_replicas=2,
    max_ongoing_requests=200,
    ray_actor_options={"num_cpus": 0.1},
    graceful_shutdown_timeout_s=20,
)
class Greeter:
    """Answers `GET /` and `GET /?think=SECONDS`."""

    async def __call__(self, request: Request) -> dict[str, str]:
        """Return the version that this replica's pod was started with."""
        await asyncio.sleep(float(request.query_params.get("think", "0")))
        return {"version": os.environ.get("MODEL_VERSION", "unknown")}


app = Greeter.bind()
