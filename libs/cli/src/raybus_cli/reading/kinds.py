"""The kinds that the command line shows, under each name by which kubectl knows them; the CRDs define no short names."""

from typing import Final

import msgspec

from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, Resource


class Kind(msgspec.Struct, frozen=True):
    """A kind as a user types it."""

    resource: Resource

    @property
    def singular(self) -> str:
        """Return the short singular form, as in `rayservice/demo`."""
        return self.resource.kind.lower()

    def full(self, name: str) -> str:
        """Return how `-o name` prints an object."""
        return f"{self.singular}.{self.resource.group}/{name}"

    def is_named(self, text: str) -> bool:
        """Return whether a text names this kind: in either number, with or without group and version."""
        head, _, rest = text.casefold().partition(".")
        ends = {"", self.resource.group, f"{self.resource.version}.{self.resource.group}"}
        return head in {self.singular, self.resource.plural} and rest in ends


SERVICE: Final = Kind(RAY_SERVICE)
CLUSTER: Final = Kind(RAY_CLUSTER)
KINDS: Final = (SERVICE, CLUSTER)


class Target(msgspec.Struct, frozen=True):
    """The object that a command is about."""

    kind: Kind
    name: str

    @property
    def resource(self) -> Resource:
        """Return how the API server addresses it."""
        return self.kind.resource

    def __str__(self) -> str:
        return f"{self.resource.kind} {self.name}"

    @property
    def typed(self) -> str:
        """Return the argument that names it, for the commands that a message recommends."""
        return self.name if self.kind is SERVICE else f"{self.kind.singular}/{self.name}"

    @property
    def full_name(self) -> str:
        """Return its name as `-o name` prints it."""
        return self.kind.full(self.name)


def find(text: str) -> Kind | None:
    """Return the kind of a text."""
    return next((each for each in KINDS if each.is_named(text)), None)
