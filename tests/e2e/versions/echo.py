"""A Serve application of few lines, for every version of Ray: it answers with `MESSAGE`."""

import os

from ray import serve
from starlette.requests import Request


@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.1})
class Echo:
    """Answers each request with the message of its version."""

    async def __call__(self, request: Request) -> str:
        return os.environ["MESSAGE"]


app = Echo.bind()
