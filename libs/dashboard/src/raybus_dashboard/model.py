"""The content of the dashboard page, built from snapshots and events, and the actions it offers.

Does no I/O. The page's script decides nothing but the layout.
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
from raybus_cli.control.actions import ControlAction
from raybus_cli.explaining import findings
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import phase, tree
from raybus_cli.show.gates import Gates
from raybus_cli.show.phase import ServicePhase, Tone
from raybus_cli.show.tree import Branch, LastEvent, Tree
from raybus_dashboard import timeline
from raybus_dashboard.timeline import Timeline

ANNOTATING: Final[Mapping[str, Callable[[RayService], ControlAction]]] = {
    "pause": actions.pause,
    "resume": actions.resume,
    "promote": actions.promote,
    "abort": actions.abort,
    "retry": actions.retry,
}
UNDO: Final = "undo"
VERBS: Final = (*ANNOTATING, UNDO)


class ActionButton(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An action that applies to the present state of a RayService."""

    verb: str
    effect: str
    """The effect, as shown when the page asks for confirmation."""
    command: str
    """The equivalent command at a terminal."""
    generation: int
    """Generation of the RayService for which the action was offered."""


def list_available_actions(snapshot: Snapshot, *, now: datetime) -> list[ActionButton]:
    """Return the actions that apply now; empty for a RayService of another controller."""
    service = snapshot.service
    try:
        actions.check_is_managed(service)
    except errors.Rejected:
        return []
    effects: dict[str, str] = {}
    for verb, decide in ANNOTATING.items():
        if verb == "pause" and upgrade_controls.read_controls(service).pauses:
            continue
        try:
            action = decide(service)
        except errors.Rejected:
            continue
        effects[verb] = f"The upgrade is {action.effect}" + (
            f": {action.note}." if action.note else "."
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
        ActionButton(
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


class TrafficShare(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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


class ListedService(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
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
    shares: list[TrafficShare] = []


class GroupPods(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Numbers of pods of a group: `ready`, all (`pods`), and by state if not ready (`others`)."""

    name: str
    ready: int
    pods: int
    others: dict[str, int] = {}
    restarts: int = 0


class ShownCluster(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A cluster of a RayService; percentages are None if unknown."""

    name: str
    role: str
    weight: int | None = None
    target_capacity: int | None = None
    ready_capacity: int | None = None
    groups: list[GroupPods] = []
    pods: list[str] = []
    """Pod names from which the user chooses a log, at most `MAX_PODS`: the head first, then pods
    that are not ready.
    """
    applications: dict[str, str] = {}
    note: str = ""


class ShownCause(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A finding of `raybus explain`: a problem of the RayService, and its remedy."""

    what: str
    remedy: str


class Detail(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """All that the page shows of the selected RayService."""

    key: str
    row: ListedService | None = None
    """The row of the list; None if the RayService does not exist."""
    problem: str = ""
    """Why the last read failed; empty if it succeeded."""
    clusters: list[ShownCluster] = []
    causes: list[ShownCause] = []
    timelines: list[Timeline] = []
    gates: Gates | None = None
    """The gates of the upgrade in progress, at its present weight."""
    receipt: Receipt | None = None
    """Receipt of the last upgrade, from the RayService's annotation."""
    last_event: LastEvent | None = None
    unseen: list[str] = []
    controls: list[ActionButton] = []


def format_key(service: RayService) -> str:
    """Return NAMESPACE/NAME, which identifies a RayService on the page."""
    return f"{service.metadata.namespace}/{service.metadata.name}"


MAX_ROW_MESSAGE: Final = 2000
"""Maximum characters of a message in the list; the detail has the whole message."""


def build_row(service: RayService, cluster: RayCluster | None, *, now: datetime) -> ListedService:
    """Build the row of a RayService; `cluster` is the pending one, None if unknown."""
    snapshot = Snapshot(service=service, clusters=() if cluster is None else (cluster,))
    row = _fill_row(service, tree.build(snapshot, now=now, is_brief=True))
    short = untrusted.clipped(row.message, MAX_ROW_MESSAGE)
    return msgspec.structs.replace(row, message=short)


def build_unreadable_row(namespace: str, name: str, problem: Exception) -> ListedService:
    """Build the row of a RayService that cannot be shown because of an error."""
    return ListedService(
        namespace=namespace,
        name=name,
        phase=ServicePhase.INVALID,
        tone=Tone.BAD,
        message=explain_unreadable(problem),
        strategy="",
        endpoints=0,
        created=None,
    )


def explain_unreadable(problem: Exception) -> str:
    """Return why an object cannot be shown, as one line."""
    return untrusted.clipped(f"it cannot be shown: {problem}", MAX_ROW_MESSAGE)


def build_detail(
    snapshot: Snapshot, timelines: Sequence[Timeline], *, now: datetime, problem: str = ""
) -> Detail:
    """Build the detail of the selected RayService.

    `timelines` are its known upgrades, `problem` is the error of a failed read.
    """
    built = tree.build(snapshot, now=now)
    causes = findings.explain(snapshot, now=now).findings
    return Detail(
        key=format_key(snapshot.service),
        row=_fill_row(snapshot.service, built),
        problem=problem,
        clusters=[_build_cluster(cluster) for cluster in built.clusters],
        causes=[ShownCause(what=cause.message, remedy=cause.remedy) for cause in causes],
        timelines=[_add_verdicts(upgrade, snapshot) for upgrade in timelines],
        gates=built.upgrade.gates if built.upgrade is not None else None,
        receipt=_parse_receipt(built.receipt),
        last_event=built.last_event,
        unseen=built.unseen,
        controls=list_available_actions(snapshot, now=now),
    )


def _fill_row(service: RayService, built: Tree) -> ListedService:
    return ListedService(
        namespace=built.namespace,
        name=built.name,
        phase=built.phase,
        tone=phase.get_tone(built.phase),
        message=built.message,
        strategy=built.strategy,
        endpoints=built.endpoints,
        created=service.metadata.creation_timestamp,
        upgrade=_build_upgrade(built.upgrade),
        shares=_list_shares(service),
    )


def _build_upgrade(progress: tree.UpgradeProgress | None) -> RowUpgrade | None:
    if progress is None:
        return None
    return RowUpgrade(
        direction=progress.direction,
        step=progress.step,
        steps=progress.steps,
        next_step_at=progress.next_step_at,
    )


def _list_shares(service: RayService) -> list[TrafficShare]:
    snapshot = Snapshot(service=service)
    sides = (("active", snapshot.active), ("pending", snapshot.pending))
    return [
        TrafficShare(name=name, role=role, weight=tree.find_weight(snapshot, name))
        for role, name in sides
        if name
    ]


def _build_cluster(branch: Branch) -> ShownCluster:
    groups: dict[str, list[tree.PodLine]] = {}
    for pod in branch.pods:
        groups.setdefault(pod.group, []).append(pod)
    return ShownCluster(
        name=branch.name,
        role=branch.role,
        weight=branch.weight,
        target_capacity=branch.target_capacity,
        ready_capacity=branch.ready_capacity,
        groups=[_group(name, pods) for name, pods in groups.items()],
        pods=[pod.name for pod in sorted(branch.pods, key=_log_order)][:MAX_PODS],
        applications=branch.applications,
        note=branch.note,
    )


def _log_order(pod: tree.PodLine) -> tuple[bool, bool, str]:
    return pod.group != HEAD, pod.state == READY, pod.name


def _group(name: str, pods: Sequence[tree.PodLine]) -> GroupPods:
    states = Counter(pod.state for pod in pods)
    ready = states.pop(READY, 0)
    restarts = sum(pod.restarts for pod in pods)
    return GroupPods(name=name, ready=ready, pods=len(pods), others=dict(states), restarts=restarts)


def _add_verdicts(upgrade: Timeline, snapshot: Snapshot) -> Timeline:
    return timeline.add_verdicts(
        upgrade, traffic_record.upgrade_of(snapshot.record, upgrade.old, upgrade.new)
    )


def _parse_receipt(text: str | None) -> Receipt | None:
    """Parse an upgrade's receipt from its annotation; None if the text is no receipt."""
    receipt = annotation_record.decode(text or "", Receipt)
    return (
        None
        if receipt is None
        else msgspec.structs.replace(receipt, steps=receipt.gated_steps or UNSET)
    )
