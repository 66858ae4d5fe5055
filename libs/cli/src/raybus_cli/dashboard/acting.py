"""Performs the verbs of the page with the rights of the dashboard's user, by the writes of the command line."""

import secrets
from http import HTTPStatus
from typing import Final

import msgspec

from common import errors
from raybus_cli.access.kubeconfig import Where
from raybus_cli.control import performing
from raybus_cli.dashboard.controls import ANNOTATING, VERBS
from raybus_cli.dashboard.polling import Connection
from raybus_cli.reading import reader


class Request(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the page asks for."""

    service: str
    """NAMESPACE/RAYSERVICE."""
    verb: str
    generation: int


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it, in one sentence."""

    status: HTTPStatus
    text: str


class Actor:
    """Accepts requests with its token alone: other users of this machine reach the port of the page as well."""

    def __init__(self, place: Where) -> None:
        self.token: Final = secrets.token_urlsafe(32)
        self._connection = Connection(place)

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    def is_known(self, authorization: str) -> bool:
        """Return whether a request carries the token."""
        return secrets.compare_digest(authorization.encode(), f"Bearer {self.token}".encode())

    async def perform(self, asked: Request) -> Answer:
        """Perform a verb, if the RayService is unchanged since the user saw it."""
        namespace, _, name = asked.service.partition("/")
        if asked.verb not in VERBS:
            return Answer(status=HTTPStatus.BAD_REQUEST, text=f"verb: expected one of {', '.join(VERBS)}")
        try:
            kube = await self._connection.kube()
            if (await reader.service(kube, namespace, name)).metadata.generation != asked.generation:
                text = f"{name} was changed meanwhile: see its present state, then decide again"
                return Answer(status=HTTPStatus.CONFLICT, text=text)
            decide = ANNOTATING.get(asked.verb)
            restoring = performing.restoring(None, show=lambda _snapshot, _plan: None)
            done = await (performing.by_annotations(decide) if decide else restoring)(kube, namespace, name)
        except errors.RaybusError as problem:
            return Answer(status=HTTPStatus.UNPROCESSABLE_ENTITY, text=self._connection.describe(problem))
        finally:
            await self._connection.renew()
        return Answer(status=HTTPStatus.OK, text=f"{name} {done.effect}" + (f": {done.note}" if done.note else ""))
