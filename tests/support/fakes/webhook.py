"""The servers that gates query, in memory: their answers over time, and the requests that they
received.
"""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any
from urllib.parse import urlsplit

import msgspec

from common import errors
from common.api.opaque import Json
from common.targets import Targets
from common.upgrade.outbound import OutboundRequest
from common.upgrade.webhook import Answer


class FakeServers:
    """Implements `common.upgrade.outbound.Outbound`."""

    def __init__(self, answer: Answer | None = None) -> None:
        self.asked: list[OutboundRequest] = []
        self.answer: Callable[[OutboundRequest], Answer] = lambda _: answer or replies("Pass")
        self.allowed: Targets | None = None
        """Servers that may be called; None allows every server."""

    @property
    def questions(self) -> list[Json]:
        """Return the bodies of the requests."""
        return [msgspec.json.decode(each.body) for each in self.asked if each.body is not None]

    def refusal(self, url: str, namespace: str) -> str | None:
        return None if self.allowed is None else self.allowed.refusal(urlsplit(url), namespace)

    async def send(self, request: OutboundRequest) -> Answer:
        self.asked.append(request)
        return self.answer(request)


def reaches(servers: FakeServers) -> Callable[[Targets], AbstractAsyncContextManager[FakeServers]]:
    """Return a function that gives access to these servers and records the allowed ones."""

    def reached(allowed: Targets) -> AbstractAsyncContextManager[FakeServers]:
        servers.allowed = allowed
        return nullcontext(servers)

    return reached


def replies(result: str, text: str = "", *, status: int = 200, retry_after: str = "") -> Answer:
    """Return the answer of a webhook."""
    body: dict[str, Any] = {"result": result, "text": text}
    return Answer(status=status, body=msgspec.json.encode(body), retry_after=retry_after)


def silent(_request: OutboundRequest) -> Answer:
    """Leave a request without an answer."""
    raise errors.Unavailable("does not answer within 10 s")
