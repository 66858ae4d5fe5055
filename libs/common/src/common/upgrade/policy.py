"""Read an UpgradePolicy (the steps, gates and phases of an upgrade), and its recorded copy.

An upgrade follows the policy that it began with, so the pending RayCluster has a copy of the policy
in an annotation, the record. An edit applies to the next upgrade, or immediately with `applyEdits:
AtOnce`, which replaces the copy (ADR 28). The CRD rejects the same specs as `read`. They are
checked again because the CRD may be older than this release, and because whoever may write a
RayCluster can replace the record.
"""

from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final

import msgspec
import re2

from common import annotation_record, labels
from common.annotation_record import AnnotationRecord
from common.api import kubernetes_syntax
from common.api.meta import Condition, ObjectMeta
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.kube.resources import RAY_CLUSTER, find_name_violation
from common.ray.view import ServeView
from common.upgrade import gate_types
from common.upgrade.controls import Approval
from common.upgrade.fields import NO_TIME, Fields
from common.upgrade.gate_types import MAX_STEPS, AnyGate

MAX_RECORD_SIZE: Final = 64 * 1024
"""Maximum bytes of a policy's record in an annotation. Legal specs need less than half of it.

Kubernetes allows 256 KiB for all annotations of one object."""
WHOLE: Final = 100
MAX_WARM_UP_REQUESTS: Final = 10_000
MAX_CONCURRENT_REQUESTS: Final = 16
MAX_PATH_LENGTH: Final = 1000
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
PATH: Final = re2.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@/?-]{0,999}")
"""Matches an absolute path of at most 1000 characters, since RE2 and Go limit repetitions to 1000.
"""
_CLIMBS: Final = re2.compile(r"\.\.|//")
"""Sequences with which a path could lead to a different path or host."""
HEADER_NAME: Final = re2.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,256}")
HEADER_VALUE: Final = re2.compile(r"[!-~]([ -~]{0,254}[!-~])?")


class OnFailure(StrEnum):
    """What a failed gate does to the upgrade."""

    ROLLBACK = "Rollback"
    PAUSE = "Pause"


class ApplyEdits(StrEnum):
    """When an edit of the policy applies to an upgrade in progress."""

    NEXT_UPGRADE = "NextUpgrade"
    AT_ONCE = "AtOnce"


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One step: a traffic weight and its minimum duration."""

    weight: int
    """Percent of the traffic that the new cluster gets."""
    hold: timedelta = NO_TIME
    """Minimum time for which the upgrade stays at the weight of this step."""
    pauses: bool = False
    """Whether the upgrade waits at this weight for the user's approval."""


class WarmUp(msgspec.Struct, frozen=True, kw_only=True):
    """Requests that are sent to a cluster before its first traffic."""

    requests: int
    path: str = "/"
    concurrency: int = 1


class Mirror(msgspec.Struct, frozen=True, kw_only=True):
    """Copies of client requests that are sent to a cluster before its first traffic."""

    percent: int
    duration: timedelta
    methods: tuple[str, ...] = ("GET",)


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """How users can reach a cluster before its first traffic, to test it."""

    service: bool = False
    header_name: str | None = None
    header_value: str | None = None


class UpgradePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The validated spec of an UpgradePolicy."""

    name: str
    steps: tuple[Step, ...] = ()
    """The steps of the upgrade; if empty, the RayService's `clusterUpgradeOptions` apply."""
    gates: tuple[AnyGate, ...] = ()
    on_failure: OnFailure = OnFailure.ROLLBACK
    bake: timedelta = NO_TIME
    """Time for which the replaced cluster keeps its capacity after all traffic has moved.

    In an upgrade with steps, this is before the promotion; in blue/green, after it.
    """
    auto_promote: bool = True
    warm_up: WarmUp | None = None
    mirror: Mirror | None = None
    preview: Preview = Preview()
    applies_edits_at_once: bool = False

    @property
    def stages(self) -> int:
        """Return how many times an upgrade begins to count requests for its gates from zero.

        This happens at each step, and once for mirrored requests.
        """
        return max(1, len(self.steps)) + (self.mirror is not None)


class WarmUpProgress(msgspec.Struct):
    """The progress of a warm-up."""

    wanted: int
    answered: int = 0
    problem: str | None = None
    """Why the warm-up has failed; None if it has not."""

    @property
    def is_over(self) -> bool:
        return self.problem is None and self.answered >= self.wanted

    @property
    def lacking(self) -> str | None:
        """Return why the warm-up is not complete; None if it is."""
        progress = f"{self.answered} of {self.wanted} requests of the warm-up are answered"
        return None if self.is_over else self.problem or progress


