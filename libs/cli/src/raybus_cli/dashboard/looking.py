"""Looks at the API server: at the list of RayServices, and closer at those that pages have chosen.

How often follows from what it costs, so that a cluster with many RayServices is not asked more than it bears; with nobody at a
page it is asked rarely. An answer that does not come is said, and what was seen last stays.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

import msgspec

from common import errors
from common.api.ray_service import RayService
from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE
from raybus_cli.access import problems, session
from raybus_cli.access.kubeconfig import Where
from raybus_cli.dashboard import model
from raybus_cli.dashboard.board import Board
from raybus_cli.dashboard.history import History
from raybus_cli.dashboard.model import Detail
from raybus_cli.reading import reader
from raybus_cli.reading.look import Look
from raybus_cli.reading.reader import Items

EVERY: Final = 2.0
"""Seconds between two looks."""
EVERY_WHEN_TOLD: Final = 5.0
"""The same for the list while the bus tells what happens."""
UNATTENDED: Final = 30.0
"""The same while no page is open."""
COST: Final = 5
"""We wait so many times as long as a look took."""
LULL: Final = 0.5
"""Seconds between looks that events call for."""
UNAUTHORIZED: Final = "Unauthorized"

_MISSES: Final = (errors.RaybusError, msgspec.MsgspecError)


class Door:
    """A way to the API server, which is made anew after a login has run out."""

    def __init__(self, place: Where) -> None:
        self._place = place
        self._kube: KubeClient | None = None
        self._is_shut = False

    async def kube(self) -> KubeClient:
        """Return the connection."""
        if self._kube is None:
            self._kube = await KubeClient.connect(
                kubeconfig=self._place.kubeconfig, user_agent=session.USER_AGENT, context=self._place.context
            )
        return self._kube

    def told(self, problem: Exception) -> str:
        """Return a problem in one line, and note it if nobody knows us any more."""
        self._is_shut = self._is_shut or UNAUTHORIZED in str(problem)
        return problems.line(problem)

    async def renew(self) -> None:
        """Forget a connection that is of no use, once nobody uses it."""
        if self._is_shut:
            self._is_shut = False
            await self.close()

    async def close(self) -> None:
        """Close the connection."""
        if self._kube is not None:
            await self._kube.close()
            self._kube = None


class Looker:
    """Looks, for as long as it is told to."""

    def __init__(self, place: Where, namespace: str | None, board: Board, history: History) -> None:
        self._list = Door(place)
        self._details = Door(place)
        self._namespace = namespace
        self._board = board
        self._history = history
        self._last: dict[str, Look] = {}

    async def close(self) -> None:
        """Close the connections."""
        await self._list.close()
        await self._details.close()

    async def look(self) -> None:
        """Read the list once; raise what is in the way."""
        kube = await self._list.kube()
        services = msgspec.json.decode(await kube.list(RAY_SERVICE, self._namespace), type=Items[RayService]).items
        now = session.now()
        for each in services:
            self._history.see(model.key_of(each), each, now=now)
        self._board.list(model.rows(services, now=now))
        self._stand(problem="")

    async def follow_list(self) -> None:
        """Read the list again and again."""
        while True:
            began = asyncio.get_running_loop().time()
            try:
                await self.look()
            except _MISSES as problem:
                self._stand(problem=self._list.told(problem))
                await self._list.renew()
            await self._rest("list", began, EVERY_WHEN_TOLD if self._board.is_told else EVERY)

    async def follow_details(self) -> None:
        """Look closer at what pages have chosen."""
        while True:
            began, wanted = asyncio.get_running_loop().time(), self._board.wanted
            self._forget(wanted)
            async with asyncio.TaskGroup() as group:
                for key in wanted:
                    group.create_task(self._look_closer(key))
            await self._details.renew()
            await self._rest("details", began, EVERY if wanted else UNATTENDED)

    async def _look_closer(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        try:
            look = await reader.read(await self._details.kube(), namespace, name)
        except errors.NotFound:
            self._last.pop(key, None)
            stories = self._history.stories(key, is_told=self._board.is_told)
            self._board.tell(Detail(key=key, stories=stories))
            return
        except _MISSES as problem:
            self._show(key, problem=self._details.told(problem))
            return
        self._last[key] = look
        self._show(key)

    def _show(self, key: str, *, problem: str = "") -> None:
        """Show the last look, which may have failed, with all that is known of upgrades by now."""
        look, stories = self._last.get(key), self._history.stories(key, is_told=self._board.is_told)
        if look is None:
            self._board.tell(Detail(key=key, problem=problem, row=self._board.rows.get(key), stories=stories))
        else:
            self._board.tell(model.detail(look, stories, now=session.now(), problem=problem))

    def _forget(self, wanted: Sequence[str]) -> None:
        for key in [key for key in self._last if key not in wanted]:
            del self._last[key]

    async def _rest(self, what: str, began: float, seconds: float) -> None:
        """Wait before the next look; events may call for it earlier, though never without a pause."""
        spent = asyncio.get_running_loop().time() - began
        await asyncio.sleep(max(LULL, spent))
        await self._board.rest(what, max(UNATTENDED if not self._board.pages else seconds, COST * spent))

    def _stand(self, *, problem: str) -> None:
        standing = self._board.standing
        seen = standing.seen_at if problem else session.now()
        self._board.stand(msgspec.structs.replace(standing, problem=problem, seen_at=seen))
