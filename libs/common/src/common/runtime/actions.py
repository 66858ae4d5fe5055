"""Plans and their actions, as data. `common.runtime.executor` executes them.

An action contains the Events that report it to users. `str(action)` is a short phrase for the log.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import ClassVar, Final, Generic, Literal, TypeVar

import msgspec

from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.bus import cloud_events
from common.bus.cloud_events import EventData
from common.kube.resources import Resource


class KubeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A Kubernetes Event about the reconciled object; `common.runtime.events` writes it."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


def normal(reason: str, action: str, note: str) -> KubeEvent:
    """Return an Event of type Normal."""
    return KubeEvent(type="Normal", reason=reason, action=action, note=note)


def warning(reason: str, action: str, note: str) -> KubeEvent:
    """Return an Event of type Warning."""
    return KubeEvent(type="Warning", reason=reason, action=action, note=note)


class ActionEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The Events that report the success and the failure of an action."""

    success: KubeEvent | None = None
    failure: KubeEvent | None = None
    """The Event of a failure. The text of the error is appended to the Event's note."""
    condition_reason: str = ""
    """Reason of the condition that reports a failure; empty if no condition reports it."""


class EventTemplate(msgspec.Struct, frozen=True):
    """Template for the two Events of a write: one for success, one for failure.

    The notes are "Created <object>" and "Failed to create <object>: <error>", where <object> is
    `object_text` with its placeholders filled. `verb` is Create, Update or Delete.
    """

    verb: str
    kind: str
    """Part of the Events' reasons `Created<kind>` and `FailedToCreate<kind>`."""
    object_text: str
    end: str = ": "
    failed: str = ""
    """Start of the note of a failure; if empty, it is "Failed to create <object>" and `end`."""
    failed_kind: str = ""

    @property
    def reasons(self) -> tuple[str, str]:
        """The reasons of the success Event and of the failure Event."""
        return f"{self.verb}d{self.kind}", f"FailedTo{self.verb}{self.failed_kind or self.kind}"

    def format(self, *names: str, **more: str) -> ActionEvents:
        """Return the Events of a write.

        `names` and `more` are the values for the placeholders in `object_text` and `failed`.
        """
        (success_reason, failure_reason), note = (
            self.reasons,
            self.failed or f"Failed to {self.verb.lower()} {self.object_text}{self.end}",
        )
        success = normal(
            success_reason, self.verb, f"{self.verb}d {self.object_text.format(*names, **more)}"
        )
        return ActionEvents(
            success=success, failure=warning(failure_reason, self.verb, note.format(*names, **more))
        )


