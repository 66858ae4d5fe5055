"""A Serve application with log-normal latencies that gets worse as FAULT in the pods' environment asks; FAULT is a JSON object.

`slower` multiplies the latencies; `errors` is the fraction of requests that fail, of `path` alone, from `after` seconds on, or where `busy`
other requests are under way; from request `hangs_after` on none is answered; from request `wrong_from` on another model answers.
"""

import asyncio
import json
import os
import random
import time
from collections.abc import AsyncGenerator

from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse
from ray import serve

FAULT = json.loads(os.environ.get("FAULT", "{}"))
MEDIAN = 0.05
"""Seconds that an answer takes."""
SPREAD = 0.3
VERSION = os.environ.get("MODEL_VERSION", "unknown")

api = FastAPI()


async def chunks(seconds: float) -> AsyncGenerator[str, None]:
    """Yield a line each second, the last one by its name."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        yield f"{VERSION}\n"
        await asyncio.sleep(1)
    yield "end\n"


@serve.deployment(
    num_replicas=1,
    max_ongoing_requests=200,
    ray_actor_options={"num_cpus": 0.1},
    graceful_shutdown_timeout_s=float(os.environ.get("SHUTDOWN_SECONDS", "2")),
)
@serve.ingress(api)
class Greeter:
    """Answers `/`, `/other` and `/stream?seconds=N`."""

    def __init__(self) -> None:
        self.first: float | None = None
        self.requests = 0
        self.under_way = 0

    @api.get("/")
    @api.get("/other")
    async def answer(self, request: Request) -> dict[str, str]:
        """Return the version and the model."""
        self.first = self.first or time.monotonic()
        self.requests += 1
        is_wrong = 0 < FAULT.get("wrong_from", 0) <= self.requests
        if 0 < FAULT.get("hangs_after", 0) < self.requests:
            time.sleep(3600)
        self.under_way += 1
        others = self.under_way - 1
        try:
            await asyncio.sleep(MEDIAN * random.lognormvariate(0, SPREAD) * FAULT.get("slower", 1))
        finally:
            self.under_way -= 1
        if self._fails(request.url.path, others):
            raise HTTPException(status_code=500, detail="this version fails as FAULT asks")
        return {"version": VERSION, "model": "other" if is_wrong else "right"}

    def _fails(self, path: str, others: int) -> bool:
        is_meant = path == FAULT.get("path", path) and others >= FAULT.get("busy", 0)
        is_late = time.monotonic() - (self.first or 0) >= FAULT.get("after", 0)
        return is_meant and is_late and random.random() < FAULT.get("errors", 0)

    @api.get("/stream")
    async def stream(self, seconds: float) -> StreamingResponse:
        """Stream for so many seconds."""
        return StreamingResponse(chunks(seconds), media_type="text/plain")


app = Greeter.bind()
