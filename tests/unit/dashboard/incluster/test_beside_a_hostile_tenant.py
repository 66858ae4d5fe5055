"""A tenant with 40 RayServices of the worst 1 MB does not delay the answers to other users."""

import asyncio
import socket
import statistics
import time
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from typing import Final, cast

import aiohttp
import msgspec

from common import errors
from common.api.opaque import Body
from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE, Resource
from raybus_dashboard.board import EventFeed
from raybus_dashboard.incluster import server
from raybus_dashboard.incluster.attributes import Attributes
from raybus_dashboard.incluster.authentication import Authentication
from raybus_dashboard.incluster.identity import UserIdentity
from raybus_dashboard.incluster.server import OWN, HandlerDependencies
from raybus_dashboard.incluster.sessions import BoardSessions
from raybus_dashboard.polling import Connect
from support.builders.snapshots import READY, a_condition, a_service

SIZE: Final = 10**6
COUNT: Final = 40
REQUESTS: Final = 200
USERS: Final = 20
MAX_TURN: Final = 0.25
"""Maximum seconds of processor time between two turns of the event loop."""
MAX_WAIT: Final = 30
"""Maximum seconds on the clock until an answer: a page that waits without work also fails."""
MAX_ANSWER: Final = 2 * MAX_TURN
"""Maximum seconds of processor time until an answer (p99).

All threads of this process count. Time on the clock would count other processes, too.
"""
HOSTILE, OTHER = "hostile", "other"


def _filled(unit: str, before: str = "", after: str = "") -> str:
    return before + unit * ((SIZE - len(before) - len(after)) // len(unit)) + after


CONFIGS: Final = {
    "a list of numbers": _filled("1,", "a: [", "]"),
    "applications without a name": _filled("- {}\n", "applications:\n")[: 60 * 2**10],
    "unknown fields": _filled("- {x: 1, y: 2}\n", "applications:\n")[: 60 * 2**10],
    "lists in a list": _filled("[],", "a: [", "]"),
}
MESSAGE: Final = "Ray refused the Serve config: " + "'loc': (1), 'msg': '" * 1600


class Kube:
    """The API server: each list has new versions of the tenant's objects."""

    def __init__(self) -> None:
        self.lists = 0
        self.is_listed = asyncio.Event()
        condition = a_condition(
            "Ready",
            "False",
            reason="Initializing",
            message=f"RayService is initializing: {MESSAGE}",
        )
        self._bodies: list[Body] = []
        for number, config in zip(range(COUNT), list(CONFIGS.values()) * COUNT, strict=False):
            body: Body = a_service(condition)
            body["metadata"] |= {"name": f"x{number}", "namespace": HOSTILE, "uid": f"u{number}"}
            body["spec"]["serveConfigV2"] = f"# {number}\n{config}"
            self._bodies.append(body)
        self._small: Body = a_service(READY)
        self._small["metadata"] |= {"name": "demo", "namespace": OTHER, "resourceVersion": "1"}

    async def list(self, resource: Resource, namespace: str | None, **_more: object) -> bytes:
        if resource is not RAY_SERVICE:
            return b'{"items": []}'
        if namespace == OTHER:
            return msgspec.json.encode({"items": [self._small]})
        self.lists += 1
        self.is_listed.set()
        for body in self._bodies:
            body["metadata"]["resourceVersion"] = str(self.lists)
        return msgspec.json.encode({"items": self._bodies})

    async def get(self, resource: Resource, namespace: str, name: str) -> bytes:
        if resource is RAY_SERVICE and namespace == HOSTILE:
            return msgspec.json.encode(self._bodies[int(name.removeprefix("x"))])
        if resource is RAY_SERVICE:
            return msgspec.json.encode(self._small)
        raise errors.NotFound(name)

    async def close(self) -> None:
        pass


class Tokens:
    """Uses the token as the name of the user."""

    async def authenticate(self, token: str) -> UserIdentity:
        return UserIdentity(user=token)


class Rights:
    """Allows everything."""

    async def require(self, identity: UserIdentity, wanted: Attributes) -> None:
        pass


@asynccontextmanager
async def _served(kube: Kube) -> AsyncGenerator[str]:
    async def connect() -> KubeClient:
        return cast("KubeClient", kube)

    def connect_as(_identity: UserIdentity) -> Connect:
        return connect

    service = HandlerDependencies(
        authentication=Authentication(tokens=Tokens()),
        rights=Rights(),
        sessions=BoardSessions(connect_as, has_controls=False, event_feed=EventFeed.OFF),
        connect=connect_as,
        allows_actions=False,
        namespace=None,
    )
    listening = socket.create_server(("127.0.0.1", 0))
    async with server.serve(listening, None, service) as address:
        yield address


async def _open_page(
    client: aiohttp.ClientSession, user: str, query: Mapping[str, str]
) -> tuple[float, float]:
    """Return the seconds of processor time until a new page has its first event, and its rows."""
    began, answered = time.process_time(), 0.0
    headers = {OWN: "1", "Authorization": f"Bearer {user}"}
    async with (
        asyncio.timeout(MAX_WAIT),
        client.get("/events", params=query, headers=headers) as answer,
    ):
        assert answer.status == 200
        async for line in answer.content:
            answered = answered or time.process_time() - began
            if line.startswith(b"event: rows"):
                return answered, time.process_time() - began
    raise AssertionError("no rows")


async def _open_pages(client: aiohttp.ClientSession, name: str) -> tuple[float, float]:
    """Return the p99 of the processor time until the first event of a page, and until its rows."""
    pages = [
        await _open_page(client, f"{name}-{number % USERS}", {"namespace": OTHER})
        for number in range(REQUESTS)
    ]
    answered, listed = (statistics.quantiles(each, n=100)[-1] for each in zip(*pages, strict=True))
    return answered, listed


async def _keep_open(client: aiohttp.ClientSession, name: str) -> None:
    headers = {OWN: "1", "Authorization": "Bearer mallory"}
    query = {"namespace": HOSTILE, "service": f"{HOSTILE}/{name}"}
    async with client.get("/events", params=query, headers=headers) as answer:
        async for _ in answer.content.iter_any():
            pass


async def _measure_turns(longest: list[float]) -> None:
    """Measure the processor time of the event loop's thread between two turns."""
    while True:
        before = time.thread_time()
        await asyncio.sleep(0.005)
        longest[0] = max(longest[0], time.thread_time() - before)


async def test_other_users_get_their_answers_beside_a_hostile_tenant() -> None:
    kube, longest = Kube(), [0.0]
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        _served(kube) as address,
        aiohttp.ClientSession(address, connector=connector, read_bufsize=2**20) as client,
        asyncio.TaskGroup() as group,
    ):
        running = [group.create_task(_keep_open(client, f"x{each}")) for each in range(4)]
        running.append(group.create_task(_measure_turns(longest)))
        await kube.is_listed.wait()
        answered, listed = await _open_pages(client, "user")
        for task in running:
            task.cancel()
    assert longest[0] < MAX_TURN
    assert answered < MAX_ANSWER
    assert listed < MAX_ANSWER
