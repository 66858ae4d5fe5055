"""The spec that `raybus undo` restores, and the patch for it.

The number of replicas is not restored: the RayService's scale of a group of the same name stays, and what
an autoscaler wrote on the cluster is removed.
"""

from typing import Final, cast

import msgspec

from common import errors, labels
from common.api.opaque import Body, Json
from common.api.ray_service import RayService
from common.ray import spec_hash
from raybus_cli.control.actions import Action
from raybus_cli.control.history import Entry
from raybus_cli.planning.predict import PlanOutcome

_EFFECTS: Final = {
    PlanOutcome.CREATED: ": the first cluster starts",
    PlanOutcome.NEW_CLUSTER: ": a new cluster starts",
    PlanOutcome.IN_PLACE: ": the running cluster changes in place",
    PlanOutcome.ROLLED_BACK: ": the service rolls back to its active cluster",
    PlanOutcome.NOTHING: ": no cluster changes now",
}
_SCALE = ("replicas", "minReplicas", "maxReplicas")


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """What is written."""

    operations: list[Body]
    """A JSON patch, rejected when another object has the name by now."""
    fields: tuple[str, ...]
    """The fields that it restores."""


def choose(entries: list[Entry], number: int | None, name: str) -> Entry:
    """Return the entry to restore: the given number, else the spec that served before this one."""
    if number is not None:
        found = next((each for each in entries if each.number == number), None)
        if found is None:
            raise errors.Rejected(f"there is no revision {number}; see 'raybus history {name}'")
        return found
    older = [each for each in entries if not each.is_current]
    if not older:
        raise errors.Rejected(
            f"no earlier spec of RayService {name} is stored ({labels.HISTORY_LIMIT} sets how many are); apply the manifest that "
            "you want back"
        )
    current = next((each for each in entries if each.is_current), None)
    if current is None:
        return next((each for each in reversed(older) if each.role == "active"), older[-1])
    since = [each for each in older if each.number > current.number and each.cluster == current.cluster]
    if since:  # the Serve config changed more than once on the same cluster
        return since[-1]
    return next((each for each in older if each.number == current.replaces), older[-1])


def change(service: RayService, entry: Entry) -> Change:
    """Return the patch that restores an earlier spec of a RayService."""
    config = _restored(entry.cluster_config, service.raw_cluster_config)
    if spec_hash.service_goal_hash(config) != entry.spec_hash:
        raise errors.Invariant(f"the spec of revision {entry.number} cannot be restored as it was; apply your manifest")
    operations: list[Body] = [{"op": "test", "path": "/metadata/uid", "value": service.metadata.uid}]
    changed: list[str] = []
    if config != service.raw_cluster_config:
        operations.append({"op": "replace", "path": "/spec/rayClusterConfig", "value": config})
        changed.append("spec.rayClusterConfig")
    if entry.serve_config is not None and entry.serve_config != service.raw_spec.get("serveConfigV2"):
        operations.append({"op": "add", "path": "/spec/serveConfigV2", "value": entry.serve_config})
        changed.append("spec.serveConfigV2")
    if not changed:
        raise errors.Rejected(f"RayService {service.metadata.name} asks for revision {entry.number} already")
    return Change(operations=operations, fields=tuple(changed))


def message(change: Change, entry: Entry, outcome: PlanOutcome, *, is_done: bool) -> str:
    """Return the result of a change, with the effect that its plan has."""
    verb = ("is" if len(change.fields) == 1 else "are") if is_done else "would be"
    effect = _EFFECTS.get(outcome, "")
    if outcome is PlanOutcome.ROLLED_BACK and entry.cluster:
        effect = f": the service rolls back to RayCluster {entry.cluster}"
    kept = "" if entry.serve_config is not None else "; its Serve config is unknown and stays"
    start = "" if is_done else "dry run: nothing is changed; "
    return f"{start}{' and '.join(change.fields)} {verb} restored from revision {entry.number}{effect}{kept}"


def action(note: str, generation: int, *, is_dry_run: bool) -> Action:
    """Return what a restored spec shows as; it is taken up when raybus has observed its generation."""
    return Action(
        annotations={},
        effect="rolled back",
        note=note,
        is_dry_run=is_dry_run,
        is_done=lambda later: later.status.observed_generation >= generation,
    )


def _restored(config: Json, goal: Json) -> Json:
    wanted = {str(each.get("groupName")): each for each in _groups(goal)}
    groups = [_rescaled(each, wanted.get(str(each.get("groupName")))) for each in _groups(config)]
    kept: Json = {"suspend": goal["suspend"]} if "suspend" in goal else {}
    without = {key: value for key, value in config.items() if key != "suspend"}
    return {**without, **({"workerGroupSpecs": groups} if "workerGroupSpecs" in config else {}), **kept}


def _rescaled(group: Json, wanted: Json | None) -> Json:
    """Return a group without what an autoscaler wrote, with the scale that the RayService gives to it."""
    held: Json = group.get("scaleStrategy") or {}
    strategy = {key: value for key, value in held.items() if key != "workersToDelete"}
    kept = {key: value for key, value in group.items() if key != "scaleStrategy"}
    if "scaleStrategy" in group:
        kept["scaleStrategy"] = strategy
    if wanted is None:
        return kept
    scale = {key: wanted[key] for key in _SCALE if key in wanted}
    return {**{key: value for key, value in kept.items() if key not in _SCALE}, **scale}


def _groups(config: Json) -> list[Json]:
    return cast("list[Json]", config.get("workerGroupSpecs") or [])
