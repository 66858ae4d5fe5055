"""Ask the servers of gates (webhooks, Prometheus) in the background; no reconcile waits for them.

A webhook is asked at each step until it decides. After a restart of this process it is asked again
with the same request ID. A Prometheus query is repeated for as long as the step lasts. At most
`OF_A_NAMESPACE` requests of one namespace are in flight, so that servers which do not answer cannot
block other tenants; a request over this limit is sent at a later reconcile.
"""

import asyncio
import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec

from common import errors, signature
from common.api.core import KeyedData
from common.clock import Clock
from common.kube.client import Kube
from common.kube.resources import SECRET
from common.runtime.background import Background
from common.runtime.cache import BoundedDict
from common.upgrade import prometheus, webhook
from common.upgrade.candidate import Candidate
from common.upgrade.gate_types import AnyGate, AskingGate, PrometheusGate, WebhookGate
from common.upgrade.gates import GateOutcome, GateResult
from common.upgrade.outbound import Outbound, OutboundRequest
from common.upgrade.prometheus import Readings
from common.upgrade.webhook import Answer, Checkpoint, Reply

MAX_CONCURRENT_INQUIRIES: Final = 128
"""Maximum requests in flight, over all namespaces."""
OF_A_NAMESPACE: Final = 4
"""Maximum requests in flight for one namespace."""
REMEMBERED: Final = 8192


class _Inquiry(msgspec.Struct, kw_only=True):
    """The requests for one gate at one step."""

    times: int = 0
    due_at: float = 0.0
    problem: str | None = None
    """Why the last request had no valid answer; None if it had one."""
    task: asyncio.Task[None] | None = None


class _WebhookInquiry(_Inquiry, kw_only=True):
    gate: WebhookGate
    reply: Reply | None = None

    @property
    def is_over(self) -> bool:
        """Return whether the server has decided or was asked too often, at this step."""
        is_decided = self.reply is not None and self.reply.outcome is not GateOutcome.INCONCLUSIVE
        return is_decided or self.times >= webhook.MAX_TIMES

    def take(self, answer: Answer, _now: float) -> float:
        """Record an answer; return the seconds until the next request."""
        self.reply, self.problem = webhook.read(answer), None
        return webhook.wait(answer)

    def miss(self, problem: errors.RaybusError) -> float:
        """Record why there is no valid answer; return the seconds until the next request.

        The recorded text must not change with each attempt, so only after the last attempt it has
        the number of attempts.
        """
        is_last = self.times >= webhook.MAX_TIMES
        end = (
            f"; it was asked {self.times} times, and is asked no more at this step"
            if is_last
            else ""
        )
        self.reply, self.problem = None, f"{problem}{end}"
        return webhook.pause(self.times)

    def result(self, _now: float) -> GateResult:
        return webhook.result(self.gate, self.reply, self.problem)


class _PrometheusInquiry(_Inquiry, kw_only=True):
    gate: PrometheusGate
    readings: Readings = Readings()
    failure: GateResult | None = None
    """The result if the gate has failed; None if it has not.

    It is kept until the step or the candidate changes, so that a later value cannot revoke the
    failure before the failure is recorded.
    """

    @property
    def is_over(self) -> bool:
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

    def result(self, now: float) -> GateResult:
        result = self.failure or prometheus.result(self.gate, self.readings, self.problem, now=now)
        self.failure = result if result.outcome is GateOutcome.FAIL else None
        return result


class _Upgrade(msgspec.Struct):
    """The requests for the gates of one upgrade at its present step."""

    moment: tuple[Candidate, int, datetime | None]
    inquiries: BoundedDict[AskingGate, _WebhookInquiry | _PrometheusInquiry] = msgspec.field(
        default_factory=lambda: BoundedDict(
            dropped=lambda inquiry: inquiry.task and inquiry.task.cancel()
        )
    )


