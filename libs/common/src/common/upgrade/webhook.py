"""The webhook gate: build the request at each step of an upgrade and interpret the answers.

The request is JSON, signed as in Standard Webhooks with a key of the RayService's namespace. In a
legal answer, `result` is `Pass`, `Fail` or `Wait`, and `text` is optional. Only with a legal answer
can the gate pass or fail. After `Wait` the webhook is asked again in 30 s, or after the answer's
Retry-After. Without a legal answer it is asked again with a growing delay of up to 60 s.
"""

import hashlib
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from common import errors, names, untrusted
from common.api.core import Service
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray import owner, ports
from common.upgrade import gates
from common.upgrade.candidate import Candidate
from common.upgrade.gate_types import WebhookGate
from common.upgrade.gates import GateOutcome, GateResult
from common.upgrade.policy import UpgradePolicy

SECRET_NAME: Final = "raybus-webhook-key"  # noqa: S105 - the name of an object
"""Name of the Secret with the signing key, in the namespace of the RayService.

The name is fixed, so that no policy can make raybus sign with a different Secret.
"""
SECRET_KEY: Final = "key"  # noqa: S105 - the name of a field
MAX_ANSWER_SIZE: Final = 16 * 2**10
"""Maximum bytes of an answer's body."""
MAX_TEXT_LENGTH: Final = 200
"""Characters after which messages cut off a server's text that they quote."""
SECONDS: Final = 10.0
"""Timeout of one request, in seconds."""
MAX_TIMES: Final = 10_000
"""Maximum requests to a webhook at one step: more than three days of the answer `Wait`."""
WAIT: Final = 30.0
"""Seconds from the answer `Wait` to the next request, unless the answer has a Retry-After."""
MIN_WAIT: Final = 5.0
MAX_WAIT: Final = 600.0
MAX_PAUSE: Final = 60.0
"""Maximum seconds from a request without a legal answer to the next request."""
OK: Final = 200
_RESULTS: Final = {
    "Pass": GateOutcome.PASS,
    "Fail": GateOutcome.FAIL,
    "Wait": GateOutcome.INCONCLUSIVE,
}


class Strategy(StrEnum):
    """How the traffic moves."""

    STEPS = "Steps"
    BLUE_GREEN = "BlueGreen"


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """The point in an upgrade at which the servers of gates are asked."""

    namespace: str
    service: str
    policy: str
    candidate: Candidate
    """The version that the servers are asked about."""
    old: str
    new: str
    strategy: Strategy = Strategy.STEPS
    weight: int
    """Percent of the traffic that the pending cluster has."""
    since: datetime | None = None
    """When the pending cluster got this weight."""
    step: int = 0
    """Position in the policy's steps, from 1; 0 before the first step."""
    steps: int = 0
    addresses: dict[str, str] = {}
    """HOST:PORT of `active`, `pending` and `preview`, to which a webhook may send test requests."""

    @property
    def moment(self) -> tuple[Candidate, int, datetime | None]:
        """Return the values that change from one step to the next: version, weight and time."""
        return self.candidate, self.weight, self.since


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """The decoded answer of a webhook."""

    result: str
    text: str = ""

    @property
    def outcome(self) -> GateOutcome:
        return _RESULTS[self.result]


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The HTTP answer of a gate's server."""

    status: int
    body: bytes = b""
    retry_after: str = ""

    @property
    def shown_status(self) -> str:
        """Return a phrase about a status other than 200, for messages."""
        hint = "; redirects are not followed" if self.status in range(300, 400) else ""
        return f"answered status {self.status}{hint}"


