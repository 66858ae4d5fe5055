"""Decisions about tokens and rights: requested from Kubernetes, kept for ten seconds, bounded, and
negative when it does not answer.
"""

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from common import errors
from common.api.opaque import Body
from raybus_cli.session import AccessDenied
from raybus_dashboard.incluster import attributes, reviews
from raybus_dashboard.incluster.attributes import Attributes
from raybus_dashboard.incluster.identity import InvalidCredentials, UserIdentity
from raybus_dashboard.incluster.reviews import RecentAnswers, Reviews
from support.tables import cases

ANN = UserIdentity(user="ann", groups=("team-a",), uid="1", extra=(("scopes", ("x",)),))
LIST = attributes.parse("GET", "/apis/ray.io/v1/namespaces/a/rayservices")
USER = {"username": "ann", "groups": ["team-a"], "uid": "1", "extra": {"scopes": ["x"]}}


class ApiServer:
    """Answers reviews."""

    def __init__(self) -> None:
        self.asked: list[Body] = []
        self.allows: Callable[[Body], Any] = lambda _spec: {"allowed": True}
        self.status: dict[str, Any] = {"authenticated": True, "user": USER}
        self.identifies: Callable[[Body], Any] = lambda _spec: self.status
        self.problem: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def request(self, method: str, path: str, *, body: Body | None = None) -> bytes:
        assert (method, body is not None) == ("POST", True)
        self.asked.append(body or {})
        await self.gate.wait()
        if self.problem is not None:
            raise self.problem
        spec = (body or {})["spec"]
        return msgspec.json.encode(
            {
                "status": self.allows(spec)
                if path == reviews.ACCESS_REVIEWS
                else self.identifies(spec)
            }
        )


class Time:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


@pytest.fixture
def server() -> ApiServer:
    return ApiServer()


@pytest.fixture
def now() -> Time:
    return Time()


async def test_a_right_is_asked_for_with_all_that_identifies_the_user_and_the_request(
    server: ApiServer, now: Time
) -> None:
    await Reviews(server, now=now).require(ANN, LIST)
    assert server.asked == [
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": "ann",
                "groups": ["team-a"],
                "uid": "1",
                "extra": {"scopes": ["x"]},
                "resourceAttributes": {
                    "verb": "list",
                    "group": "ray.io",
                    "version": "v1",
                    "resource": "rayservices",
                    "subresource": "",
                    "namespace": "a",
                    "name": "",
                },
            },
        }
    ]


@pytest.mark.parametrize(
    "status",
    [
        {"allowed": False},
        {},
        {"allowed": True, "denied": True},
        {"evaluationError": "role not found"},
    ],
)
async def test_a_missing_right_is_named(server: ApiServer, now: Time, status: Body) -> None:
    server.allows = lambda _spec: status
    with pytest.raises(AccessDenied, match=r"^cannot list rayservices in namespace a$"):
        await Reviews(server, now=now).require(ANN, LIST)


async def test_a_review_without_an_answer_is_no_permission(server: ApiServer, now: Time) -> None:
    found = Reviews(server, now=now)
    server.problem = errors.Unavailable("no")
    with pytest.raises(errors.Unavailable):
        await found.require(ANN, LIST)
    with pytest.raises(errors.Unavailable):
        await found.authenticate("t")


async def test_no_user_gets_the_right_of_another_one(server: ApiServer, now: Time) -> None:
    server.allows = lambda spec: {"allowed": spec["user"] == "ann" and spec["groups"] == ["team-a"]}
    found = Reviews(server, now=now)
    await found.require(ANN, LIST)
    for other in (
        msgspec.structs.replace(ANN, user="bob"),
        msgspec.structs.replace(ANN, groups=()),
        msgspec.structs.replace(ANN, groups=("team-b",)),
    ):
        with pytest.raises(AccessDenied):
            await found.require(other, LIST)


@pytest.mark.parametrize(
    "field", ["verb", "group", "version", "resource", "subresource", "namespace", "name"]
)
async def test_no_request_gets_the_right_of_another_one(
    server: ApiServer, now: Time, field: str
) -> None:
    found = Reviews(server, now=now)
    await found.require(ANN, LIST)
    server.allows = lambda _spec: {"allowed": False}
    other: Attributes = msgspec.structs.replace(LIST, **{field: "other"})
    with pytest.raises(AccessDenied):
        await found.require(ANN, other)


async def test_a_revoked_right_ends_ten_seconds_after_the_review_was_sent(
    server: ApiServer, now: Time
) -> None:
    found = Reviews(server, now=now)

    def slowly(_spec: Body) -> Body:
        now.at += 4
        return {"allowed": True}

    server.allows = slowly
    await found.require(ANN, LIST)
    server.allows = lambda _spec: {"allowed": False}
    now.at += 5.9
    await found.require(ANN, LIST)
    now.at += 0.2
    with pytest.raises(AccessDenied):
        await found.require(ANN, LIST)
    assert len(server.asked) == 2


async def test_a_granted_right_counts_after_ten_seconds_and_not_never(
    server: ApiServer, now: Time
) -> None:
    found = Reviews(server, now=now)
    server.allows = lambda _spec: {"allowed": False}
    for _ in range(3):
        with pytest.raises(AccessDenied):
            await found.require(ANN, LIST)
    assert len(server.asked) == 1
    server.allows = lambda _spec: {"allowed": True}
    now.at += 10
    await found.require(ANN, LIST)


