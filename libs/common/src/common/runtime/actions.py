"""Plans and their actions; data only. `common.runtime.executor` executes them.

An action brings the Events that report it. As text it is a short phrase for the log.
"""

from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import ClassVar, Final, Generic, Literal, TypeVar

import msgspec

from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.kube.resources import Resource


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """An event that a decision reports to a user about an object; `common.runtime.events` writes it."""

    type: Literal["Normal", "Warning"]
    reason: str
    action: str
    note: str


def normal(reason: str, action: str, note: str) -> Event:
    """Return an Event of the type Normal."""
    return Event(type="Normal", reason=reason, action=action, note=note)


def warning(reason: str, action: str, note: str) -> Event:
    """Return an Event of the type Warning."""
    return Event(type="Warning", reason=reason, action=action, note=note)


class ActionEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The Events that report an action to users."""

    success: Event | None = None
    failure: Event | None = None
    """Its note is a beginning: the error's text completes it."""
    condition_reason: str = ""
    """The reason that a condition gives for the failure, if one does."""


class Report(msgspec.Struct, frozen=True):
    """The Events of a write: "Created <what>", or "Failed to create <what>: " and the error; the verb is Create, Update or Delete."""

    verb: str
    kind: str
    """As their reasons have it: `Created<kind>`, `FailedToCreate<kind>`."""
    what: str
    end: str = ": "
    failed: str = ""
    """The beginning of the failure's note, where it is not `Failed to create <what>` and `end`."""
    failed_kind: str = ""

    @property
    def reasons(self) -> tuple[str, str]:
        """Return the reason of the success, and that of the failure."""
        return f"{self.verb}d{self.kind}", f"FailedTo{self.verb}{self.failed_kind or self.kind}"

    def of(self, *names: str, **more: str) -> ActionEvents:
        """Return the Events with these names in the text, such as `<namespace>/<name>`."""
        (done, failed), note = (
            self.reasons,
            self.failed or f"Failed to {self.verb.lower()} {self.what}{self.end}",
        )
        success = normal(done, self.verb, f"{self.verb}d {self.what.format(*names, **more)}")
        return ActionEvents(
            success=success, failure=warning(failed, self.verb, note.format(*names, **more))
        )


SILENT: Final = ActionEvents()
MAIN: Final = "main"
"""The chain of an action that names no other."""


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """One thing to do; the base of all actions. A service may have actions of its own."""

    events: ActionEvents = SILENT
    is_side: bool = False
    """Whether nothing that follows depends on this: the plan continues after a failure, which is raised at its end."""
    chain: str = MAIN
    """Actions of one chain depend on those before; a failure ends its chain, and the others continue."""
    is_optional: ClassVar[bool] = False
    """Whether a failure is reported and nothing else."""

    @property
    def continues(self) -> bool:
        """Return whether this completes what the action before it began, so that a time slice does not end between them."""
        return False


class IfExists(Enum):
    """The behaviour of a creation if an object of its name exists."""

    REQUEUE = auto()
    """Reads it, so that the next reconcile decides anew."""
    ACCEPT = auto()
    """Nothing: any object is as good."""
    NEED_OWN = auto()
    """Reads it, and fails unless the reconciled object owns it."""


class Create(Action, frozen=True, kw_only=True):
    """Create an object."""

    resource: Resource
    body: Body
    if_exists: IfExists = IfExists.REQUEUE

    def __str__(self) -> str:
        return f"create {self.resource.kind} {self.body['metadata']['name']}"


class Replace(Action, frozen=True, kw_only=True):
    """Replace an object; the body carries the resourceVersion that was observed."""

    resource: Resource
    body: Body

    def __str__(self) -> str:
        return f"update {self.resource.kind} {self.body['metadata']['name']}"


class Patch(Action, frozen=True, kw_only=True):
    """Change some fields of an object; the patch carries the resourceVersion that was observed."""

    resource: Resource
    name: str
    patch: Body

    def __str__(self) -> str:
        return f"change {self.resource.kind} {self.name}"