SILENT: Final = ActionEvents()
STATUS_NOT_WRITTEN: Final = "StatusNotWritten"
FINALIZER_NOT_SET: Final = "FinalizerNotSet"
STATUS_REFUSED: Final = ActionEvents(
    failure=warning(STATUS_NOT_WRITTEN, "Reconcile", "The status is not written: ")
)
FINALIZER_REFUSED: Final = ActionEvents(
    failure=warning(
        FINALIZER_NOT_SET,
        "Reconcile",
        "The finalizer is not set, and nothing is created without it: ",
    )
)
MAIN: Final = "main"
"""Name of the default chain of actions."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """Base class of all actions. A service may define its own actions."""

    events: ActionEvents = SILENT
    is_side: bool = False
    """Whether no later action depends on this action.

    If so, the plan continues after a failure of this action, and raises the error at the end."""
    chain: str = MAIN
    """Name of the chain to which the action belongs.

    Each action of a chain depends on the earlier ones. If an action fails, the rest of its chain is
    skipped; other chains continue.
    """
    is_optional: ClassVar[bool] = False
    """Whether a failure of this action is only reported by an Event, and does not fail the plan."""

    @property
    def continues(self) -> bool:
        """Whether this action completes the action before it.

        If so, the plan is not cut off between the two actions.
        """
        return False


class IfExists(Enum):
    """What a `Create` action does if an object with the same name exists."""

    REQUEUE = auto()
    """Reads the object into the cache and raises `Conflict`, so that the next reconcile decides
    again.
    """
    ACCEPT = auto()
    """Leaves the object as it is, because any object with this name serves the purpose."""
    NEED_OWN = auto()
    """Reads the object; raises `AlreadyExists` unless the reconciled object owns it."""


class Create(Action, frozen=True, kw_only=True):
    """Create an object; `if_exists` decides what happens if an object has its name already."""

    resource: Resource
    body: Body
    if_exists: IfExists = IfExists.REQUEUE

    def __str__(self) -> str:
        return f"create {self.resource.kind} {self.body['metadata']['name']}"


class Replace(Action, frozen=True, kw_only=True):
    """Replace an object. `body` has the observed resourceVersion, so a stale write conflicts."""

    resource: Resource
    body: Body

    def __str__(self) -> str:
        return f"update {self.resource.kind} {self.body['metadata']['name']}"


class Patch(Action, frozen=True, kw_only=True):
    """Merge a patch into an object.

    The patch has the observed resourceVersion, so a stale write conflicts.
    """

    resource: Resource
    name: str
    patch: Body

    def __str__(self) -> str:
        return f"change {self.resource.kind} {self.name}"


class Delete(Action, frozen=True, kw_only=True):
    """Delete one object. The UID prevents deleting a different object with the same name."""

    resource: Resource
    name: str
    uid: str
    released: Body | None = None
    """The object without the finalizer that would delay its deletion.

    If set, it is written before the object is deleted."""

    def __str__(self) -> str:
        return f"delete {self.resource.kind} {self.name}"


class DeleteCollection(Action, frozen=True, kw_only=True):
    """Delete all objects that match a selector, in one request."""

    resource: Resource
    selector: dict[str, str]

    def __str__(self) -> str:
        selector = ",".join(f"{key}={value}" for key, value in sorted(self.selector.items()))
        return f"delete {self.resource.kind}s {selector}"


class UpdateStatus(Action, frozen=True, kw_only=True):
    """Replace the status of the reconciled object.

    The write conflicts if the object has changed since it was observed.
    """

    status: msgspec.Struct

    def __str__(self) -> str:
        return "update the status"


class SetFinalizers(Action, frozen=True, kw_only=True):
    """Set the finalizers of the reconciled object, and optionally fields of its spec."""

    finalizers: tuple[str, ...]
    spec: Json | None = None
    """Fields of the spec to change in the same write."""

    def patch(self, version: str) -> Body:
        """Return the merge patch, which requires the object to have resourceVersion `version`."""
        meta = {"resourceVersion": version, "finalizers": list(self.finalizers)}
        return {"metadata": meta} if self.spec is None else {"metadata": meta, "spec": self.spec}

    def __str__(self) -> str:
        return f"set finalizers: {', '.join(self.finalizers) or '-'}"


class Finalizer(msgspec.Struct, frozen=True, kw_only=True):
    """A finalizer of raybus, and the Event that reports its removal before the clean-up is done."""

    name: str
    limit: Callable[[ObjectMeta], timedelta]
    """Function that returns for how long the finalizer may delay the deletion of an object."""
    event: Callable[[ObjectMeta, timedelta], KubeEvent]
    """Function that returns the Event which tells the user what to clean up by hand."""


class Annotate(Action, frozen=True, kw_only=True):
    """Set an annotation of the reconciled object; remove it if the value is None."""

    name: str
    value: str | None

    def patch(self, version: str) -> Body:
        """Return the merge patch, which requires the object to have resourceVersion `version`."""
        return {"metadata": {"resourceVersion": version, "annotations": {self.name: self.value}}}

    def __str__(self) -> str:
        return (
            f"annotate with {self.name}"
            if self.value is not None
            else f"remove annotation {self.name}"
        )


class Publish(Action, frozen=True, kw_only=True):
    """Publish an event on NATS, at most once per process.

    A plan has this action before the write that overwrites the state which the event reports.
    """

    data: EventData
    facts: tuple[object, ...] = ()
    """Values that distinguish this event from others of the same kind and series.

    They must be the same after a restart."""
    at: datetime

    @property
    def id(self) -> str:
        """ID of the event; the same each time the event is published."""
        return cloud_events.identity(self.data, *self.facts)

    def __str__(self) -> str:
        return f"publish {self.data.kind} of {self.data.series}"


class EmitEvent(Action, frozen=True, kw_only=True):
    """Emit an Event that does not report a write."""

    event: KubeEvent

    def __str__(self) -> str:
        return f"event {self.event.reason}"


class Refuse(EmitEvent, frozen=True, kw_only=True):
    """Emit an Event that says why the plan cannot continue, and raise `InvalidSpec`."""

    def __str__(self) -> str:
        return f"refuse {self.event.reason}"


class Parallel(msgspec.Struct, frozen=True, kw_only=True):
    """Independent actions that are executed concurrently, in batches.

    The Events of these actions are written after all writes of the plan.
    """

    actions: tuple[Action, ...]
    is_side: bool = False
    """Whether no later action depends on these actions.

    `is_side` and `chain` have the same meaning as in `Action`."""
    chain: str = MAIN
    starts_slowly: bool = False
    """Whether the first batch has one action and each later batch twice as many.

    If the quota is exhausted, only a few requests fail instead of thousands.
    """


Step = TypeVar("Step", bound=Action | Parallel)


def earliest(*moments: datetime | None) -> datetime | None:
    """Return the earliest of the given times; None if all of them are None."""
    return min((moment for moment in moments if moment is not None), default=None)


class Plan(msgspec.Struct, Generic[Step], frozen=True, kw_only=True):
    """The plan of one reconcile: ordered actions, time of the next reconcile, note for the log."""

    actions: tuple[Step, ...] = ()
    requeue_at: datetime | None = None
    note: str = ""
