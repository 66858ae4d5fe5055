"""Listens to upgrade events as an outsider does, and says on the board when none come, and why.

A bus that cannot be reached is tried again and again: the page goes on with what the API server says.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from common import errors
from common.bus import subjects
from common.bus.consumer import from_sequence
from common.runtime.settings import Settings
from raybus_cli.access import problems
from raybus_cli.dashboard.board import Board, Hearing
from raybus_cli.dashboard.history import History
from raybus_cli.events import run
from raybus_cli.events.run import Read

AGAIN: Final = 10.0
"""Seconds until a bus that was not reached is tried again."""
EVERYBODY: Final = "*"

Through = Callable[[Read], Awaitable[None]]
"""Makes the way to NATS, and reads there."""


class Listener:
    """Listens, for as long as it is told to."""

    def __init__(self, through: Through, namespace: str | None, board: Board) -> None:
        self._through = through
        self._subject = subjects.ALL_EVENTS if namespace is None else subjects.upgrade_events(namespace, EVERYBODY)
        self._board = board
        self.history = History(board.call, lambda: self._hear(Hearing.LIVE))

    async def listen(self) -> None:
        """Hand events on to the history; what is in the way is said and waited out."""
        while True:
            try:
                await self._through(self._read)
            except errors.RaybusError as problem:
                self._miss(problem)
            except BaseExceptionGroup as met:
                problem = problems.first(met)
                if not isinstance(problem, errors.RaybusError):
                    raise
                self._miss(problem)
            await asyncio.sleep(AGAIN)

    async def _read(self, settings: Settings, within: float) -> None:
        async with run.reached(settings, within) as reach:
            await reach.read(
                self._subject,
                from_sequence(1),
                self.history,
                is_patient=True,
                say=lambda line: self._hear(Hearing.AWAY, line),
            )

    def _miss(self, problem: BaseException) -> None:
        self._hear(Hearing.AWAY, " ".join(str(problem).split()))

    def _hear(self, hearing: Hearing, deaf: str = "") -> None:
        self._board.stand(msgspec.structs.replace(self._board.standing, hearing=hearing, deaf=deaf))
        self._board.call()
