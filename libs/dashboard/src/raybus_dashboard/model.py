"""The content of the page, built from snapshots and events, and the actions that it offers. Pure.

The page's script decides nothing but the layout.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final

import msgspec
from msgspec import UNSET

from common import annotation_record, errors, untrusted
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.upgrade import controls as upgrade_controls
from common.upgrade import traffic_record
from common.upgrade.receipt import Receipt
from raybus_cli.control import actions, history
from raybus_cli.control import history as histories
from raybus_cli.control.actions import Action
from raybus_cli.explaining import findings
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import phase, tree
from raybus_cli.show.gates import Gates
from raybus_cli.show.phase import Phase, Tone
from raybus_cli.show.tree import Branch, LastEvent, Tree
from raybus_dashboard import timeline
from raybus_dashboard.timeline import Timeline

ANNOTATING: Final[Mapping[str, Callable[[RayService], Action]]] = {
    "pause": actions.pause,
    "resume": actions.resume,
    "promote": actions.promote,
    "abort": actions.abort,
    "retry": actions.retry,
}
UNDO: Final = "undo"
VERBS: Final = (*ANNOTATING, UNDO)


class Control(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An action that applies to the present state of a RayService."""

    verb: str
    effect: str
    """The effect, as shown when the page asks for confirmation."""
    command: str
    """The equivalent command at a terminal."""
    generation: int
    """Generation of the RayService for which the action was offered."""


def available(snapshot: Snapshot, *, now: datetime) -> list[Control]:
    """Return the actions that apply now; empty for a RayService of another controller."""
    service = snapshot.service
    try:
        actions.expect_ours(service)
    except errors.Rejected:
        return []
    effects: dict[str, str] = {}
    for verb, decide in ANNOTATING.items():
        if verb == "pause" and upgrade_controls.read_controls(service).pauses:
            continue
        try:
            found = decide(service)
        except errors.Rejected:
            continue
        effects[verb] = f"The upgrade is {found.effect}" + (
            f": {found.note}." if found.note else "."
        )
    try:
        entry = history.choose(histories.build(snapshot, now=now), None, service.metadata.name)
        fields = " and ".join(history.change(service, entry).fields)
        effects[UNDO] = (
            f"Restores {fields} of revision {entry.number}; a spec that is managed in Git must "
            "be changed there too."
        )
    except errors.RaybusError:
        pass
    meta = service.metadata
    return [
        Control(
            verb=verb,
            effect=effect,
            command=f"raybus {verb} {meta.name} -n {meta.namespace}",
            generation=meta.generation,
        )
        for verb, effect in effects.items()
    ]


MAX_PODS: Final = 100
"""Maximum number of pod names per cluster that the page receives."""
HEAD: Final = "head"
READY: Final = "Ready"


