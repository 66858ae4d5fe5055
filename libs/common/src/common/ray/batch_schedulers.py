"""Labels, annotations and PodGroups that batch schedulers read, for RayClusters and RayJobs.

Spec raycluster §17, rayjob §16.
"""

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

import msgspec
import re2

from common import pod_json, quantity
from common.api import go_json
from common.api.go_types import POD_SPEC
from common.api.opaque import Body, Json
from common.kube.resources import Resource
from common.ray import desired_resources

GANG: Final = "ray.io/gang-scheduling-enabled"
"""Label of a RayCluster or RayJob whose pods must be scheduled all together or not at all."""
VOLCANO: Final = "volcano"
YUNIKORN: Final = "yunikorn"
SCHEDULER_PLUGINS: Final = "scheduler-plugins"
KAI: Final = "kai-scheduler"

VOLCANO_POD_GROUP: Final = Resource(
    group="scheduling.volcano.sh", version="v1beta1", kind="PodGroup", plural="podgroups"
)
VOLCANO_QUEUE: Final = "volcano.sh/queue-name"
PRIORITY_CLASS: Final = "ray.io/priority-class-name"
TOPOLOGY_MODE: Final = "volcano.sh/network-topology-mode"
TOPOLOGY_TIER: Final = "volcano.sh/network-topology-highest-tier-allowed"
TASK_GROUPS: Final = "yunikorn.apache.org/task-groups"
TASK_GROUP_NAME: Final = "yunikorn.apache.org/task-group-name"
_INTEGER: Final = re2.compile(r"[+-]?[0-9]+")

Copies: TypeAlias = tuple[tuple[str, str], ...]
"""Labels to copy from a parent to a child, as pairs of the names on parent and child."""
VOLCANO_COPIES: Final[Copies] = (
    (VOLCANO_QUEUE, VOLCANO_QUEUE),
    (PRIORITY_CLASS, PRIORITY_CLASS),
)
YUNIKORN_COPIES: Final[Copies] = (
    ("yunikorn.apache.org/app-id", "applicationId"),
    ("yunikorn.apache.org/queue", "queue"),
)
KAI_COPIES: Final[Copies] = (("kai.scheduler/queue", "kai.scheduler/queue"),)


def copy_labels(copies: Copies, parent: Mapping[str, str], metadata: Body) -> None:
    """Copy labels of `parent` into a child's `metadata`; empty values are left out."""
    for label, into in copies:
        if value := parent.get(label):
            pod_json.ensure_body(metadata, "labels")[into] = value


def volcano_group_name(name: str) -> str:
    """Return the PodGroup's name for a RayCluster or RayJob; a RayJob's clusters share one."""
    return f"ray-{name}-pg"


def volcano_marks(group_name: str, task: str) -> dict[str, str]:
    """Return the annotations that assign a pod to `task` of a Volcano PodGroup."""
    return {"scheduling.k8s.io/group-name": group_name, "volcano.sh/task-spec": task}


def build_volcano_spec(own: Mapping[str, str], numbers: Body) -> Body:
    """Return the spec of a Volcano PodGroup.

    `own` are the labels of the group's owner, and `numbers` has `minMember` and `minResources`. A
    topology tier that is not a number is left out; `find_topology_violation` reports it.
    """
    tier = own.get(TOPOLOGY_TIER, "")
    highest = {"highestTierAllowed": int(tier)} if _INTEGER.fullmatch(tier) else {}
    topology = {"mode": own[TOPOLOGY_MODE], **highest} if own.get(TOPOLOGY_MODE) else None
    options = {
        "queue": own.get(VOLCANO_QUEUE),
        "priorityClassName": own.get(PRIORITY_CLASS),
        "networkTopology": topology,
    }
    return numbers | {field: value for field, value in options.items() if value}


def find_topology_violation(own: Mapping[str, str], namespace: str, group: str) -> str | None:
    """Return why the topology tier in the labels of a PodGroup's owner is no number, or else None.

    `own` are the labels of the owner, and `group` is the name of the PodGroup.
    """
    tier = own.get(TOPOLOGY_TIER, "")
    if not own.get(TOPOLOGY_MODE) or not tier or _INTEGER.fullmatch(tier):
        return None
    return (
        f'failed to convert {TOPOLOGY_TIER} label to int: strconv.Atoi: parsing "{tier}": '
        f"invalid syntax for podgroup {group} in namespace {namespace}"
    )


def resize_volcano_group(have: Body, numbers: Body) -> Body | None:
    """Return the PodGroup `have` with `minMember` and `minResources` replaced by `numbers`.

    None if the PodGroup has these values already.
    """
    spec = pod_json.body(have, "spec")
    current, wanted = pod_json.mapping(spec, "minResources"), numbers["minResources"]
    has_resources = "minResources" in spec and current.keys() == wanted.keys()
    if (
        has_resources
        and spec.get("minMember") == numbers["minMember"]
        and all(
            quantity.parse(current[name]).compare(quantity.parse(amount)) == 0
            for name, amount in wanted.items()
        )
    ):
        return None
    return {**have, "spec": {**spec, **numbers}}


class TaskGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Equal pods of a gang, which YuniKorn schedules as one task group."""

    name: str
    template: Body
    amounts: desired_resources.Amounts
    """Resources of one pod."""
    min_members: int


def encode_task_groups(groups: Iterable[TaskGroup]) -> str:
    """Return the JSON value of YuniKorn's annotation `task-groups`, as Go writes it."""
    described: list[Body] = []
    for group in groups:
        placing = pod_json.shared(
            pod_json.spec(group.template), "nodeSelector", "affinity", "tolerations"
        )
        placed: Json = msgspec.json.decode(go_json.encode(POD_SPEC, placing))
        body: Body = {"minResource": desired_resources.as_text(group.amounts)}
        body |= {field: placed[field] for field in ("nodeSelector", "affinity") if field in placed}
        body["name"] = group.name
        if "tolerations" in placed:
            body["tolerations"] = placed["tolerations"]
        described.append({**body, "minMember": group.min_members})
    return go_json.escaped(msgspec.json.encode(described).decode())
