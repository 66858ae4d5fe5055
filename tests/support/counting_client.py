"""A client of the API server that records its requests, so that a test can count them."""

from collections.abc import Mapping

from common.api.opaque import Body
from common.kube.client import KubeClient, Operations
from common.kube.rest_config import RestConfig


class CountingClient(KubeClient):
    """Client that records each request as `METHOD path`, refused requests included."""

    def __init__(self, configuration: RestConfig, *, user_agent: str) -> None:
        super().__init__(configuration, user_agent=user_agent)
        self.requests: list[str] = []

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Body | Operations | None = None,
        headers: Mapping[str, str] | None = None,
        max_size: int | None = None,
    ) -> bytes:
        self.requests.append(f"{method} {path}")
        return await super().request(
            method, path, query=query, body=body, headers=headers, max_size=max_size
        )

    def writes(self) -> list[str]:
        """Return the requests that change an object other than an Event."""
        return [
            each
            for each in self.requests
            if not each.startswith("GET ") and not each.endswith("/events")
        ]
