"""Queries to the servers of gates: one for each step, repeated until there is an answer, and few at
the same time for one tenant.
"""

import asyncio
import base64
import hashlib
import hmac
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import msgspec
import pytest

from common import errors, signature
from common.kube.resources import SECRET
from common.runtime.background import Background
from common.targets import Targets
from common.upgrade import inquiries, webhook
from common.upgrade.candidate import Candidate
from common.upgrade.gate_types import PrometheusGate, WebhookGate
from common.upgrade.gates import GateOutcome, GateResult
from common.upgrade.inquiries import Inquiries
from common.upgrade.outbound import OutboundRequest
from common.upgrade.webhook import Answer, Checkpoint
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube
from support.fakes.prometheus import vector
from support.fakes.webhook import FakeServers, replies, silent

KEY: Final = b"32 bytes that both sides know 12"
TEXT: Final = f"whsec_{base64.b64encode(KEY).decode()}"
GATE: Final = WebhookGate(title="webhook", url="https://checks.example.com/a?token=t0ken")


def a_step(uid: str = "u", namespace: str = "team", weight: int = 10) -> Checkpoint:
    return Checkpoint(
        namespace=namespace,
        service="demo",
        policy="careful",
        candidate=Candidate(cluster_uid=uid, config="c"),
        old="demo-a",
        new="demo-b",
        weight=weight,
    )


class Asking:
    """Inquiries with their server, key and clock."""

    def __init__(self, *namespaces: str) -> None:
        self.clock, self.kube, self.servers = FakeClock(), FakeKube(), FakeServers()
        for each in namespaces or ("team",):
            self.put_key(each)
        self.background = Background()
        self.inquiries = Inquiries(self.kube, self.servers, self.background, self.clock)

    def put_key(
        self, namespace: str = "team", text: str = TEXT, field: str = webhook.SECRET_KEY
    ) -> None:
        data = {field: base64.b64encode(text.encode()).decode()}
        self.kube.put(
            SECRET,
            {"metadata": {"name": webhook.SECRET_NAME, "namespace": namespace}, "data": data},
        )

    async def ask(self, step: Checkpoint | None = None, gate: WebhookGate = GATE) -> GateResult:
        step = step or a_step()
        await self.inquiries.ask(step, (gate,))
        return (await self.inquiries.ask(step, (gate,)))[gate]

    async def ask_for(self, seconds: float) -> GateResult:
        for _ in range(round(seconds)):
            self.clock.advance(1)
            await self.ask()
        return await self.ask()


async def test_a_gate_is_asked_once_at_a_step_and_again_at_the_next() -> None:
    asking = Asking()
    assert (await asking.ask()).outcome is GateOutcome.PASS
    await asking.ask_for(600)
    assert len(asking.servers.asked) == 1
    await asking.ask(a_step(weight=25))
    assert [each["weight"] for each in asking.servers.questions] == [10, 25]


async def test_the_question_is_signed_with_the_key_of_the_namespace() -> None:
    asking = Asking()
    await asking.ask()
    (sent,) = asking.servers.asked
    assert sent.body is not None
    signed = (
        f"{sent.headers['webhook-id']}.{sent.headers['webhook-timestamp']}.".encode() + sent.body
    )
    digest = base64.b64encode(hmac.new(KEY, signed, hashlib.sha256).digest()).decode()
    assert sent.headers["webhook-signature"] == f"v1,{digest}"
    assert sent.headers["webhook-timestamp"] == str(int(asking.clock.now().timestamp()))
    assert (sent.url, sent.namespace, sent.headers["Content-Type"]) == (
        GATE.url,
        "team",
        "application/json",
    )


async def test_a_server_without_an_answer_is_asked_ever_later_with_the_same_id() -> None:
    asking = Asking()
    asking.servers.answer = silent
    found = await asking.ask_for(600)
    assert found.outcome is GateOutcome.INCONCLUSIVE
    assert found.text == "webhook: checks.example.com does not answer within 10 s"
    assert 10 <= len(asking.servers.asked) <= 16
    assert len({each["id"] for each in asking.servers.questions}) == 1
    asking.servers.answer = lambda _: replies("Pass")
    assert (await asking.ask_for(60)).outcome is GateOutcome.PASS


