"""The connection of the page to the API server is renewed when the login has expired."""

from typing import cast

import pytest

from common import errors
from common.kube.client import KubeClient
from raybus_dashboard.polling import Connection
from support.fakes.kube import FakeKube


class Client(FakeKube):
    async def close(self) -> None:
        """Do nothing: the fake has no connection."""


@pytest.mark.parametrize(
    ("problem", "connections"),
    [
        (errors.Unauthorized("401: token expired"), 2),
        (errors.Forbidden("403: user Unauthorized may not list pods"), 1),
        (errors.Unavailable("no answer"), 1),
    ],
)
async def test_only_an_expired_login_renews_the_connection(
    problem: errors.RaybusError, connections: int
) -> None:
    opened: list[KubeClient] = []

    async def connect() -> KubeClient:
        opened.append(cast("KubeClient", Client()))
        return opened[-1]

    connection = Connection(connect)
    await connection.get_client()
    connection.describe(problem)
    await connection.renew()
    await connection.get_client()
    assert len(opened) == connections