class Inquiries:
    """Sends the requests to gates' servers for the upgrades of this replica."""

    def __init__(
        self, kube: Kube, outbound: Outbound, background: Background, clock: Clock
    ) -> None:
        self._kube = kube
        self._outbound = outbound
        self._background = background
        self._clock = clock
        self._upgrades = BoundedDict[str, _Upgrade](
            max_entries=REMEMBERED, dropped=lambda upgrade: upgrade.inquiries.clear()
        )
        """The requests for each upgrade, by the UID of the pending cluster."""
        self._under_way: Counter[str] = Counter()
        """Requests in flight, by namespace."""

    async def ask(
        self, step: Checkpoint, asked: Sequence[AskingGate]
    ) -> Mapping[AnyGate, GateResult]:
        """Return the latest result of each `asked` gate, and start the requests that are due."""
        uid = step.candidate.cluster_uid
        upgrade = self._upgrades.get(uid)
        if upgrade is None or upgrade.moment != step.moment:
            self.forget(uid)
            upgrade = _Upgrade(moment=step.moment)
        self._upgrades[uid] = upgrade
        # Drop gates that an edit of the policy has removed or changed.
        for gate in upgrade.inquiries.keys() - set(asked):
            del upgrade.inquiries[gate]
        results: dict[AnyGate, GateResult] = {}
        for gate in asked:
            new = (
                _WebhookInquiry(gate=gate)
                if isinstance(gate, WebhookGate)
                else _PrometheusInquiry(gate=gate)
            )
            inquiry = upgrade.inquiries.setdefault(gate, new)
            is_idle = inquiry.task is None or inquiry.task.done()
            if is_idle and not inquiry.is_over and self._clock.monotonic() >= inquiry.due_at:
                inquiry.task = await self._background.start(self._ask(step, inquiry))
            results[gate] = inquiry.result(self._clock.monotonic())
        return results

    def forget(self, uid: str) -> None:
        """Drop the state of the upgrade to the cluster with this UID, and cancel its requests."""
        self._upgrades.pop(uid, None)

    async def _ask(self, step: Checkpoint, inquiry: _WebhookInquiry | _PrometheusInquiry) -> None:
        if (
            self._under_way[step.namespace] >= OF_A_NAMESPACE
            or self._under_way.total() >= MAX_CONCURRENT_INQUIRIES
        ):
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
            self._under_way += Counter()  # removes zero counts
        inquiry.due_at = self._clock.monotonic() + pause

    async def _answer(self, step: Checkpoint, gate: AskingGate) -> Answer:
        # Check the target first, so that the signing key is not read for a forbidden one.
        if (why := self._outbound.refusal(gate.url, step.namespace)) is not None:
            raise errors.Unavailable(f"is not asked: {why}")
        request = (
            await self._signed(step, gate)
            if isinstance(gate, WebhookGate)
            else request_of(step, gate)
        )
        return await self._outbound.send(request)

    async def _signed(self, step: Checkpoint, gate: WebhookGate) -> OutboundRequest:
        body, identity = webhook.question(step, gate), webhook.identity(step, gate)
        signed = signature.headers(
            identity, body, key=await self._key(step.namespace), now=self._clock.now()
        )
        return OutboundRequest(
            url=gate.url,
            namespace=step.namespace,
            body=body,
            headers={
                "Content-Type": "application/json",
                "User-Agent": "raybus",
                "Idempotency-Key": identity,
                **signed,
            },
            max_size=webhook.MAX_ANSWER_SIZE,
            seconds=webhook.SECONDS,
        )

    async def _key(self, namespace: str) -> bytes:
        """Read the signing key of a namespace.

        The key is read for every request, so that a new key is used immediately and no key stays in
        memory. Raises `Unavailable` with the remedy if there is no valid key.
        """
        where = f"Secret {namespace}/{webhook.SECRET_NAME}"
        command = (
            f"kubectl create secret generic {webhook.SECRET_NAME} -n {namespace} "
            f'--from-literal="{webhook.SECRET_KEY}=whsec_$(openssl rand -base64 32)"'
        )
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
            value = msgspec.json.decode(body, type=KeyedData).data.get(webhook.SECRET_KEY, "")
            return signature.read_key(base64.b64decode(value).decode("ascii"))
        except (ValueError, msgspec.DecodeError):  # without the cause, which may quote the key
            form = (
                f"is not asked: {where}: the value of {webhook.SECRET_KEY} is not "
                f"{signature.KEY_FORM}"
            )
        raise errors.Unavailable(form)


def request_of(step: Checkpoint, gate: PrometheusGate) -> OutboundRequest:
    """Build the request of a Prometheus gate."""
    return OutboundRequest(
        url=prometheus.url(step, gate),
        namespace=step.namespace,
        headers={"Accept": "application/json", "User-Agent": "raybus"},
        max_size=prometheus.MAX_ANSWER_SIZE,
        seconds=prometheus.SECONDS,
    )