class RecordedPolicy(AnnotationRecord, frozen=True, kw_only=True):
    """The copy of a policy in the annotation of a pending RayCluster."""

    name: str
    uid: str = ""
    generation: int = 0
    spec: Json = {}  # noqa: RUF012 - msgspec copies it


class StoredStatus(msgspec.Struct, frozen=True):
    """The status of an UpgradePolicy."""

    conditions: tuple[Condition, ...] = ()


class Stored(msgspec.Struct, frozen=True):
    """An UpgradePolicy as read from the API server."""

    metadata: ObjectMeta
    spec: Json = {}
    status: StoredStatus = StoredStatus()

    @property
    def is_default(self) -> bool:
        """Return whether RayServices of its namespace that name no policy use this one."""
        return self.metadata.annotations.get(labels.DEFAULT_POLICY) == "true"


class PolicyError(ValueError):
    """The spec of a policy is illegal; each of `problems` has the field and the legal values."""

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def read(name: str, spec: Json, *, strict: bool = True) -> UpgradePolicy:
    """Validate and decode the spec of a policy.

    Raises `PolicyError` if the spec is illegal or, with `strict`, has unknown fields.
    """
    problems: list[str] = []
    fields = Fields(spec, "spec", problems, strict=strict)
    warm_up, mirror, preview = (
        fields.section("warmUp"),
        fields.section("mirror"),
        fields.section("preview"),
    )
    policy = UpgradePolicy(
        name=name,
        steps=_steps(fields, problems),
        gates=gate_types.read(fields),
        on_failure=fields.choice("onFailure", OnFailure, OnFailure.ROLLBACK),
        bake=fields.duration("bake"),
        auto_promote=fields.switch("autoPromote", default=True),
        warm_up=warm_up and warm_up.read(_warm_up),
        mirror=mirror and mirror.read(_mirror),
        preview=Preview() if preview is None else preview.read(_preview),
        applies_edits_at_once=fields.choice("applyEdits", ApplyEdits, ApplyEdits.NEXT_UPGRADE)
        is ApplyEdits.AT_ONCE,
    )
    fields.close()
    if problems:
        raise PolicyError(tuple(problems))
    return policy


def recorded(name: str, uid: str, generation: int, spec: Json) -> str:
    """Return a policy's record as JSON text; raise `PolicyError` if the spec is illegal."""
    read(name, spec)
    return msgspec.json.encode(
        RecordedPolicy(name=name, uid=uid, generation=generation, spec=spec)
    ).decode()


def is_edited(recorded: RecordedPolicy, stored: Stored) -> bool:
    """Return whether a policy was edited after it was recorded.

    False if `stored` has a different UID, so that it only has the same name.
    """
    return stored.metadata.uid == recorded.uid and stored.metadata.generation > recorded.generation


def record_of(cluster: RayCluster) -> RecordedPolicy | None:
    """Return the policy record of a cluster; None if there is none that raybus can have written."""
    text = _recorded_text(cluster)
    return None if text is None else _record(text)


def _recorded_text(cluster: RayCluster) -> str | None:
    text = cluster.metadata.annotations.get(labels.UPGRADE_POLICY_RECORD)
    return None if text is None or len(text) > MAX_RECORD_SIZE else text


def _record(text: str) -> RecordedPolicy | None:
    recorded = annotation_record.decode(text, RecordedPolicy)
    return (
        None
        if recorded is None or kubernetes_syntax.dns_1123_subdomain_problems(recorded.name)
        else recorded
    )


def of_cluster(cluster: RayCluster) -> UpgradePolicy | None:
    """Return the policy that the upgrade to a cluster follows; None without a readable record.

    Fields of later releases are ignored, so that an upgrade survives a downgrade of raybus.
    """
    text = _recorded_text(cluster)
    return None if text is None else _recorded_policy(text)


@lru_cache(maxsize=256)
def _recorded_policy(text: str) -> UpgradePolicy | None:
    """Return the policy in a record; cached, since a reconcile reads the same text many times."""
    recorded = _record(text)
    try:
        return read(recorded.name, recorded.spec, strict=False) if recorded is not None else None
    except PolicyError:
        return None


def upgraded_from(cluster: RayCluster | None) -> str:
    """Return the name of the cluster that this cluster replaces in an upgrade.

    Empty if it replaces none, if the upgrade is over, or if a user wrote an illegal name.
    """
    name = cluster.metadata.annotations.get(labels.UPGRADE_FROM, "") if cluster is not None else ""
    return "" if find_name_violation(RAY_CLUSTER, name) else name