async def test_a_token_is_reviewed_once_in_ten_seconds(server: ApiServer, now: Time) -> None:
    found = Reviews(server, ["raybus"], now=now)
    server.status = {**server.status, "audiences": ["raybus"]}
    assert await found.authenticate("t") == ANN
    assert await found.authenticate("t") == ANN
    assert [each["spec"] for each in server.asked] == [{"token": "t", "audiences": ["raybus"]}]
    server.status = {"authenticated": False}
    with pytest.raises(InvalidCredentials):
        await found.authenticate("other")
    now.at += 10
    for _ in range(2):
        with pytest.raises(InvalidCredentials):
            await found.authenticate("t")
    assert len(server.asked) == 3


@cases(
    ("status", "audiences"),
    {
        "no answer": ({}, []),
        "not authenticated": ({"authenticated": False, "user": USER}, []),
        "no user": ({"authenticated": True}, []),
        "a user alone": ({"user": USER}, []),
        "anonymous": ({"authenticated": True, "user": {"username": "system:anonymous"}}, []),
        "unauthenticated": (
            {"authenticated": True, "user": {**USER, "groups": ["system:unauthenticated"]}},
            [],
        ),
        "an authenticator without audiences": ({"authenticated": True, "user": USER}, ["raybus"]),
        "another audience": (
            {"authenticated": True, "user": USER, "audiences": ["other"]},
            ["raybus"],
        ),
    },
)
async def test_a_token_that_identifies_nobody(
    server: ApiServer, now: Time, status: dict[str, Any], audiences: list[str]
) -> None:
    server.status = status
    with pytest.raises(InvalidCredentials):
        await Reviews(server, audiences, now=now).authenticate("t")


def test_answers_are_bounded_and_the_oldest_is_dropped() -> None:
    found = RecentAnswers[int, int](lambda: 0.0, most=3)
    for key in (1, 2, 3, 1, 4):
        found.put(key, key, 0.0)
    assert [found.get(key) for key in (1, 2, 3, 4)] == [1, None, 3, 4]


async def test_reviews_at_once_are_bounded_and_the_next_is_refused(
    server: ApiServer, now: Time
) -> None:
    found = Reviews(server, now=now)
    server.gate.clear()
    bound = reviews.MAX_CONCURRENT_REVIEWS + reviews.MAX_WAITING_REQUESTS
    async with asyncio.TaskGroup() as group:
        for each in range(bound):
            group.create_task(found.authenticate(f"t{each}"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(server.asked) == reviews.MAX_CONCURRENT_REVIEWS
        with pytest.raises(errors.Throttled):
            await found.authenticate("one more")
        server.gate.set()
    assert len(server.asked) == bound
    await found.authenticate("later")


def _only(*tokens: str) -> Callable[[Body], Body]:
    """Return the status of a TokenReview that accepts only these tokens."""
    return lambda spec: {"authenticated": spec["token"] in tokens, "user": USER}


async def test_a_flood_of_bogus_tokens_throttles_no_signed_in_user(
    server: ApiServer, now: Time
) -> None:
    found = Reviews(server, now=now)
    server.identifies = _only("mine")
    assert await found.authenticate("mine") == ANN
    server.gate.clear()
    async with asyncio.TaskGroup() as group:
        for each in range(reviews.MAX_CONCURRENT_REVIEWS + reviews.MAX_WAITING_REQUESTS):
            group.create_task(_refused(found, f"bogus-{each}"))
        await asyncio.sleep(0)
        with pytest.raises(errors.Throttled):
            await found.authenticate("bogus")
        now.at += reviews.SECONDS
        asked = len(server.asked)
        renewed = group.create_task(found.authenticate("mine"))
        await asyncio.sleep(0)
        assert len(server.asked) == asked + 1
        server.gate.set()
        assert await renewed == ANN


async def test_rejected_tokens_drop_no_answer_about_an_accepted_one(
    server: ApiServer, now: Time
) -> None:
    found = Reviews(server, now=now)
    server.identifies = _only("mine")
    await found.authenticate("mine")
    for each in range(reviews.MAX_ANSWERS + 1):
        await _refused(found, f"bogus-{each}")
    asked = len(server.asked)
    assert await found.authenticate("mine") == ANN
    assert len(server.asked) == asked


async def test_a_token_that_expired_counts_as_a_new_one(server: ApiServer, now: Time) -> None:
    found = Reviews(server, now=now)
    await found.authenticate("mine")
    server.status = {"authenticated": False}
    now.at += reviews.SECONDS
    await _refused(found, "mine")
    now.at += reviews.SECONDS
    server.gate.clear()
    async with asyncio.TaskGroup() as group:
        for each in range(reviews.MAX_CONCURRENT_REVIEWS + reviews.MAX_WAITING_REQUESTS):
            group.create_task(_refused(found, f"bogus-{each}"))
        await asyncio.sleep(0)
        with pytest.raises(errors.Throttled):
            await found.authenticate("mine")
        server.gate.set()


async def _refused(found: Reviews, token: str) -> None:
    with pytest.raises(InvalidCredentials):
        await found.authenticate(token)