async def test_wait_is_asked_again_and_the_last_answer_holds() -> None:
    asking = Asking()
    asking.servers.answer = lambda _: replies("Wait", "tests run")
    found = await asking.ask()
    assert (found.outcome, found.text) == (
        GateOutcome.INCONCLUSIVE,
        "webhook: checks.example.com answered Wait: tests run",
    )
    await asking.ask_for(29)
    assert len(asking.servers.asked) == 1
    asking.servers.answer = lambda _: replies("Fail", "no")
    assert (await asking.ask_for(1)).outcome is GateOutcome.FAIL


async def test_the_questions_of_one_step_have_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "MAX_TIMES", 3)
    asking = Asking()
    asking.servers.answer = silent
    found = await asking.ask_for(300)
    assert len(asking.servers.asked) == 3
    assert found.text.endswith("; it was asked 3 times, and is asked no more at this step")


@pytest.mark.parametrize("text", ["", "in clear", "whsec_c2hvcnQ=", "whsec_é", "whsec_" + "A" * 21])
async def test_a_key_that_is_none_signs_nothing_and_is_not_repeated(text: str) -> None:
    asking = Asking()
    asking.put_key(text=text)
    found = await asking.ask()
    assert asking.servers.asked == []
    assert found.outcome is GateOutcome.INCONCLUSIVE
    assert found.text.startswith(
        "webhook: checks.example.com is not asked: Secret team/raybus-webhook-key: the value of key is not whsec_ and base64"
    )
    assert not text or text not in found.text


async def test_without_a_key_nothing_is_sent_and_the_text_has_the_command() -> None:
    asking = Asking("another")
    found = await asking.ask()
    assert asking.servers.asked == []
    assert (
        "Secret team/raybus-webhook-key with the signing key does not exist; create it: kubectl create secret"
        in found.text
    )
    asking.put_key()
    assert (await asking.ask_for(2)).outcome is GateOutcome.PASS


async def test_a_key_under_another_field_is_not_read() -> None:
    asking = Asking()
    asking.put_key(field="password")
    assert (await asking.ask()).outcome is GateOutcome.INCONCLUSIVE
    assert asking.servers.asked == []


async def test_neither_key_nor_path_nor_query_is_in_a_text() -> None:
    asking = Asking()
    for given in (None, replies("Fail", status=500), replies("Wait", "later")):
        asking.servers.answer = silent if given is None else lambda _, given=given: given
        found = await asking.ask_for(100)
        for secret in ("t0ken", TEXT, KEY.decode(), "/a?"):
            assert secret not in found.text