def of_upgrade(active: str, pending: RayCluster | None) -> UpgradePolicy | None:
    """Return the policy that the upgrade from `active` to `pending` follows.

    None if the record on `pending` belongs to an earlier upgrade.
    """
    return of_cluster(pending) if pending is not None and upgraded_from(pending) == active else None


def step_at(policy: UpgradePolicy, weight: int) -> Step | None:
    """Return the step that an upgrade has reached at a weight; None before the first step."""
    return max(
        (step for step in policy.steps if step.weight <= weight),
        key=lambda step: step.weight,
        default=None,
    )


def is_stop(policy: UpgradePolicy, weight: int, aim: int | None = None) -> bool:
    """Return whether an upgrade must stay at a weight until its gates pass.

    It must stay at weight 0, at the weight of each step and, if there are no steps, at every
    weight. It must also stay at every weight from `aim` on. `aim` is the weight of the step for
    which traffic last moved; an edit of the policy may have removed that step since.
    """
    is_step = weight == 0 or not policy.steps or any(step.weight == weight for step in policy.steps)
    return is_step or (aim is not None and weight >= aim)


def next_weight(policy: UpgradePolicy, weight: int, aim: int | None = None) -> int:
    """Return the weight of the next step after `weight`; 100 after the last step.

    `aim` counts as the weight of a step (see `is_stop`).
    """
    later = [step.weight for step in policy.steps if step.weight > weight]
    return min(later + ([aim] if aim is not None and aim > weight else []), default=WHOLE)


def decide_before(policy: UpgradePolicy) -> tuple[AnyGate, ...]:
    """Return the gates that can decide before all traffic moves at once (blue/green).

    Gates on a metric are included only if the new cluster gets requests before the traffic moves,
    by a warm-up or a preview.
    """
    is_used = policy.warm_up is not None or policy.preview.service
    return tuple(gate for gate in policy.gates if is_used or not isinstance(gate, gate_types.Gate))


def pause(
    policy: UpgradePolicy, pending: ServeView, weight: int, approved: Approval | None
) -> str | None:
    """Return a message if an upgrade waits for its user at this weight; None if it does not.

    `approved` is the user's last approval of a pause.
    """
    is_paused = any(step.weight == weight and step.pauses for step in policy.steps)
    if not is_paused and (policy.auto_promote or weight < WHOLE):
        return None
    if approved is not None and approved.holds(pending.name, weight, was_edited=pending.was_edited):
        return None
    return f"paused at {weight} percent by UpgradePolicy {policy.name}"


def _steps(spec: Fields, problems: Sequence[str]) -> tuple[Step, ...]:
    parts = spec.sections("steps", MAX_STEPS)
    steps = tuple(step_part.read(_step) for step_part in parts)
    if problems:  # the order of illegal weights cannot be checked
        return steps
    for part, step, before in zip(parts[1:], steps[1:], steps[:-1], strict=True):
        if step.weight <= before.weight:
            part.note(
                "weight",
                f"{step.weight} is not above the weight {before.weight} of the step before",
            )
    if steps and steps[-1].weight != WHOLE:
        parts[-1].note("weight", f"{steps[-1].weight} is not 100; the last step takes all traffic")
    return steps


def _step(part: Fields) -> Step:
    pause = part.section("pause")
    pauses = pause is not None and pause.read(lambda _: True)
    return Step(weight=part.number("weight", 1, WHOLE), hold=part.duration("hold"), pauses=pauses)


def _warm_up(part: Fields) -> WarmUp:
    legal = "an absolute path of letters, digits and -._~!$&'()*+,;=:@?, without '..' and '//'"
    path = part.text(
        "path", lambda text: bool(PATH.fullmatch(text)) and not _CLIMBS.search(text), legal, "/"
    )
    return WarmUp(
        requests=part.number("requests", 1, MAX_WARM_UP_REQUESTS),
        path=path,
        concurrency=part.number("concurrency", 1, MAX_CONCURRENT_REQUESTS, 1),
    )


def _mirror(part: Fields) -> Mirror:
    return Mirror(
        percent=part.number("percent", 1, WHOLE),
        duration=part.duration("duration", is_required=True),
        methods=part.members("methods", METHODS) or ("GET",),
    )


def _preview(part: Fields) -> Preview:
    header, service = part.section("header"), part.switch("service", default=False)
    name, value = (None, None) if header is None else header.read(_header)
    return Preview(service=service, header_name=name, header_value=value)


def _header(part: Fields) -> tuple[str, str]:
    name = part.text("name", HEADER_NAME.fullmatch, "the name of an HTTP header such as x-version")
    return name, part.text("value", HEADER_VALUE.fullmatch, "1 to 256 printable ASCII characters")
