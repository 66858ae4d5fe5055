"""The servers that the gates of running upgrades ask, in the background: no reconcile waits for one.

Each gate is asked once at each step, and again until there is an answer; what was answered is forgotten with the process, which asks again
with the same id. A tenant's servers that hang keep at most `OF_A_NAMESPACE` requests under way: what finds no room is asked at a later reconcile.
"""

import asyncio
import base64
from collections import Counter, OrderedDict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from common import errors, signature
from common.clock import Clock
from common.kube.client import Kube
from common.kube.resources import SECRET
from common.runtime.background import Background
from common.upgrade import webhook
from common.upgrade.gate_types import AnyGate, WebhookGate
from common.upgrade.gates import Result
from common.upgrade.outbound import Outbound, Request
from common.upgrade.webhook import Reply, Step

AT_ONCE: Final = 128
"""Requests under way, of all namespaces."""
OF_A_NAMESPACE: Final = 4
REMEMBERED: Final = 8192


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


class _Inquiry(msgspec.Struct):
    """What one gate came to at one step."""

    times: int = 0
    due_at: float = 0.0
    reply: Reply | None = None
    problem: str | None = None
    """Why there is no answer to the last question."""
    task: asyncio.Task[None] | None = None

    def is_due(self, now: float) -> bool:
        """Return whether the server is to be asked."""
        is_answered = self.reply is not None and self.reply.is_final
        is_idle = self.task is None or self.task.done()
        return is_idle and not is_answered and now >= self.due_at and self.times < webhook.MOST_TIMES


class _Upgrade(msgspec.Struct):
    """What is asked for one upgrade."""

    moment: tuple[int, datetime | None]
    gates: dict[WebhookGate, _Inquiry]


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

    async def of(self, step: Step, asked: Sequence[WebhookGate]) -> Mapping[AnyGate, Result]:
        """Return what the gates that ask a server came to at a step so far, and ask on."""
        uid, now = step.upgrade_uid, self._clock.monotonic()
        held = self._upgrades.get(uid)
        if held is None or held.moment != step.moment:
            self.forget(uid)
            held = self._upgrades[uid] = _Upgrade(moment=step.moment, gates={})
        self._upgrades.move_to_end(uid)
        while len(self._upgrades) > REMEMBERED:
            self.forget(next(iter(self._upgrades)))
        found: dict[AnyGate, Result] = {}
        for gate in asked:
            inquiry = held.gates.setdefault(gate, _Inquiry())
            if inquiry.is_due(now):
                inquiry.task = await self._background.start(self._ask(step, gate, inquiry))
            found[gate] = webhook.result(gate, inquiry.reply, inquiry.problem)
        return found

    def forget(self, uid: str) -> None:
        """Drop what is known of an upgrade, and end what is under way for it."""
        held = self._upgrades.pop(uid, None)
        for each in () if held is None else held.gates.values():
            if each.task is not None:
                each.task.cancel()

    async def _ask(self, step: Step, gate: WebhookGate, inquiry: _Inquiry) -> None:
        namespace = step.namespace
        if self._under_way[namespace] >= OF_A_NAMESPACE or self._under_way.total() >= AT_ONCE:
            return
        self._under_way[namespace] += 1
        try:
            await self._ask_once(step, gate, inquiry)
        finally:
            self._under_way[namespace] -= 1
            self._under_way += Counter()  # drops what is 0

    async def _ask_once(self, step: Step, gate: WebhookGate, inquiry: _Inquiry) -> None:
        inquiry.times += 1
        try:
            if (why := self._outbound.refusal(gate.url, step.namespace)) is not None:
                raise errors.Unavailable(f"is not asked: {why}")
            answer = await self._outbound.send(await self._request(step, gate))
            inquiry.reply, inquiry.problem = webhook.read(answer), None
            pause = webhook.wait(answer)
        except errors.RaybusError as problem:
            inquiry.reply, inquiry.problem = None, _problem(problem, inquiry.times)
            pause = webhook.pause(inquiry.times)
        inquiry.due_at = self._clock.monotonic() + pause

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
            value = msgspec.json.decode(body, type=_Secret).data.get(webhook.SECRET_KEY, "")
            return signature.read_key(base64.b64decode(value).decode("ascii"))
        except (ValueError, msgspec.DecodeError):  # no cause: it may quote the key
            form = f"is not asked: {where}: the value of {webhook.SECRET_KEY} is not {signature.KEY_FORM}"
        raise errors.Unavailable(form)


def _problem(problem: errors.RaybusError, times: int) -> str:
    """Return why there is no answer; the text stays the same from question to question, until the last one."""
    return (
        f"{problem}; it was asked {times} times, and is asked no more at this step"
        if times >= webhook.MOST_TIMES
        else str(problem)
    )
