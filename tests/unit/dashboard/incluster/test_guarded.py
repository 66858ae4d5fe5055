"""A client for one user: no request of any method leaves it without the user's right."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import RAY_SERVICE
from common.kube.rest_config import RestConfig
from raybus_cli.session import AccessDenied
from raybus_dashboard.incluster import server
from raybus_dashboard.incluster.attributes import Attributes, Unparsable
from raybus_dashboard.incluster.identity import UserIdentity

ANN = UserIdentity(user="ann")
OBJECT = {"metadata": {"name": "x"}}
PATCH = PatchRequest(body={})


async def _stream(kube: KubeClient) -> None:
    async with kube.stream(RAY_SERVICE.path("a"), query={"watch": "1"}):
        pass


CALLS: dict[str, Callable[[KubeClient], Awaitable[Any]]] = {
    "get rayservices x in namespace a": lambda kube: kube.get(RAY_SERVICE, "a", "x"),
    "list rayservices in namespace a": lambda kube: kube.list(RAY_SERVICE, "a"),
    "create rayservices in namespace a": lambda kube: kube.create(RAY_SERVICE, "a", OBJECT),
    "update rayservices x in namespace a": lambda kube: kube.replace(RAY_SERVICE, "a", OBJECT),
    "patch rayservices x in namespace a": lambda kube: kube.patch(RAY_SERVICE, "a", "x", PATCH),
    "delete rayservices x in namespace a": lambda kube: kube.delete(RAY_SERVICE, "a", "x"),
    "deletecollection rayservices in namespace a": lambda kube: kube.delete_collection(
        RAY_SERVICE, "a", label_selector="x=y"
    ),
    "watch rayservices in namespace a": _stream,
}


class Rights:
    """Refuses all rights, and records the requested ones."""

    def __init__(self) -> None:
        self.asked: list[tuple[UserIdentity, str]] = []

    async def require(self, identity: UserIdentity, wanted: Attributes) -> None:
        self.asked.append((identity, str(wanted)))
        raise AccessDenied(f"cannot {wanted}")


@pytest.mark.parametrize("wanted", CALLS)
async def test_each_request_needs_its_right_before_it_is_sent(wanted: str) -> None:
    rights = Rights()
    # Nothing listens there: a request that is sent would be `Unavailable`.
    kube = server.create_client(RestConfig(server="http://127.0.0.1:9"), ANN, rights)
    try:
        with pytest.raises(AccessDenied, match=wanted):
            await CALLS[wanted](kube)
    finally:
        await kube.close()
    assert rights.asked == [(ANN, wanted)]


async def test_a_request_that_cannot_be_parsed_is_not_sent() -> None:
    kube = server.create_client(RestConfig(server="http://127.0.0.1:9"), ANN, Rights())
    try:
        with pytest.raises(Unparsable):
            await kube.request("GET", "/api/v1/namespaces/a/../b/pods")
    finally:
        await kube.close()
