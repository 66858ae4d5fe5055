"""What a plan may ask for. `apply.py` carries these out and is the only module that writes.

An action brings the Events that tell of it: `done` after success, `failed` after a failure, with the error's text added.
"""

from datetime import datetime
from typing import Final

import msgspec

from cluster_reconciler.reasons import ReplicaFailure
from cluster_reconciler.resources.replica import ReplicaIndex
from cluster_reconciler.status.replica_failure import Failure
from common.api.event import Event
from common.api.opaque import Body
from common.api.ray_cluster import WorkerGroupSpec
from common.kube.resources import Resource


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What users hear of an action."""

    done: Event | None = None
    failed: Event | None = None
    failure: ReplicaFailure | None = None
    """The reason that the condition ReplicaFailure gives when the action fails."""


SILENT: Final = Told()


class CreateChild(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Create a child that is absent."""

    resource: Resource
    body: Body
    told: Told = SILENT
    may_exist: bool = True
    """Whether an object of that name is as good as ours."""
    wanted: str = ""
    """As in `Child`."""

    def __str__(self) -> str:
        return f"create {self.resource.kind} {self.body['metadata']['name']}"


class ReplaceChild(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Bring a child that differs from what it should be up to date, if it is unchanged since it was read."""

    resource: Resource
    body: Body
    """The whole object as read, with what we own changed."""
    told: Told = SILENT

    def __str__(self) -> str:
        return f"update {self.resource.kind} {self.body['metadata']['name']}"


class DeleteChild(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete a child, if it is still the one that was read."""

    resource: Resource
    name: str
    uid: str
    released: Body | None = None
    """The object without the finalizer that would hold it back; it is written first."""
    told: Told = SILENT

    def __str__(self) -> str:
        return f"delete {self.resource.kind} {self.name}"


class CreatePod(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Create a pod whose name was computed from what was observed, so that a repeat meets AlreadyExists."""

    body: Body
    told: Told

    @property
    def name(self) -> str:
        """Return the name of the pod."""
        return self.body["metadata"]["name"]

    def __str__(self) -> str:
        return f"create Pod {self.name}"


class CreateWorker(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Create a worker pod at a place of its group.

    The body is built when the request is sent: a plan of many workers holds none of them.
    """

    name: str
    group: WorkerGroupSpec
    replica: ReplicaIndex
    told: Told

    def __str__(self) -> str:
        return f"create Pod {self.name}"


class DeletePod(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete one pod, if it is still the one that was observed."""

    name: str
    uid: str
    told: Told

    def __str__(self) -> str:
        return f"delete Pod {self.name}"


class DeletePods(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Delete all pods that a selector matches, in one request."""

    selector: dict[str, str]
    told: Told

    def __str__(self) -> str:
        return f"delete Pods {','.join(f'{key}={value}' for key, value in sorted(self.selector.items()))}"


class AnnotatePod(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Set annotations of a pod, if it is unchanged since it was observed."""

    name: str
    resource_version: str
    annotations: dict[str, str]

    def __str__(self) -> str:
        return f"annotate Pod {self.name}"


class SetFinalizers(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Set the finalizers of the RayCluster, if it is unchanged since it was observed."""

    finalizers: tuple[str, ...]
    told: Told = SILENT

    def __str__(self) -> str:
        return f"set finalizers {','.join(self.finalizers) or 'to none'}"


class Tell(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Write an Event."""

    event: Event

    def __str__(self) -> str:
        return f"event {self.event.reason}"


class Refuse(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Say why the plan cannot go on; what follows is not done, and another look comes soon."""

    event: Event

    def __str__(self) -> str:
        return f"refuse {self.event.reason}"


Action = (
    CreateChild
    | ReplaceChild
    | DeleteChild
    | CreatePod
    | CreateWorker
    | DeletePod
    | DeletePods
    | AnnotatePod
    | SetFinalizers
    | Tell
    | Refuse
)


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """Actions that do not depend on one another; they run side by side, a few at a time."""

    actions: tuple[Action, ...]
    is_needed: bool = True
    """Whether the next steps wait for the success of this one."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What to do now, in order, and what the status needs to know about it."""

    steps: tuple[Step, ...] = ()
    writes_status: bool = True
    unfinished: str = ""
    """Why the pods are not yet what they should be, though nothing failed."""
    fault: str = ""
    """What nobody but a user, or time, can resolve: the look ends in an error and is repeated with back-off."""
    refusal: Failure | None = None
    """Why no pod may be made until the spec changes; the condition ReplicaFailure reports it."""
    is_partial: bool = False
    """Whether the plan is one batch of a larger change: the key is requeued at once, behind the keys that wait."""
    looks_again: bool = True
    """Whether the periodic look applies."""
    look_again_at: datetime | None = None
    """When time alone changes what there is to do."""
    notes: tuple[str, ...] = ()

    @property
    def actions(self) -> tuple[Action, ...]:
        """Return the actions of all steps."""
        return tuple(action for step in self.steps for action in step.actions)

    @property
    def mends_children(self) -> bool:
        """Tell whether children are changed or deleted, so that the next look has to read them again."""
        return any(isinstance(action, ReplaceChild | DeleteChild) for action in self.actions)

    @property
    def new_pods(self) -> frozenset[str]:
        """Return the names of the pods that are created."""
        return frozenset(action.name for action in self.actions if isinstance(action, CreatePod | CreateWorker))

    @property
    def touches_pods(self) -> bool:
        """Tell whether pods are created or deleted, which needs a fresh list once."""
        return any(isinstance(action, CreatePod | CreateWorker | DeletePod | DeletePods) for action in self.actions)
