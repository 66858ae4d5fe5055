"""Typer arguments and options that name objects, clusters and namespaces, with shell completion.

Completion reads the cluster; if that fails, it offers no candidates instead of an error.
"""

import asyncio
import os
from typing import Annotated, Any, Final

import msgspec
import typer

from common import errors
from common.api.meta import Items, ObjectMeta
from common.kube.resources import NAMESPACE, Resource
from raybus_cli import kubeconfig as kubeconfigs
from raybus_cli import session
from raybus_cli.kubeconfig import Where
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import KINDS, SERVICE, Target

SECONDS: Final = 2.0
"""Timeout of a completion request, so that the shell does not hang after a key press."""


class _Named(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


def services(ctx: Any, incomplete: str) -> list[str]:
    """Complete the name of a RayService: return the names that start with `incomplete`."""
    return names_of(SERVICE.resource, ctx.params, incomplete)


def arguments(ctx: Any, args: list[str], incomplete: str) -> list[str]:
    """Complete `KIND NAME...` or `KIND/NAME`.

    Kinds are offered first, then the names of the kind typed before. Names that are already on the
    command line are left out.
    """
    given = [*(ctx.params.get("arguments") or ()), *args]
    typed, slash, begun = incomplete.partition("/")
    first = given[0] if given else ""
    if slash or "/" in first:
        kind = kinds.find(typed)
        return (
            [f"{typed}/{name}" for name in names_of(kind.resource, ctx.params, begun)]
            if kind and slash
            else []
        )
    if not first:
        return [each.singular for each in KINDS if each.singular.startswith(incomplete)]
    kind = kinds.find(first)
    return (
        [name for name in names_of(kind.resource, ctx.params, incomplete) if name not in given]
        if kind
        else []
    )


def names_of(resource: Resource, given: Any, incomplete: str) -> list[str]:
    """Return the names of a kind that start with `incomplete`.

    `given` are the options typed so far, which select the cluster and the namespace. The list is
    empty if the cluster cannot be read within `SECONDS`.
    """
    try:
        place = kubeconfigs.find(
            given.get("kubeconfig"), given.get("context"), given.get("namespace"), env=os.environ
        )
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
    return sorted(
        each.metadata.name for each in msgspec.json.decode(body, type=Items[_Named]).items
    )


def _name(given: str) -> str:
    kind, slash, name = given.partition("/")
    if not slash:
        return given
    if not SERVICE.is_named(kind) or not name:
        raise typer.BadParameter(
            f"{given!r} is neither the name of a RayService nor rayservice/NAME"
        )
    return name


NameArgument = Annotated[
    str,
    typer.Argument(
        parser=_name, metavar="NAME", help="Name of the RayService.", autocompletion=services
    ),
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
    typer.Argument(
        parser=_name, metavar="NAME", help="Names of RayServices.", autocompletion=services
    ),
]


def contexts(ctx: Any, incomplete: str) -> list[str]:
    """Complete `--context`: return the contexts of the kubeconfig that start with `incomplete`."""
    try:
        found = kubeconfigs.contexts(ctx.params.get("kubeconfig"), env=os.environ)
    except errors.RaybusError:
        return []
    return [each for each in found if each.startswith(incomplete)]


def namespaces(ctx: Any, incomplete: str) -> list[str]:
    """Complete `--namespace`: return the namespaces of the cluster that start with `incomplete`."""
    return names_of(NAMESPACE, ctx.params, incomplete)


KubeconfigOption = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig", help="Path of the kubeconfig; default: $KUBECONFIG or ~/.kube/config."
    ),
]
ContextOption = Annotated[
    str | None,
    typer.Option(
        "--context",
        help="Context of the kubeconfig; default: the current one.",
        autocompletion=contexts,
    ),
]
NamespaceOption = Annotated[
    str | None,
    typer.Option(
        "--namespace",
        "-n",
        help="Namespace; default: that of the context.",
        autocompletion=namespaces,
    ),
]
RaybusNamespaceOption = Annotated[
    str, typer.Option("--raybus-namespace", help="Namespace of raybus.", autocompletion=namespaces)
]


def parse(given: str) -> Target:
    """Parse `NAME`, `rayservice/NAME` or `raycluster/NAME`.

    A name without a kind means a RayService.
    """
    typed, slash, name = given.partition("/")
    if not slash:
        return Target(kinds.SERVICE, given)
    kind = kinds.find(typed)
    if kind is None or not name:
        raise typer.BadParameter(
            f"{given!r} is neither a name nor rayservice/NAME nor raycluster/NAME"
        )
    return Target(kind, name)


TargetArgument = Annotated[
    Target,
    typer.Argument(
        parser=parse,
        metavar="NAME",
        help="Name of the RayService, or raycluster/NAME.",
        autocompletion=services,
    ),
]
