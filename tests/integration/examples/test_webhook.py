"""The webhook forwarder: requests are signed, in order, and retried with a growing delay.

After a number of attempts an event becomes a dead letter.
"""

import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web

from common.upgrade import events as upgrade_events
from support.builders.example_upgrade import an_example_upgrade
from support.servers.loopback import served
from support.servers.outside import Outside
from support.waiting import eventually

from .conftest import TIMEOUT, Running, access, python, running

pytestmark = [pytest.mark.integration]

KEY = b"32 bytes that both sides know 12"
EVENTS = an_example_upgrade()
PAYLOADS = [upgrade_events.encode(event).payload for event in EVENTS]


class Request(msgspec.Struct, frozen=True):
    """A request that was received."""

    headers: dict[str, str]
    body: bytes

    @property
    def identity(self) -> str:
        return self.headers["webhook-id"]

    @property
    def is_signed(self) -> bool:
        signed = f"{self.identity}.{self.headers['webhook-timestamp']}.".encode() + self.body
        digest = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
        return hmac.compare_digest(self.headers["webhook-signature"], f"v1,{digest}")


class Receiver:
    """An HTTP server that refuses a given number of times."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.dead: list[Request] = []
        self.refuse: dict[str, int] = {}
        """How many more times an id is answered with 503."""
        self.port = 0

    async def take(self, request: web.Request) -> web.Response:
        came = Request(dict(request.headers), await request.read())
        self.requests.append(came)
        left = self.refuse.get(came.identity, 0)
        self.refuse[came.identity] = left - 1
        return web.Response(status=503 if left > 0 else 204)

    async def bury(self, request: web.Request) -> web.Response:
        self.dead.append(Request(dict(request.headers), await request.read()))
        return web.Response(status=200)

    @property
    def taken(self) -> list[str]:
        return [each.identity for each in self.requests]


@asynccontextmanager
async def _receiver() -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    app = web.Application()
    app.add_routes([web.post("/hook", receiver.take), web.post("/dead", receiver.bury)])
    async with served(app) as port:
        receiver.port = port
        yield receiver


def _variables(at: Outside, receiver: Receiver, folder: Path, **more: str) -> dict[str, str]:
    secret = folder / "secret"
    secret.write_text(f"whsec_{base64.b64encode(KEY).decode()}\n")
    return {
        **access(at),
        "WEBHOOK_URL": f"http://127.0.0.1:{receiver.port}/hook",
        "WEBHOOK_SECRET_FILE": str(secret),
        "WEBHOOK_FIRST_DELAY": "0.05",
        "NO_PROXY": "127.0.0.1",
        **more,
    }


def _logged(example: Running) -> list[dict[str, object]]:
    return [msgspec.json.decode(line) for line in example.out]


async def test_events_arrive_as_they_are_stored_signed_and_in_order(
    at: Outside, tmp_path: Path
) -> None:
    await at.publish(EVENTS)
    async with _receiver() as receiver:
        variables = _variables(at, receiver, tmp_path)
        async with running(*python("webhook", "forwarder.py"), variables=variables) as example:
            await eventually(
                lambda: len(receiver.requests) == len(EVENTS), within=TIMEOUT, what=str(example.err)
            )
            assert await example.end() == 0
    assert [each.body for each in receiver.requests] == PAYLOADS
    assert receiver.taken == [event.id for event in EVENTS]
    assert {each.headers["Content-Type"] for each in receiver.requests} == {
        "application/cloudevents+json"
    }
    assert all(each.is_signed for each in receiver.requests)


async def test_what_is_refused_is_tried_again_before_anything_else(
    at: Outside, tmp_path: Path
) -> None:
    async with _receiver() as receiver:
        receiver.refuse = {EVENTS[1].id: 3}
        async with running(
            *python("webhook", "forwarder.py"), variables=_variables(at, receiver, tmp_path)
        ) as example:
            await at.publish(EVENTS[:3])
            await eventually(
                lambda: len(receiver.requests) == 6, within=TIMEOUT, what=str(example.err)
            )
    assert receiver.taken == [EVENTS[0].id, *[EVENTS[1].id] * 4, EVENTS[2].id]
    delays = [
        each["seconds"] for each in _logged(example) if each["msg"] == "not accepted, retrying"
    ]
    assert delays == [0.05, 0.1, 0.2]


async def test_what_is_never_taken_is_a_dead_letter_and_does_not_stop_the_others(
    at: Outside, tmp_path: Path
) -> None:
    async with _receiver() as receiver:
        receiver.refuse = {EVENTS[0].id: 99}
        more = {
            "WEBHOOK_ATTEMPTS": "3",
            "DEAD_LETTER_URL": f"http://127.0.0.1:{receiver.port}/dead",
        }
        async with running(
            *python("webhook", "forwarder.py"), variables=_variables(at, receiver, tmp_path, **more)
        ) as example:
            await at.publish(EVENTS[:2])
            await eventually(
                lambda: len(receiver.requests) == 4, within=TIMEOUT, what=str(example.err)
            )
    assert receiver.taken == [*[EVENTS[0].id] * 3, EVENTS[1].id]
    assert [(each.identity, each.body, each.is_signed) for each in receiver.dead] == [
        (EVENTS[0].id, PAYLOADS[0], True)
    ]
    (letter,) = (each for each in _logged(example) if each["msg"] == "dead letter")
    assert letter == {
        "msg": "dead letter",
        "id": EVENTS[0].id,
        "attempt": 3,
        "problem": "status 503",
        "subject": "ray.events.default.greeter.started",
    }


async def test_a_new_process_goes_on_where_the_old_one_was_killed(
    at: Outside, tmp_path: Path
) -> None:
    async with _receiver() as receiver:
        variables = _variables(at, receiver, tmp_path)
        async with running(*python("webhook", "forwarder.py"), variables=variables) as first:
            await at.publish(EVENTS[:3])
            await eventually(
                lambda: len(receiver.requests) == 3, within=TIMEOUT, what=str(first.err)
            )
            await first.end()
        await at.publish(EVENTS[3:])
        async with running(*python("webhook", "forwarder.py"), variables=variables) as second:
            await eventually(
                lambda: len(receiver.requests) == len(EVENTS), within=TIMEOUT, what=str(second.err)
            )
    assert receiver.taken == [event.id for event in EVENTS]


@pytest.mark.parametrize(
    ("variable", "value", "reported"),
    [
        pytest.param(
            "WEBHOOK_URL", "", "WEBHOOK_URL is not set; see the top of forwarder.py", id="none"
        ),
        pytest.param(
            "WEBHOOK_ATTEMPTS",
            "many",
            "WEBHOOK_ATTEMPTS='many': expected a number of 1 or more",
            id="no number",
        ),
        pytest.param(
            "WEBHOOK_TIMEOUT",
            "nan",
            "WEBHOOK_TIMEOUT='nan': expected a number of 0.1 or more",
            id="no number",
        ),
    ],
)
async def test_an_error_is_one_line(
    at: Outside, tmp_path: Path, variable: str, value: str, reported: str
) -> None:
    variables = _variables(at, Receiver(), tmp_path, **{variable: value})
    async with running(*python("webhook", "forwarder.py"), variables=variables) as example:
        assert await example.ended() == 1
    assert example.err == [reported]


async def test_a_secret_that_is_none_is_not_shown(at: Outside, tmp_path: Path) -> None:
    variables = _variables(at, Receiver(), tmp_path)
    (tmp_path / "secret").write_text("in clear, by mistake")
    async with running(*python("webhook", "forwarder.py"), variables=variables) as example:
        assert await example.ended() == 1
    (line,) = example.err
    assert line.endswith("expected whsec_ and base64, as 'openssl rand -base64 32' makes it")
    assert "mistake" not in line
