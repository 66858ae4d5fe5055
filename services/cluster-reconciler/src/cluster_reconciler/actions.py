"""Plans of this service, and the action that only they have. `execute.py` does it; all others are in `common.runtime.actions`."""

from typing import ClassVar, Final

import msgspec

from cluster_reconciler.reasons import Failure
from cluster_reconciler.resources.node import ReplicaIndex
from common.api.ray_cluster import WorkerGroupSpec
from common.kube.resources import POD
from common.runtime.actions import Action, Create, Delete, DeleteCollection, Parallel, Patch, Plan


class CreateWorker(Action, frozen=True, kw_only=True):
    """Create a worker pod at a place of its group.

    The body is built when the request is sent: a plan of many workers holds none of them.
    """

    name: str
    group: WorkerGroupSpec
    replica: ReplicaIndex
    annotations: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """What the pod has beside those of its template."""

    @property
    def continues(self) -> bool:
        """Return whether the pod completes a replica of several hosts: one that is not whole would be deleted."""
        return self.replica.host > 0

    def __str__(self) -> str:
        return f"create Pod {self.name}"


class Adopt(Patch, frozen=True, kw_only=True):
    """Add an owner to an object that is not ours; a failure is reported, and nothing waits for it."""

    is_optional: ClassVar[bool] = True


class Continue(msgspec.Struct, frozen=True, kw_only=True):
    """Steps of a phase, after which the next phase decides."""

    actions: tuple[Parallel, ...] = ()
    note: str = ""


class ClusterPlan(Plan[Parallel], frozen=True, kw_only=True):
    """What to do now, in order, and what the status needs to know about it."""

    writes_status: bool = True
    unfinished: str = ""
    """Why the pods are not yet what they should be, though nothing failed."""
    fault: str = ""
    """What only a user, or time, can resolve: the reconcile ends in an error and is repeated with backoff."""
    refusal: Failure | None = None
    """Why no pod may be made until the spec changes; the condition ReplicaFailure reports it."""
    is_partial: bool = False
    """Whether the plan is one batch of a larger change: the key is requeued at once, behind the keys that wait."""
    is_periodic: bool = True
    """Whether the periodic reconcile applies."""
    is_submitted: bool = True
    """Whether the plan got as far as the batch scheduler's own objects."""


NOTHING: Final = ClusterPlan(writes_status=False, is_periodic=False)


def is_of_pod(action: Action) -> bool:
    """Return whether an action creates or deletes pods."""
    is_write = isinstance(action, Create | Delete | DeleteCollection)
    return isinstance(action, CreateWorker) or (is_write and action.resource is POD)


def step(*actions: Action, is_side: bool = False) -> tuple[Parallel, ...]:
    """Return the step of these actions; none when there are none."""
    return (Parallel(actions=actions, is_side=is_side),) if actions else ()
