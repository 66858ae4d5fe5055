"""Sessions of the dashboard in a Pod.

A session is the state of a namespace, read with one user's rights, and shared by all pages of that
user and namespace. Sessions never share what they read. A session without a page ends after a
while, or when another session needs its place.

The Pod's credentials for NATS come from a folder. With `RAYBUS_NATS_REGISTER_KEY`, as in raybus's
own services, it generates a key for the NATS user `subscriber` and registers the public part
instead.
"""

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from common import errors
from common.bus.access import Registration
from common.clock import steady
from common.kube.client import KubeClient
from common.settings import Settings
from raybus_cli.events import connection
from raybus_cli.events.run import FORWARD_SECONDS, Read, Way
from raybus_cli.kubeconfig import Where
from raybus_cli.session import USER_AGENT
from raybus_dashboard.board import Board, EventFeed, Sources
from raybus_dashboard.history import EventLog, History, Listener
from raybus_dashboard.incluster.identity import Identity
from raybus_dashboard.listing import Listing
from raybus_dashboard.polling import Connect, Poller

log = structlog.get_logger()

MAX_SESSIONS: Final = 100
MAX_SESSIONS_PER_USER: Final = 4
UNUSED_SECONDS: Final = 30.0
EXPIRY_SECONDS: Final = 5.0
"""Interval at which unused sessions are ended."""
Key = tuple[Identity, str | None]


class Session:
    """A board, and the poller that fills it."""

    def __init__(
        self, key: Key, connect: Connect, sources: Sources, events: EventLog, listing: Listing
    ) -> None:
        self.identity, namespace = key
        self.board = Board(sources)
        self.unused_since = steady()
        self._poller = Poller(connect, namespace, self.board, History(events), listing)
        self._task: asyncio.Task[None] | None = None
        self.has_ended = False

    def start(self, group: asyncio.TaskGroup) -> None:
        self._task = group.create_task(self._run())

    def end(self) -> None:
        """Stop polling; the session's pages end."""
        self.has_ended = True
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        """Poll until cancelled; an error ends only this session."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._poller.follow_list())
                group.create_task(self._poller.follow_details())
        except Exception as problem:  # the pages reconnect and get a new session
            log.exception(
                "a session of the dashboard failed", user=self.identity.user, error=str(problem)
            )
        finally:
            self.has_ended = True
            await self._poller.close()


class Sessions:
    """The sessions of all users."""

    def __init__(
        self, connect: Callable[[Identity], Connect], *, has_controls: bool, event_feed: EventFeed
    ) -> None:
        self._connect = connect
        self._has_controls = has_controls
        self._feed = (event_feed, "")
        self._sessions: dict[Key, Session] = {}
        self._listing = Listing()
        self.events: Final = EventLog(self.request_read, lambda: self.set_feed(EventFeed.LIVE))

    @contextlib.contextmanager
    def page(self, group: asyncio.TaskGroup, key: Key, chosen: str | None) -> Generator[Session]:
        """Yield the session of a user and namespace for a page.

        Raise `Throttled` if there are too many.
        """
        session = self._of(group, key)
        with session.board.page(chosen):
            yield session
        session.unused_since = steady()

    def set_feed(self, event_feed: EventFeed, problem: str = "") -> None:
        """Set on all boards whether events arrive."""
        self._feed = (event_feed, problem)
        for each in self._sessions.values():
            each.board.set_feed(event_feed, problem)

    def request_read(self, key: str) -> None:
        """Request a read of a changed RayService in all sessions."""
        for each in self._sessions.values():
            each.board.request_read(key)

    async def expire(self) -> None:
        """End unused sessions periodically, until cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            for key, each in list(self._sessions.items()):
                if each.has_ended or (
                    not each.board.pages and steady() - each.unused_since > UNUSED_SECONDS
                ):
                    self._end(key)

    def end(self) -> None:
        self._listing.close()
        for key in list(self._sessions):
            self._end(key)

    def _of(self, group: asyncio.TaskGroup, key: Key) -> Session:
        found = self._sessions.get(key)
        if found is not None and not found.has_ended:
            return found
        identity, namespace = key
        own = [each for each in self._sessions if each[0].user == identity.user]
        if len(own) >= MAX_SESSIONS_PER_USER:
            self._make_room(
                own, f"you have pages of {MAX_SESSIONS_PER_USER} namespaces open: close one"
            )
        if len(self._sessions) >= MAX_SESSIONS:
            self._make_room(
                list(self._sessions), f"{MAX_SESSIONS} users have pages open: try again later"
            )
        feed, problem = self._feed
        sources = Sources(
            namespace=namespace,
            event_feed=feed,
            feed_problem=problem,
            has_controls=self._has_controls,
            has_logs=True,
            user=identity.user,
        )
        made = self._sessions[key] = Session(
            key, self._connect(identity), sources, self.events, self._listing
        )
        made.start(group)
        return made

    def _make_room(self, keys: list[Key], problem: str) -> None:
        """End the session that has been unused for the longest time.

        Raise `Throttled` if all are in use.
        """
        unused = [each for each in keys if not self._sessions[each].board.pages]
        if not unused:
            raise errors.Throttled(problem)
        self._end(min(unused, key=lambda each: self._sessions[each].unused_since))

    def _end(self, key: Key) -> None:
        self._sessions.pop(key).end()


REGISTER: Final = "RAYBUS_NATS_REGISTER_KEY"


def way(
    nats: str | None, credentials: Path | None, environ: Mapping[str, str], place: Where
) -> Way | None:
    """Return the connection to NATS; None if none is configured.

    Raises `InvalidSpec` for an invalid setting.
    """
    if nats is None and credentials is None:
        return None
    if credentials is not None or not environ.get(REGISTER):
        return Way(connection.settings(nats, credentials))
    settings = Settings.from_environment(connection.USER, environ)
    connect = partial(
        KubeClient.connect,
        kubeconfig=place.kubeconfig,
        user_agent=USER_AGENT,
        context=place.context,
    )
    return Way(settings, FORWARD_SECONDS, Registration(settings, connect))


def listener(found: Way, sessions: Sessions) -> Listener:
    """Return the listener that receives the events of all namespaces for all sessions."""

    async def through(read: Read) -> None:
        await read(found)

    return Listener(through, None, sessions, sessions.events)
