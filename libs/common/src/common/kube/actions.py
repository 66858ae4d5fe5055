"""What the plan of a service may ask of the API server, whoever carries it out; data only.

An action brings the Events that tell of it: `done` after success, `failed` after a failure, with the error's text added. As text
it is a few words for the log.
"""

from typing import Final

import msgspec

from common.api.event import Event
from common.api.opaque import Body
from common.kube.resources import Resource


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """What users hear of an action."""

    done: Event | None = None
    failed: Event | None = None


SILENT: Final = Told()
MAIN: Final = "main"
"""The chain of an action that names no other."""


class Write(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a plan wants done; the base of all actions but `Tell`."""

    told: Told = SILENT
    is_side: bool = False
    """Whether nothing that follows depends on this: the plan goes on after a refusal, which is raised at its end."""
    chain: str = MAIN
    """Actions of one chain depend on those before; what is refused ends its chain, and the others go on."""

    @property
    def is_optional(self) -> bool:
        """Tell whether the rest of the plan is carried out although this fails."""
        return False


class Create(Write, frozen=True, kw_only=True):
    """Create an object; one that exists already is read, and the next look decides anew."""

    resource: Resource
    body: Body

    def __str__(self) -> str:
        return f"create {self.resource.kind} {self.body['metadata']['name']}"


class Change(Write, frozen=True, kw_only=True):
    """Change some fields of an object; the patch carries the resourceVersion that was observed."""

    resource: Resource
    name: str
    patch: Body

    def __str__(self) -> str:
        return f"change {self.resource.kind} {self.name}"


class Delete(Write, frozen=True, kw_only=True):
    """Delete one object, and no other that got its name."""

    resource: Resource
    name: str
    uid: str

    def __str__(self) -> str:
        return f"delete {self.resource.kind} {self.name}"


class Tell(msgspec.Struct, frozen=True, kw_only=True):
    """Tell an Event that belongs to no write; not once its chain has ended."""

    event: Event
    chain: str = MAIN
