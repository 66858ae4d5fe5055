"""The servers that the gates of running upgrades ask, in the background: no reconcile waits for one.

A webhook is asked once at each step, and again until there is an answer; what was answered is forgotten with the process, which asks again
with the same id. A query of Prometheus is put again and again while the step lasts. A tenant's servers that hang keep at most `OF_A_NAMESPACE` requests under way: what finds no room is asked at a later reconcile.
"""

import asyncio
import base64
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Final

import msgspec

from common import errors, signature
from common.api.core import Data
from common.clock import Clock
from common.kube.client import Kube
from common.kube.resources import SECRET
from common.runtime.background import Background
from common.upgrade import prometheus, webhook
from common.upgrade.gate_types import AnyGate, AskingGate, PrometheusGate, WebhookGate
from common.upgrade.gates import Result
from common.upgrade.outbound import Outbound, Request
from common.upgrade.prometheus import Readings
from common.upgrade.webhook import Answer, Reply, Step

AT_ONCE: Final = 128
"""Requests under way, of all namespaces."""
OF_A_NAMESPACE: Final = 4
REMEMBERED: Final = 8192


class _Inquiry(msgspec.Struct):
    """What one gate came to at one step."""

    times: int = 0
    due_at: float = 0.0
    problem: str | None = None
    """Why there is no answer to the last question."""
    task: asyncio.Task[None] | None = None

    def is_due(self, now: float) -> bool:
        """Return whether the server is to be asked."""
        return (self.task is None or self.task.done()) and now >= self.due_at


class _WebhookInquiry(_Inquiry):
    """What a webhook answered."""

    reply: Reply | None = None

    def is_due(self, now: float) -> bool:
        is_answered = self.reply is not None and self.reply.is_final
        return super().is_due(now) and not is_answered and self.times < webhook.MOST_TIMES

    def take(self, answer: Answer) -> float:
        """Take an answer, and return the seconds until the next question."""
        self.reply, self.problem = webhook.read(answer), None
        return webhook.wait(answer)

    def miss(self, problem: errors.RaybusError) -> float:
        """Take why there is no answer, and return the seconds until the next question."""
        self.reply, self.problem = None, _problem(problem, self.times)
        return webhook.pause(self.times)


class _PrometheusInquiry(_Inquiry):
    """What Prometheus answered."""

    readings: Readings = Readings()

    def take(self, gate: PrometheusGate, answer: Answer, *, now: float) -> None:
        """Take an answer."""
        self.readings, self.problem = prometheus.after(self.readings, gate, prometheus.read(answer), now=now), None

    def miss(self, problem: errors.RaybusError) -> None:
        """Take why there is no value."""
        self.readings, self.problem = Readings(), str(problem)


class _Upgrade(msgspec.Struct):
    """What is asked for one upgrade."""

    moment: tuple[int, datetime | None]
    webhooks: dict[WebhookGate, _WebhookInquiry] = {}
    queries: dict[PrometheusGate, _PrometheusInquiry] = {}

    def keep(self, asked: Sequence[AskingGate]) -> None:
        """Drop the gates that an edit of the policy removed or changed."""
        removed = [*(self.webhooks.keys() | self.queries.keys()).difference(asked)]
        for gate in removed:
            inquiry = self.webhooks.pop(gate) if isinstance(gate, WebhookGate) else self.queries.pop(gate)
            if inquiry.task is not None:
                inquiry.task.cancel()


