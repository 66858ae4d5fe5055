"""Reads the end of a log for the page, with the rights of its user: of the head of a cluster, or of one of its pods."""

import re
from typing import Final

import msgspec
from aiohttp import web

from common import errors
from raybus_cli.dashboard.polling import Connect
from raybus_cli.dashboard.responses import KEY, KEY_EXPECTED
from raybus_cli.logs import finding, tail
from raybus_cli.logs.selection import Choice, Extent
from raybus_cli.logs.tail import Tail
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import Target

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """A log: that of a pod, by default of the head, of a cluster, by default of the active one, of a RayService."""

    service: str = ""
    """NAMESPACE/RAYSERVICE."""
    cluster: str | None = None
    pod: str | None = None


async def answer(connect: Connect, request: web.Request) -> web.Response:
    """Answer a request with the end of the log that its query names."""
    given = request.query
    wanted = Wanted(service=given.get("service", ""), cluster=given.get("cluster"), pod=given.get("pod"))
    body = msgspec.json.encode(await read(connect, wanted))
    return web.Response(body=body, content_type="application/json")


async def read(connect: Connect, wanted: Wanted) -> Tail:
    """Return the end of a log; raise `InvalidSpec` for a name that is none, `Rejected` when there is no such log."""
    if not KEY.fullmatch(wanted.service):
        raise errors.InvalidSpec(KEY_EXPECTED)
    for field, name in (("cluster", wanted.cluster), ("pod", wanted.pod)):
        if name is not None and not _NAME.fullmatch(name):
            raise errors.InvalidSpec(f"{field}: expected a name")
    namespace, _, name = wanted.service.partition("/")
    choice = Choice(cluster=wanted.cluster, pod=wanted.pod)
    target, extent = Target(kinds.SERVICE, name), Extent(tail=tail.LINES)
    kube = await connect()
    try:
        found = await finding.find(kube, namespace, target, choice, extent, report=_ignore)
        return await tail.read(kube, found.logs[0])
    finally:
        await kube.close()


def _ignore(_text: str) -> None:
    """Leave out what the choice was: the answer names the pod."""
