"""The kinds that the command line accepts, and their names.

As with kubectl, a kind has a singular and a plural name. The CRDs define no short names.
"""

from typing import Final

import msgspec

from common.kube.resources import RAY_CLUSTER, RAY_CRON_JOB, RAY_JOB, RAY_SERVICE, Resource


class ArgumentKind(msgspec.Struct, frozen=True):
    """A kind that a user can name in an argument."""

    resource: Resource

    @property
    def singular(self) -> str:
        """The kind in lower case, as in `rayservice/demo`."""
        return self.resource.kind.lower()

    def format_name(self, name: str) -> str:
        """Return an object's name as `-o name` prints it: `rayservice.ray.io/demo`."""
        return f"{self.singular}.{self.resource.group}/{name}"

    def is_named(self, text: str) -> bool:
        """Return whether a text names this kind.

        A kind may be named in singular or plural, with or without group and version.
        """
        head, _, rest = text.casefold().partition(".")
        ends = {"", self.resource.group, f"{self.resource.version}.{self.resource.group}"}
        return head in {self.singular, self.resource.plural} and rest in ends


SERVICE: Final = ArgumentKind(RAY_SERVICE)
CLUSTER: Final = ArgumentKind(RAY_CLUSTER)
JOB: Final = ArgumentKind(RAY_JOB)
CRON_JOB: Final = ArgumentKind(RAY_CRON_JOB)
KINDS: Final = (SERVICE, CLUSTER, JOB, CRON_JOB)
"""The kinds that `raybus get` and `raybus list` show, in their order."""
LONG_RUNNING: Final = (SERVICE, CLUSTER)
"""The kinds that `raybus restart` and `raybus set image` accept."""


class NamedTarget(msgspec.Struct, frozen=True):
    """An object that a command works on."""

    kind: ArgumentKind
    name: str

    @property
    def resource(self) -> Resource:
        return self.kind.resource

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.name}"

    @property
    def typed(self) -> str:
        """The argument by which a user names this object, for commands in messages."""
        return self.name if self.kind is SERVICE else f"{self.kind.singular}/{self.name}"

    @property
    def full_name(self) -> str:
        return self.kind.format_name(self.name)


def find(text: str) -> ArgumentKind | None:
    """Return the kind that a text names; None if there is none."""
    return next((kind for kind in KINDS if kind.is_named(text)), None)
