"""The argument that names a RayService, with its completion; an error yields no candidates."""

import asyncio
import os
from typing import Annotated, Any, Final

import msgspec
import typer

from common import errors
from common.api.ray_service import RayService
from common.kube.resources import RAY_SERVICE
from raybus_cli.access import kubeconfig as kubeconfigs
from raybus_cli.access import session
from raybus_cli.access.kubeconfig import Where
from raybus_cli.reading.reader import Items

SECONDS: Final = 2.0
"""The longest wait after a key press."""
KINDS: Final = ("rayservice", "rayservices", "rs", "rayservice.ray.io", "rayservices.ray.io")
"""What may precede the name, as in `rayservice/demo`."""


def services(ctx: Any, incomplete: str) -> list[str]:
    """Return the names of RayServices that begin so."""
    given = ctx.params
    try:
        place = kubeconfigs.find(given.get("kubeconfig"), given.get("context"), given.get("namespace"), env=os.environ)
        found = asyncio.run(_names(place))
    except (errors.RaybusError, TimeoutError):
        return []
    return [name for name in found if name.startswith(incomplete)]


async def _names(place: Where) -> list[str]:
    kube = await session.connect(place)
    try:
        async with asyncio.timeout(SECONDS):
            body = await kube.list(RAY_SERVICE, place.namespace)
    finally:
        await kube.close()
    return sorted(each.metadata.name for each in msgspec.json.decode(body, type=Items[RayService]).items)


def _name(given: str) -> str:
    kind, slash, name = given.partition("/")
    if not slash:
        return given
    if kind not in KINDS or not name:
        raise typer.BadParameter(f"{given!r} is neither the name of a RayService nor rayservice/NAME")
    return name


NameArgument = Annotated[
    str,
    typer.Argument(parser=_name, metavar="NAME", help="Name of the RayService.", autocompletion=services),
]