def build_checkpoint(  # noqa: PLR0913  (the identity of a step)
    service: RayService,
    policy: UpgradePolicy,
    active: RayCluster,
    pending: RayCluster,
    *,
    candidate: Candidate,
    strategy: Strategy,
    weight: int,
    since: datetime | None = None,
    preview: Service | None = None,
) -> Checkpoint:
    """Describe the present step of an upgrade, for the requests to gates' servers.

    The pending cluster has had `weight` percent of the traffic since `since`. `preview` is the
    existing Service with the name of the preview Service. A webhook gets its address only if the
    RayService owns it.
    """
    meta = service.metadata
    backend = names.serve_service if strategy is Strategy.STEPS else names.head_service
    held = {
        "active": (active, backend(active.metadata.name)),
        "pending": (pending, backend(pending.metadata.name)),
    }
    if policy.preview.service and preview is not None and owner.owns(meta, preview.metadata):
        held["preview"] = (pending, names.preview_service(meta.name))
    addresses = {
        role: f"{name}.{meta.namespace}.svc:"
        f"{ports.of_head(cluster.raw_spec).get('serve', ports.SERVE)}"
        for role, (cluster, name) in held.items()
    }
    return Checkpoint(
        namespace=meta.namespace,
        service=meta.name,
        policy=policy.name,
        candidate=candidate,
        old=active.metadata.name,
        new=pending.metadata.name,
        strategy=strategy,
        weight=weight,
        since=since if weight > 0 else None,
        step=sum(step.weight <= weight for step in policy.steps),
        steps=len(policy.steps),
        addresses=addresses,
    )


def identity(step: Checkpoint, gate: WebhookGate) -> str:
    """Return the ID of a request, by which a webhook detects that the request is repeated.

    The ID is the same if raybus restarts and asks again. It is different for a different Serve
    config.
    """
    since = "" if step.since is None else step.since.isoformat()
    of, config = step.candidate.cluster_uid, step.candidate.config
    parts = (of, config, gate.title, gate.url, str(step.weight), since)
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def question(step: Checkpoint, gate: WebhookGate) -> bytes:
    """Build the JSON body of the request to a webhook."""
    return msgspec.json.encode(
        {
            "version": 1,
            "id": identity(step, gate),
            "namespace": step.namespace,
            "service": step.service,
            "policy": step.policy,
            "gate": gate.title,
            "strategy": step.strategy,
            "activeCluster": step.old,
            "pendingCluster": step.new,
            "weight": step.weight,
            "step": step.step,
            "steps": step.steps,
            "addresses": step.addresses,
        }
    )


def read(answer: Answer) -> Reply:
    """Decode the answer of a webhook; raise `Unavailable` if it is not legal.

    The error quotes nothing of an illegal answer except the start of its `result`.
    """
    if answer.status != OK:
        raise errors.Unavailable(answer.shown_status)
    legal = f'{{"result": "{"|".join(_RESULTS)}", "text": "..."}}'
    if untrusted.is_too_deep(answer.body):
        raise errors.Unavailable(f"did not answer {legal}: the JSON is nested too deep")
    try:
        reply = msgspec.json.decode(answer.body, type=Reply)
    except (msgspec.DecodeError, UnicodeDecodeError) as problem:
        raise errors.Unavailable(f"did not answer {legal}") from problem
    if reply.result not in _RESULTS:
        raise errors.Unavailable(
            f"did not answer {legal}: the result is {untrusted.clipped(reply.result, 20)!r}"
        )
    return Reply(result=reply.result, text=quoted(reply.text))


def quoted(text: str) -> str:
    """Return a server's text fit for messages: one short line without control characters."""
    return " ".join(untrusted.clipped(text, MAX_TEXT_LENGTH).split())


def pause(times: int) -> float:
    """Return the seconds to wait after a request without an answer; `times` counts all requests."""
    return min(MAX_PAUSE, 2.0 ** min(times - 1, 10))


def wait(answer: Answer) -> float:
    """Return the seconds until the next request, after an answer with the result `Wait`."""
    text = answer.retry_after.strip()
    asked = float(text) if text.isascii() and text.isdigit() and len(text) < 10 else WAIT
    return min(MAX_WAIT, max(MIN_WAIT, asked))


def result(gate: WebhookGate, reply: Reply | None, problem: str | None) -> GateResult:
    """Return the result of a gate from its last answer (`reply`), or else from the `problem`."""
    if reply is None:
        return gates.unanswered(gate, problem)
    text = f"{gate.host} answered {reply.result}{f': {reply.text}' if reply.text else ''}"
    return GateResult(gate=gate, outcome=reply.outcome, text=f"{gate.title}: {text}")