class Delete(Action, frozen=True, kw_only=True):
    """Delete one object, and no other that got its name."""

    resource: Resource
    name: str
    uid: str
    released: Body | None = None
    """The object without the finalizer that would hold it back; it is written first."""

    def __str__(self) -> str:
        return f"delete {self.resource.kind} {self.name}"


class DeleteCollection(Action, frozen=True, kw_only=True):
    """Delete all objects that a selector matches, in one request."""

    resource: Resource
    selector: dict[str, str]

    def __str__(self) -> str:
        selector = ",".join(f"{key}={value}" for key, value in sorted(self.selector.items()))
        return f"delete {self.resource.kind}s {selector}"


class UpdateStatus(Action, frozen=True, kw_only=True):
    """Replace the status of the reconciled object; refused when the object changed since it was observed."""

    status: msgspec.Struct

    def __str__(self) -> str:
        return "update the status"


class SetFinalizers(Action, frozen=True, kw_only=True):
    """Replace the finalizers of the reconciled object, and nothing else of it but what is given here."""

    finalizers: tuple[str, ...]
    spec: Json | None = None
    """Fields of the spec that change along."""

    def patch(self, version: str) -> Body:
        """Return the patch, which carries the resourceVersion that the object must have."""
        meta = {"resourceVersion": version, "finalizers": list(self.finalizers)}
        return {"metadata": meta} if self.spec is None else {"metadata": meta, "spec": self.spec}

    def __str__(self) -> str:
        return f"set finalizers: {', '.join(self.finalizers) or '-'}"


class Finalizer(msgspec.Struct, frozen=True, kw_only=True):
    """A finalizer of ours, and what a user has to know when it goes without its work."""

    name: str
    limit: Callable[[ObjectMeta], timedelta]
    """Returns how long after the deletion it may hold an object with this metadata."""
    event: Callable[[ObjectMeta, timedelta], Event]
    """Returns the Event that names what is left to clean up by hand."""


class Annotate(Action, frozen=True, kw_only=True):
    """Set an annotation of the reconciled object, or remove it, and nothing else of it."""

    name: str
    value: str | None

    def patch(self, version: str) -> Body:
        """Return the patch, which carries the resourceVersion that the object must have."""
        return {"metadata": {"resourceVersion": version, "annotations": {self.name: self.value}}}

    def __str__(self) -> str:
        return (
            f"annotate with {self.name}"
            if self.value is not None
            else f"remove annotation {self.name}"
        )


class EmitEvent(Action, frozen=True, kw_only=True):
    """Emit an Event that belongs to no write; not once its chain has ended."""

    event: Event

    def __str__(self) -> str:
        return f"event {self.event.reason}"


class Refuse(EmitEvent, frozen=True, kw_only=True):
    """Emit an Event with the reason why the plan cannot continue, and fail with its note."""

    def __str__(self) -> str:
        return f"refuse {self.event.reason}"


class Parallel(msgspec.Struct, frozen=True, kw_only=True):
    """Actions without order among them; they run side by side, a few at a time, and are reported after all writes of the plan."""

    actions: tuple[Action, ...]
    is_side: bool = False
    """As of an action; so is `chain`."""
    chain: str = MAIN
    starts_slowly: bool = False
    """Whether batches begin with one action and double, so that a quota that is used up refuses a few requests, not thousands."""


Step = TypeVar("Step", bound=Action | Parallel)


def earliest(*moments: datetime | None) -> datetime | None:
    """Return the first of some moments, None when there is none."""
    return min((each for each in moments if each is not None), default=None)


class Plan(msgspec.Struct, Generic[Step], frozen=True, kw_only=True):
    """The result of planning one reconcile: actions in order, the time of the next reconcile, and the reason."""

    actions: tuple[Step, ...] = ()
    requeue_at: datetime | None = None
    note: str = ""