class Share(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster's share of the traffic in percent; None if unknown."""

    name: str
    role: str
    weight: int | None = None


class RowUpgrade(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The progress of an upgrade; `step` and `steps` are None if all traffic moves at once."""

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
    upgrade: RowUpgrade | None = None
    shares: list[Share] = []


class Group(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods of a group: the number of ready pods, and of the others by state."""

    name: str
    ready: int
    pods: int
    others: dict[str, int] = {}
    restarts: int = 0


class Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster of a RayService; percentages are None if unknown."""

    name: str
    role: str
    weight: int | None = None
    target_capacity: int | None = None
    ready_capacity: int | None = None
    groups: list[Group] = []
    pods: list[str] = []
    """Pod names from which the user chooses a log, at most `MAX_PODS`: the head first, then pods
    that are not ready.
    """
    applications: dict[str, str] = {}
    note: str = ""


class Cause(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A blocking issue and its remedy."""

    what: str
    remedy: str


class Detail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that the page shows of the selected RayService."""

    key: str
    row: Row | None = None
    """The row of the list; None if the RayService does not exist."""
    problem: str = ""
    """Why the last read failed; empty if it succeeded."""
    clusters: list[Cluster] = []
    causes: list[Cause] = []
    timelines: list[Timeline] = []
    gates: Gates | None = None
    """The gates of the upgrade in progress, at its present weight."""
    receipt: Receipt | None = None
    """Receipt of the last upgrade, from the RayService's annotation."""
    last_event: LastEvent | None = None
    unseen: list[str] = []
    controls: list[Control] = []


def key_of(service: RayService) -> str:
    """Return NAMESPACE/NAME, which identifies a RayService on the page."""
    return f"{service.metadata.namespace}/{service.metadata.name}"


MAX_ROW_MESSAGE: Final = 2000
"""Maximum characters of a message in the list; the detail has the whole message."""


def row(service: RayService, cluster: RayCluster | None, *, now: datetime) -> Row:
    """Build the row of a RayService; `cluster` is the pending one, None if unknown."""
    snapshot = Snapshot(service=service, clusters=() if cluster is None else (cluster,))
    found = _row(service, tree.build(snapshot, now=now, is_brief=True))
    short = untrusted.clipped(found.message, MAX_ROW_MESSAGE)
    return msgspec.structs.replace(found, message=short)


def unreadable(namespace: str, name: str, problem: Exception) -> Row:
    """Build the row of a RayService that cannot be shown because of an error."""
    return Row(
        namespace=namespace,
        name=name,
        phase=Phase.INVALID,
        tone=Tone.BAD,
        message=why_unreadable(problem),
        strategy="",
        endpoints=0,
        created=None,
    )


def why_unreadable(problem: Exception) -> str:
    """Return why a RayService cannot be shown, as one line."""
    return untrusted.clipped(f"it cannot be shown: {problem}", MAX_ROW_MESSAGE)


def detail(
    snapshot: Snapshot, timelines: Sequence[Timeline], *, now: datetime, problem: str = ""
) -> Detail:
    """Build the detail of the selected RayService."""
    built = tree.build(snapshot, now=now)
    causes = findings.explain(snapshot, now=now).findings
    return Detail(
        key=key_of(snapshot.service),
        row=_row(snapshot.service, built),
        problem=problem,
        clusters=[_cluster(each) for each in built.clusters],
        causes=[Cause(what=each.message, remedy=each.remedy) for each in causes],
        timelines=[_judged(each, snapshot) for each in timelines],
        gates=built.upgrade.gates if built.upgrade is not None else None,
        receipt=_receipt(built.receipt),
        last_event=built.last_event,
        unseen=built.unseen,
        controls=available(snapshot, now=now),
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
        upgrade=_upgrade(built.upgrade),
        shares=_shares(service),
    )


def _upgrade(held: tree.UpgradeProgress | None) -> RowUpgrade | None:
    if held is None:
        return None
    return RowUpgrade(
        direction=held.direction,
        step=held.step,
        steps=held.steps,
        next_step_at=held.next_step_at,
    )


def _shares(service: RayService) -> list[Share]:
    snapshot = Snapshot(service=service)
    sides = (("active", snapshot.active), ("pending", snapshot.pending))
    return [
        Share(name=name, role=role, weight=tree.weight(snapshot, name))
        for role, name in sides
        if name
    ]


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
        pods=[each.name for each in sorted(branch.pods, key=_log_order)][:MAX_PODS],
        applications=branch.applications,
        note=branch.note,
    )


def _log_order(pod: tree.PodLine) -> tuple[bool, bool, str]:
    return pod.group != HEAD, pod.state == READY, pod.name


def _group(name: str, pods: Sequence[tree.PodLine]) -> Group:
    states = Counter(pod.state for pod in pods)
    ready = states.pop(READY, 0)
    restarts = sum(pod.restarts for pod in pods)
    return Group(name=name, ready=ready, pods=len(pods), others=dict(states), restarts=restarts)


def _judged(held: Timeline, snapshot: Snapshot) -> Timeline:
    return timeline.judged(held, traffic_record.upgrade_of(snapshot.record, held.old, held.new))


def _receipt(text: str | None) -> Receipt | None:
    """Parse the receipt annotation; None if it is not a receipt."""
    found = annotation_record.decode(text or "", Receipt)
    return (
        None if found is None else msgspec.structs.replace(found, steps=found.gated_steps or UNSET)
    )
