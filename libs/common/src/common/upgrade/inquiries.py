"""The servers that the gates of running upgrades ask, in the background: no reconcile waits for one.

A webhook is asked once at each step, and again until there is an answer; what was answered is forgotten with the process, which asks again
with the same id. A query of Prometheus is put again and again while the step lasts. A tenant's servers that hang keep at most `OF_A_NAMESPACE` requests under way: what finds no room is asked at a later reconcile.
"""

import asyncio
import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from common import errors, signature
from common.api.core import Data
from common.clock import Clock
from common.kube.client import Kube
from common.kube.resources import SECRET
from common.runtime.background import Background
from common.runtime.cache import Remembered
from common.upgrade import prometheus, webhook
from common.upgrade.candidate import Candidate
from common.upgrade.gate_types import AnyGate, AskingGate, PrometheusGate, WebhookGate
from common.upgrade.gates import Outcome, Result
from common.upgrade.outbound import Outbound, Request
from common.upgrade.prometheus import Readings
from common.upgrade.webhook import Answer, Reply, Step

AT_ONCE: Final = 128
"""Requests under way, of all namespaces."""
OF_A_NAMESPACE: Final = 4
REMEMBERED: Final = 8192


class _Inquiry(msgspec.Struct, kw_only=True):
    """What one gate came to at one step."""

    times: int = 0
    due_at: float = 0.0
    problem: str | None = None
    """Why there is no answer to the last question."""
    task: asyncio.Task[None] | None = None


class _WebhookInquiry(_Inquiry, kw_only=True):
    gate: WebhookGate
    reply: Reply | None = None

    @property
    def is_over(self) -> bool:
        """Return whether the server is asked no more at this step."""
        is_decided = self.reply is not None and self.reply.outcome is not Outcome.INCONCLUSIVE
        return is_decided or self.times >= webhook.MOST_TIMES

    def take(self, answer: Answer, _now: float) -> float:
        """Take an answer, and return the seconds until the next question."""
        self.reply, self.problem = webhook.read(answer), None
        return webhook.wait(answer)

    def miss(self, problem: errors.RaybusError) -> float:
        """Take why there is no answer, and return the seconds until the next question; the text stays the same until the last one."""
        is_last = self.times >= webhook.MOST_TIMES
        end = (
            f"; it was asked {self.times} times, and is asked no more at this step"
            if is_last
            else ""
        )
        self.reply, self.problem = None, f"{problem}{end}"
        return webhook.pause(self.times)

    def result(self, _now: float) -> Result:
        return webhook.result(self.gate, self.reply, self.problem)


class _PrometheusInquiry(_Inquiry, kw_only=True):
    gate: PrometheusGate
    readings: Readings = Readings()
    failure: Result | None = None
    """Stays until the step or the candidate is another one: no later value takes it back before it is recorded."""

    @property
    def is_over(self) -> bool:
        """Return whether the server is asked no more at this step."""
        return self.failure is not None

    def take(self, answer: Answer, now: float) -> float:
        value = prometheus.read(answer)
        self.readings, self.problem = (
            prometheus.after(self.readings, self.gate, value, now=now),
            None,
        )
        return prometheus.EVERY

    def miss(self, problem: errors.RaybusError) -> float:
        self.readings, self.problem = Readings(), str(problem)
        return prometheus.EVERY

    def result(self, now: float) -> Result:
        found = self.failure or prometheus.result(self.gate, self.readings, self.problem, now=now)
        self.failure = found if found.outcome is Outcome.FAIL else None
        return found


class _Upgrade(msgspec.Struct):
    """What is asked for one upgrade."""

    moment: tuple[Candidate, int, datetime | None]
    inquiries: Remembered[AskingGate, _WebhookInquiry | _PrometheusInquiry] = msgspec.field(
        default_factory=lambda: Remembered(dropped=lambda each: each.task and each.task.cancel())
    )


class Inquiries:
    """Asks the servers of the gates of the upgrades of this replica."""

    def __init__(
        self, kube: Kube, outbound: Outbound, background: Background, clock: Clock
    ) -> None:
        self._kube = kube
        self._outbound = outbound
        self._background = background
        self._clock = clock
        self._upgrades = Remembered[str, _Upgrade](
            most=REMEMBERED, dropped=lambda each: each.inquiries.clear()
        )
        """By the uid of the pending cluster."""
        self._under_way: Counter[str] = Counter()
        """By namespace."""

    async def of(self, step: Step, asked: Sequence[AskingGate]) -> Mapping[AnyGate, Result]:
        """Return what the gates that ask a server came to at a step so far, and ask on."""
        uid = step.candidate.cluster_uid
        held = self._upgrades.get(uid)
        if held is None or held.moment != step.moment:
            self.forget(uid)
            held = _Upgrade(moment=step.moment)
        self._upgrades[uid] = held
        for gate in held.inquiries.keys() - set(
            asked
        ):  # those that an edit of the policy removed or changed
            del held.inquiries[gate]
        found: dict[AnyGate, Result] = {}
        for gate in asked:
            new = (
                _WebhookInquiry(gate=gate)
                if isinstance(gate, WebhookGate)
                else _PrometheusInquiry(gate=gate)
            )
            inquiry = held.inquiries.setdefault(gate, new)
            is_idle = inquiry.task is None or inquiry.task.done()
            if is_idle and not inquiry.is_over and self._clock.monotonic() >= inquiry.due_at:
                inquiry.task = await self._background.start(self._ask(step, inquiry))
            found[gate] = inquiry.result(self._clock.monotonic())
        return found

    def forget(self, uid: str) -> None:
        """Drop what is known of an upgrade, and end what is under way for it."""
        self._upgrades.pop(uid, None)

    async def _ask(self, step: Step, inquiry: _WebhookInquiry | _PrometheusInquiry) -> None:
        if self._under_way[step.namespace] >= OF_A_NAMESPACE or self._under_way.total() >= AT_ONCE:
            return
        self._under_way[step.namespace] += 1
        inquiry.times += 1
        try:
            answer = await self._answer(step, inquiry.gate)
            pause = inquiry.take(answer, self._clock.monotonic())
        except errors.RaybusError as problem:
            pause = inquiry.miss(problem)
        finally:
            self._under_way[step.namespace] -= 1
            self._under_way += Counter()  # drops what is 0
        inquiry.due_at = self._clock.monotonic() + pause

    async def _answer(self, step: Step, gate: AskingGate) -> Answer:
        if (
            why := self._outbound.refusal(gate.url, step.namespace)
        ) is not None:  # before a key is read for it
            raise errors.Unavailable(f"is not asked: {why}")
        request = (
            await self._signed(step, gate)
            if isinstance(gate, WebhookGate)
            else request_of(step, gate)
        )
        return await self._outbound.send(request)

    async def _signed(self, step: Step, gate: WebhookGate) -> Request:
        body, identity = webhook.question(step, gate), webhook.identity(step, gate)
        signed = signature.headers(
            identity, body, key=await self._key(step.namespace), now=self._clock.now()
        )
        return Request(
            url=gate.url,
            namespace=step.namespace,
            body=body,
            headers={
                "Content-Type": "application/json",
                "User-Agent": "raybus",
                "Idempotency-Key": identity,
                **signed,
            },
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
            raise errors.Unavailable(
                f"is not asked: {where} cannot be read: {problem}"
            ) from problem
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
