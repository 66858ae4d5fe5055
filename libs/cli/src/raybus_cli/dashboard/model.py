"""What the page shows, made from what was read and told; pure, and complete: the page itself decides nothing but the layout."""

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec

from common import annotation_record
from common.api.ray_service import RayService
from common.upgrade_receipt import Receipt
from raybus_cli.dashboard.story import Story
from raybus_cli.explaining import findings
from raybus_cli.reading import strategy
from raybus_cli.reading.look import Look
from raybus_cli.show import phase, tree
from raybus_cli.show.phase import Tone
from raybus_cli.show.tree import Branch, Told, Tree
from service_reconciler.config import Config


class Share(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster's share of the traffic in percent; None where nobody tells."""

    name: str
    role: str
    weight: int | None = None


class Upgrade(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How far an upgrade is; `step` and `steps` are None where all traffic moves at once."""

    direction: str
    step: int | None = None
    steps: int | None = None
    next_step_at: datetime | None = None


class Row(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A RayService in the list."""

    namespace: str
    name: str
    phase: str
    tone: Tone
    message: str
    strategy: str
    endpoints: int
    created: datetime | None
    upgrade: Upgrade | None = None
    shares: list[Share] = []


class Group(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods of a group: how many are ready, and the others by what they are at."""

    name: str
    ready: int
    pods: int
    others: dict[str, int] = {}
    restarts: int = 0


class Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster of a RayService; percentages are None where nobody tells."""

    name: str
    role: str
    weight: int | None = None
    target_capacity: int | None = None
    ready_capacity: int | None = None
    groups: list[Group] = []
    applications: dict[str, str] = {}
    note: str = ""


class Cause(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why something is not as it should be, and what to do."""

    what: str
    remedy: str


class Detail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that is shown of the RayService that was chosen."""

    key: str
    row: Row | None = None
    """None when it is not there."""
    problem: str = ""
    """Why it could not be read just now."""
    clusters: list[Cluster] = []
    causes: list[Cause] = []
    stories: list[Story] = []
    receipt: Receipt | None = None
    """Of the last upgrade, as the RayService carries it."""
    last_event: Told | None = None
    unseen: list[str] = []


def key_of(service: RayService) -> str:
    """Return how the page names a RayService."""
    return f"{service.metadata.namespace}/{service.metadata.name}"


def rows(services: Iterable[RayService], *, now: datetime) -> dict[str, Row]:
    """Return the list."""
    return {key_of(each): _row(each, tree.build(Look(service=each), now=now)) for each in services}


def detail(look: Look, stories: Sequence[Story], *, now: datetime, problem: str = "") -> Detail:
    """Return all that is shown of a look."""
    built = tree.build(look, now=now)
    causes = findings.explain(look, Config(), now=now).findings
    return Detail(
        key=key_of(look.service),
        row=_row(look.service, built),
        problem=problem,
        clusters=[_cluster(each) for each in built.clusters],
        causes=[Cause(what=each.what, remedy=each.remedy) for each in causes],
        stories=list(stories),
        receipt=_receipt(built.receipt),
        last_event=built.last_event,
        unseen=built.unseen,
    )


def _row(service: RayService, built: Tree) -> Row:
    return Row(
        namespace=built.namespace,
        name=built.name,
        phase=built.phase,
        tone=phase.tone(built.phase),
        message=built.message,
        strategy=built.strategy,
        endpoints=built.endpoints,
        created=service.metadata.creation_timestamp,
        upgrade=_upgrade(service, built.upgrade),
        shares=_shares(service),
    )


def _upgrade(service: RayService, held: tree.Upgrade | None) -> Upgrade | None:
    if held is None:
        return None
    return Upgrade(
        direction=held.direction,
        step=held.step,
        steps=held.steps,
        next_step_at=None if held.next_step_seconds is None else _due(service),
    )


def _due(service: RayService) -> datetime | None:
    policy, moved = strategy.policy(service), service.status.pending_service_status.last_traffic_migrated_time
    return None if policy is None or moved is None else moved + policy.interval


def _shares(service: RayService) -> list[Share]:
    look = Look(service=service)
    sides = (("active", look.active), ("pending", look.pending))
    return [Share(name=name, role=role, weight=tree.weight(look, name)) for role, name in sides if name]


def _cluster(branch: Branch) -> Cluster:
    groups: dict[str, list[tree.PodLine]] = {}
    for pod in branch.pods:
        groups.setdefault(pod.group, []).append(pod)
    return Cluster(
        name=branch.name,
        role=branch.role,
        weight=branch.weight,
        target_capacity=branch.target_capacity,
        ready_capacity=branch.ready_capacity,
        groups=[_group(name, pods) for name, pods in groups.items()],
        applications=branch.applications,
        note=branch.note,
    )


def _group(name: str, pods: Sequence[tree.PodLine]) -> Group:
    states = Counter(pod.state for pod in pods)
    ready = states.pop("Ready", 0)
    restarts = sum(pod.restarts for pod in pods)
    return Group(name=name, ready=ready, pods=len(pods), others=dict(states), restarts=restarts)


def _receipt(text: str | None) -> Receipt | None:
    """Read the annotation; one that somebody else wrote over is none."""
    return annotation_record.decode(text or "", Receipt)
