"""Performs the verbs of the page with the rights of its user, by the writes of the command line."""

from http import HTTPStatus

import msgspec

from common import errors
from common.api.ray_service import RayService
from raybus_cli import session
from raybus_cli.control import performing
from raybus_cli.control.actions import Action
from raybus_cli.dashboard.model import ANNOTATING, UNDO, VERBS
from raybus_cli.dashboard.polling import Connect, Connection


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


class _Outdated(errors.Rejected):
    """The RayService is not as the user saw it any more."""


class Actor:
    """Performs verbs."""

    def __init__(self, connect: Connect) -> None:
        self._connection = Connection(connect)

    async def close(self) -> None:
        """Close the connection."""
        await self._connection.close()

    async def perform(self, asked: Request) -> Answer:
        """Perform a verb, if the RayService that it is decided about is unchanged since the user saw it."""
        namespace, _, name = asked.service.partition("/")
        if asked.verb not in VERBS:
            return Answer(status=HTTPStatus.BAD_REQUEST, text=f"verb: expected one of {', '.join(VERBS)}")

        def expect_unchanged(service: RayService) -> None:
            if service.metadata.generation != asked.generation:
                raise _Outdated(f"{name} was changed meanwhile: see its present state, then decide again")

        def decide(service: RayService) -> Action:
            expect_unchanged(service)
            return ANNOTATING[asked.verb](service)

        if asked.verb == UNDO:
            write = performing.restoring(None, show=lambda snapshot, _plan: expect_unchanged(snapshot.service))
        else:
            write = performing.by_annotations(decide)
        try:
            done = await write(await self._connection.kube(), namespace, name)
        except _Outdated as problem:
            return Answer(status=HTTPStatus.CONFLICT, text=str(problem))
        except session.Denied as problem:
            return Answer(status=HTTPStatus.FORBIDDEN, text=str(problem))
        except errors.RaybusError as problem:
            return Answer(status=HTTPStatus.UNPROCESSABLE_ENTITY, text=self._connection.describe(problem))
        finally:
            await self._connection.renew()
        return Answer(status=HTTPStatus.OK, text=f"{name} {done.effect}" + (f": {done.note}" if done.note else ""))