class Inquiries:
    """Asks the servers of the gates of the upgrades of this replica."""

    def __init__(self, kube: Kube, outbound: Outbound, background: Background, clock: Clock) -> None:
        self._kube = kube
        self._outbound = outbound
        self._background = background
        self._clock = clock
        self._upgrades: OrderedDict[str, _Upgrade] = OrderedDict()
        """By the uid of the pending cluster."""
        self._under_way: Counter[str] = Counter()
        """By namespace."""

    async def of(self, step: Step, asked: Sequence[AskingGate]) -> Mapping[AnyGate, Result]:
        """Return what the gates that ask a server came to at a step so far, and ask on."""
        uid = step.upgrade_uid
        held = self._upgrades.get(uid)
        if held is None or held.moment != step.moment:
            self.forget(uid)
            held = self._upgrades[uid] = _Upgrade(moment=step.moment)
        self._upgrades.move_to_end(uid)
        while len(self._upgrades) > REMEMBERED:
            self.forget(next(iter(self._upgrades)))
        held.keep(asked)
        found: dict[AnyGate, Result] = {}
        for gate in asked:
            if isinstance(gate, WebhookGate):
                inquiry = held.webhooks.setdefault(gate, _WebhookInquiry())
                await self._begin(step, inquiry, partial(self._ask_webhook, step, gate, inquiry))
                found[gate] = webhook.result(gate, inquiry.reply, inquiry.problem)
            else:
                query = held.queries.setdefault(gate, _PrometheusInquiry())
                await self._begin(step, query, partial(self._ask_prometheus, step, gate, query))
                found[gate] = prometheus.result(gate, query.readings, query.problem, now=self._clock.monotonic())
        return found

    def forget(self, uid: str) -> None:
        """Drop what is known of an upgrade, and end what is under way for it."""
        held = self._upgrades.pop(uid, None)
        for each in () if held is None else (*held.webhooks.values(), *held.queries.values()):
            if each.task is not None:
                each.task.cancel()

    async def _begin(self, step: Step, inquiry: _Inquiry, ask: Callable[[], Awaitable[None]]) -> None:
        if inquiry.is_due(self._clock.monotonic()):
            inquiry.task = await self._background.start(self._ask(step.namespace, inquiry, ask))

    async def _ask(self, namespace: str, inquiry: _Inquiry, ask: Callable[[], Awaitable[None]]) -> None:
        if self._under_way[namespace] >= OF_A_NAMESPACE or self._under_way.total() >= AT_ONCE:
            return
        self._under_way[namespace] += 1
        inquiry.times += 1
        try:
            await ask()
        finally:
            self._under_way[namespace] -= 1
            self._under_way += Counter()  # drops what is 0

    async def _ask_webhook(self, step: Step, gate: WebhookGate, inquiry: _WebhookInquiry) -> None:
        try:
            self._permit(step, gate)
            pause = inquiry.take(await self._outbound.send(await self._request(step, gate)))
        except errors.RaybusError as problem:
            pause = inquiry.miss(problem)
        inquiry.due_at = self._clock.monotonic() + pause

    async def _ask_prometheus(self, step: Step, gate: PrometheusGate, inquiry: _PrometheusInquiry) -> None:
        try:
            self._permit(step, gate)
            answer = await self._outbound.send(request_of(step, gate))
            inquiry.take(gate, answer, now=self._clock.monotonic())
        except errors.RaybusError as problem:
            inquiry.miss(problem)
        inquiry.due_at = self._clock.monotonic() + prometheus.EVERY

    def _permit(self, step: Step, gate: AskingGate) -> None:
        """Refuse a server before a key is read for it."""
        if (why := self._outbound.refusal(gate.url, step.namespace)) is not None:
            raise errors.Unavailable(f"is not asked: {why}")

    async def _request(self, step: Step, gate: WebhookGate) -> Request:
        body, identity = webhook.question(step, gate), webhook.identity(step, gate)
        signed = signature.headers(identity, body, key=await self._key(step.namespace), now=self._clock.now())
        return Request(
            url=gate.url,
            namespace=step.namespace,
            body=body,
            headers={"Content-Type": "application/json", "User-Agent": "raybus", "Idempotency-Key": identity, **signed},
            most=webhook.LARGEST_ANSWER,
            seconds=webhook.SECONDS,
        )

    async def _key(self, namespace: str) -> bytes:
        """Return the key of a namespace; it is read for each question, so that a new one counts at once and none is kept."""
        where = f"Secret {namespace}/{webhook.SECRET_NAME}"
        command = f'kubectl create secret generic {webhook.SECRET_NAME} -n {namespace} --from-literal="{webhook.SECRET_KEY}=whsec_$(openssl rand -base64 32)"'
        try:
            body = await self._kube.get(SECRET, namespace, webhook.SECRET_NAME)
        except errors.NotFound as problem:
            raise errors.Unavailable(
                f"is not asked: {where} with the signing key does not exist; create it: {command}"
            ) from problem
        except errors.RaybusError as problem:
            raise errors.Unavailable(f"is not asked: {where} cannot be read: {problem}") from problem
        try:
            value = msgspec.json.decode(body, type=Data).data.get(webhook.SECRET_KEY, "")
            return signature.read_key(base64.b64decode(value).decode("ascii"))
        except (ValueError, msgspec.DecodeError):  # no cause: it may quote the key
            form = f"is not asked: {where}: the value of {webhook.SECRET_KEY} is not {signature.KEY_FORM}"
        raise errors.Unavailable(form)


def request_of(step: Step, gate: PrometheusGate) -> Request:
    """Return the request for a query."""
    return Request(
        url=prometheus.url(step, gate),
        namespace=step.namespace,
        headers={"Accept": "application/json", "User-Agent": "raybus"},
        most=prometheus.LARGEST_ANSWER,
        seconds=prometheus.SECONDS,
    )


def _problem(problem: errors.RaybusError, times: int) -> str:
    """Return why there is no answer; the text stays the same from question to question, until the last one."""
    return (
        f"{problem}; it was asked {times} times, and is asked no more at this step"
        if times >= webhook.MOST_TIMES
        else str(problem)
    )
