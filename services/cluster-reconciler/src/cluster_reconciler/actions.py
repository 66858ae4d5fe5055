"""The plans of this service, and the actions that only these plans contain.

`execute.py` executes these actions. All other actions are in `common.runtime.actions`.
"""

from typing import ClassVar, Final

import msgspec

from cluster_reconciler.reasons import Failure
from cluster_reconciler.resources.node import ReplicaIndex
from cluster_reconciler.resources.worker_pod import WorkerPods
from common.kube.resources import POD
from common.runtime.actions import Action, Create, Delete, DeleteCollection, Parallel, Patch, Plan


class CreateWorker(Action, frozen=True, kw_only=True):
    """Create one worker pod of a group.

    The pod's manifest is built only when the request is sent, so that a plan of many workers stays
    small.
    """

    name: str
    pods: WorkerPods
    """Builds the pods of the worker's group; shared by all workers of the group in a plan."""
    replica: ReplicaIndex
    annotations: dict[str, str] = msgspec.field(default_factory=dict[str, str])
    """Annotations of the pod in addition to those of its template."""

    @property
    def continues(self) -> bool:
        """Whether the pod belongs to the same multi-host replica as the pod created before it.

        If so, a plan must not pause between the two, because an incomplete replica would be
        deleted.
        """
        return self.replica.host > 0

    def __str__(self) -> str:
        return f"create Pod {self.name}"


class Adopt(Patch, frozen=True, kw_only=True):
    """Add an owner reference to an object that raybus did not create.

    A failure is reported in an Event, and the plan continues.
    """

    is_optional: ClassVar[bool] = True


class Continue(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a planning phase: actions to add to the plan. The next phase then runs."""

    actions: tuple[Parallel, ...] = ()
    note: str = ""


class ClusterPlan(Plan[Parallel], frozen=True, kw_only=True):
    """The actions of a reconcile, in order, and facts about the plan that the status needs."""

    writes_status: bool = True
    unfinished: str = ""
    """Why the pods are not complete yet, although no action failed; empty if they are complete."""
    problem: str = ""
    """A problem that only a user or time can resolve; empty if there is none.

    A reconcile with a problem ends in an error and is retried with backoff.
    """
    refusal: Failure | None = None
    """Why no pod may be created until the spec changes. Condition ReplicaFailure reports it."""
    is_partial: bool = False
    """Whether the plan is one batch of a larger change.

    The cluster is then requeued at once, behind the clusters that are already in the queue.
    """
    is_periodic: bool = True
    """Whether the cluster is reconciled again after `Config.requeue_seconds`."""
    is_submitted: bool = True
    """Whether the plan reached the phase that submits the objects of the batch scheduler."""


EMPTY_PLAN: Final = ClusterPlan(writes_status=False, is_periodic=False)


def is_of_pod(action: Action) -> bool:
    """Return whether an action creates or deletes pods."""
    is_write = isinstance(action, Create | Delete | DeleteCollection)
    return isinstance(action, CreateWorker) or (is_write and action.resource is POD)


def make_step(*actions: Action, is_side: bool = False) -> tuple[Parallel, ...]:
    """Return one step of parallel actions, as a tuple that is empty if there are no actions.

    If a side step (`is_side`) fails, the steps after it are still executed.
    """
    return (Parallel(actions=actions, is_side=is_side),) if actions else ()
