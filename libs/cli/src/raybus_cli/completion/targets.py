"""The argument that names a RayService or a RayCluster: `NAME`, `rayservice/NAME` or `raycluster/NAME`."""

from typing import Annotated

import typer

from raybus_cli.completion import names
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import Target


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
