"""The arguments that name objects, with their completion; an error yields no candidates."""

import asyncio
import os
from typing import Annotated, Any, Final

import msgspec
import typer

from common import errors
from common.api.meta import Items, ObjectMeta
from common.kube.resources import NAMESPACE, Resource
from raybus_cli.access import kubeconfig as kubeconfigs
from raybus_cli.access import session
from raybus_cli.access.kubeconfig import Where
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import KINDS, SERVICE

SECONDS: Final = 2.0
"""The longest wait after a key press."""


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


def services(ctx: Any, incomplete: str) -> list[str]:
    """Return the names of RayServices that begin so."""
    return names_of(SERVICE.resource, ctx.params, incomplete)


def arguments(ctx: Any, args: list[str], incomplete: str) -> list[str]:
    """Return the kinds, or the names of the kind that is typed already, that begin so."""
    given = [*(ctx.params.get("arguments") or ()), *args]
    typed, slash, begun = incomplete.partition("/")
    first = given[0] if given else ""
    if slash or "/" in first:
        kind = kinds.find(typed)
        return [f"{typed}/{name}" for name in names_of(kind.resource, ctx.params, begun)] if kind and slash else []
    if not first:
        return [each.singular for each in KINDS if each.singular.startswith(incomplete)]
    kind = kinds.find(first)
    return [name for name in names_of(kind.resource, ctx.params, incomplete) if name not in given] if kind else []


def names_of(resource: Resource, given: Any, incomplete: str) -> list[str]:
    """Return the names of all objects of a kind that begin so, by the options that are typed already."""
    try:
        place = kubeconfigs.find(given.get("kubeconfig"), given.get("context"), given.get("namespace"), env=os.environ)
        found = asyncio.run(_names(place, resource))
    except (errors.RaybusError, TimeoutError):
        return []
    return [name for name in found if name.startswith(incomplete)]


async def _names(place: Where, resource: Resource) -> list[str]:
    kube = await session.connect(place)
    try:
        async with asyncio.timeout(SECONDS):
            body = await kube.list(resource, None if resource == NAMESPACE else place.namespace)
    finally:
        await kube.close()
    return sorted(each.metadata.name for each in msgspec.json.decode(body, type=Items[_Named]).items)


def _name(given: str) -> str:
    kind, slash, name = given.partition("/")
    if not slash:
        return given
    if not SERVICE.is_named(kind) or not name:
        raise typer.BadParameter(f"{given!r} is neither the name of a RayService nor rayservice/NAME")
    return name


NameArgument = Annotated[
    str,
    typer.Argument(parser=_name, metavar="NAME", help="Name of the RayService.", autocompletion=services),
]
TargetsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="KIND [NAME]",
        help="rayservice or raycluster, and names; or KIND/NAME of several.",
        autocompletion=arguments,
        show_default=False,
    ),
]
NamesArgument = Annotated[
    list[str],
    typer.Argument(parser=_name, metavar="NAME", help="Names of RayServices.", autocompletion=services),
]
