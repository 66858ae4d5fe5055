"""The client that sets up clusters survives the end of an API server."""

import asyncio
import ssl

import httpx
import pytest

from localcluster import kubeconfig
from localcluster.api import ApiClient
from localcluster.kubeconfig import Access


@pytest.mark.parametrize(
    "problem", [ssl.SSLError("wrong version number"), httpx.ReadError("reset")], ids=str
)
def test_a_connection_that_breaks_anywhere_is_no_answer(
    problem: Exception, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    async def broken(
        _transport: httpx.AsyncHTTPTransport, _request: httpx.Request
    ) -> httpx.Response:
        raise problem

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", broken)
    created = kubeconfig.create(
        tmp_path_factory.mktemp("pki"), addresses=["127.0.0.1"], node="node"
    )
    access = Access(server="https://127.0.0.1:1", ca=created.ca.read_bytes(), token="token")

    async def answers() -> tuple[bool, object]:
        async with ApiClient(access) as api:
            return await api.is_ready(), await api.get("/api")

    assert asyncio.run(answers()) == (False, None)
