"""The argument that names a RayService or a RayCluster: `NAME`, `rayservice/NAME` or `raycluster/NAME`."""

from typing import Annotated

import msgspec
import typer

from common.kube.resources import Resource
from raybus_cli.completion import names
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import Kind


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
        return self.name if self.kind is kinds.SERVICE else f"{self.kind.singular}/{self.name}"

    @property
    def full_name(self) -> str:
        """Return its name as `-o name` prints it."""
        return self.kind.full(self.name)


def parse(given: str) -> Target:
    """Return the named object; a name alone is that of a RayService."""
    typed, slash, name = given.partition("/")
    if not slash:
        return Target(kinds.SERVICE, given)
    kind = kinds.find(typed)
    if kind is None or not name:
        raise typer.BadParameter(f"{given!r} is neither a name nor rayservice/NAME nor raycluster/NAME")
    return Target(kind, name)


TargetArgument = Annotated[
    Target,
    typer.Argument(
        parser=parse,
        metavar="NAME",
        help="Name of the RayService, or raycluster/NAME.",
        autocompletion=names.services,
    ),
]