class Hanging(FakeServers):
    """Servers in one namespace that never answer."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0

    async def send(self, request: OutboundRequest) -> Answer:
        if request.namespace == "team":
            self.waiting += 1
            try:
                await asyncio.Event().wait()
            finally:
                self.waiting -= 1
        return await super().send(request)


@asynccontextmanager
async def running(background: Background) -> AsyncGenerator[None]:
    task = asyncio.get_running_loop().create_task(background.run())
    await asyncio.sleep(0)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)  # noqa: TID251


async def test_a_tenant_with_hanging_servers_keeps_few_requests_under_way_and_no_other_tenant_waits() -> (
    None
):
    asking = Asking("team", "other")
    servers = Hanging()
    asking.inquiries = Inquiries(asking.kube, servers, asking.background, asking.clock)
    async with running(asking.background):
        for number in range(200):
            await asking.inquiries.ask(a_step(f"u-{number}"), (GATE,))
        for _ in range(5):
            await asyncio.sleep(0)
        assert servers.waiting == inquiries.OF_A_NAMESPACE
        other = a_step("v", "other")
        await asking.inquiries.ask(other, (GATE,))
        for _ in range(5):
            await asyncio.sleep(0)
        assert (await asking.inquiries.ask(other, (GATE,)))[GATE].outcome is GateOutcome.PASS
        for number in range(200):
            asking.inquiries.forget(f"u-{number}")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert servers.waiting == 0
        await asking.inquiries.ask(a_step("u-7"), (GATE,))
        for _ in range(5):
            await asyncio.sleep(0)
        assert servers.waiting == 1


async def test_an_edited_address_is_asked_and_what_another_server_answered_does_not_count() -> None:
    asking = Asking()
    await asking.ask()
    asking.servers.answer = silent
    other = msgspec.structs.replace(GATE, url="https://other.example.com")
    assert (await asking.ask(gate=other)).outcome is GateOutcome.INCONCLUSIVE
    assert (await asking.ask()).outcome is GateOutcome.INCONCLUSIVE, (
        "nothing is kept of a gate that an edit removed"
    )


async def test_a_secret_that_may_not_be_read_is_reported() -> None:
    asking = Asking()
    asking.kube.faults.append(
        lambda request: errors.Forbidden("no") if request.kind == SECRET.kind else None
    )
    assert "Secret team/raybus-webhook-key cannot be read: no" in (await asking.ask()).text


def test_the_key_has_the_form_of_notifications() -> None:
    assert signature.read_key(TEXT) == KEY


# --- queries of Prometheus ---------------------------------------------------------------------------------------------

QUERY: Final = PrometheusGate(
    title="prometheus", url="http://prom.example.com", query="a{b='$service'}", max=0.5
)


async def test_a_query_is_put_every_15_seconds_while_the_step_lasts_without_a_key() -> None:
    asking = Asking("another")
    asking.servers.answer = lambda _: vector("0.4")
    for _ in range(60):
        await asking.inquiries.ask(a_step(), (QUERY,))
        asking.clock.advance(1)
    assert len(asking.servers.asked) == 4
    sent = asking.servers.asked[0]
    assert sent.url.startswith("http://prom.example.com/api/v1/query?query=a%7Bb%3D%27demo%27%7D&")
    assert (sent.body, sent.namespace) == (None, "team")
    assert not any("webhook" in each for each in sent.headers)


async def test_a_query_passes_and_fails_by_what_was_answered_last() -> None:
    asking, found = Asking(), list[GateOutcome]()
    answers = iter([*("0.4", "0.6", "0.6", "0.4", "0.6", "0.6", "0.6")])
    asking.servers.answer = lambda _: vector(next(answers))
    for _ in range(7):
        found.append((await asking.inquiries.ask(a_step(), (QUERY,)))[QUERY].outcome)
        asking.clock.advance(15)
    wait = GateOutcome.INCONCLUSIVE
    assert found == [GateOutcome.PASS, wait, wait, GateOutcome.PASS, wait, wait, GateOutcome.FAIL]


async def test_a_missing_value_begins_the_evidence_anew() -> None:
    asking, found = Asking(), list[GateOutcome]()
    answers = iter(["0.6", "0.6", None, "0.6", "0.6", "0.6"])
    asking.servers.answer = lambda _: (
        vector() if (value := next(answers)) is None else vector(value)
    )
    for _ in range(6):
        found.append((await asking.inquiries.ask(a_step(), (QUERY,)))[QUERY].outcome)
        asking.clock.advance(15)
    assert found == [GateOutcome.INCONCLUSIVE] * 5 + [GateOutcome.FAIL]


async def test_the_values_of_another_step_do_not_count() -> None:
    asking = Asking()
    asking.servers.answer = lambda _: vector("0.6")
    for weight in (10, 10, 25, 25):
        found = (await asking.inquiries.ask(a_step(weight=weight), (QUERY,)))[QUERY]
        asking.clock.advance(15)
        assert found.outcome is GateOutcome.INCONCLUSIVE


async def test_a_prometheus_that_is_silent_passes_nothing_and_a_refused_one_is_not_asked() -> None:
    asking = Asking()
    asking.servers.answer = silent
    found = (await asking.inquiries.ask(a_step(), (QUERY,)))[QUERY]
    assert found.text == "prometheus: prom.example.com does not answer within 10 s"
    asking = Asking()
    asking.servers.allowed = Targets()
    found = (await asking.inquiries.ask(a_step(), (QUERY,)))[QUERY]
    assert (
        "prom.example.com is not asked: http://prom.example.com:80 is not a server that the administrator"
        in found.text
    )
    assert asking.servers.asked == []


async def test_queries_that_hang_count_among_those_of_their_tenant() -> None:
    asking = Asking()
    servers = Hanging()
    asking.inquiries = Inquiries(asking.kube, servers, asking.background, asking.clock)
    async with running(asking.background):
        for number in range(200):
            await asking.inquiries.ask(a_step(f"u-{number}"), (QUERY, GATE))
        for _ in range(5):
            await asyncio.sleep(0)
        assert servers.waiting == inquiries.OF_A_NAMESPACE
