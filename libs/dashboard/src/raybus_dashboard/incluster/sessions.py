"""Sessions of the dashboard in a Pod.

A session is the state of a namespace, read with one user's rights, and shared by all pages of that
user and namespace. Sessions never share what they read. A session without a page ends after
`UNUSED_SECONDS`, or earlier if there are too many sessions.

The Pod's credentials for NATS come from a folder. With `RAYBUS_NATS_REGISTER_KEY`, the Pod instead
generates a key for the NATS user `subscriber` and registers its public part, as raybus's own
services do.
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
from raybus_cli.events.run import FORWARD_SECONDS, NatsAccess, ReadEvents
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.session import USER_AGENT
from raybus_dashboard.board import Board, EventFeed, PageSources
from raybus_dashboard.history import EventLog, History, UpgradeEventListener
from raybus_dashboard.incluster.identity import UserIdentity
from raybus_dashboard.listing import SharedListing
from raybus_dashboard.polling import Connect, Poller

log = structlog.get_logger()

MAX_SESSIONS: Final = 100
MAX_SESSIONS_PER_USER: Final = 4
UNUSED_SECONDS: Final = 30.0
EXPIRY_SECONDS: Final = 5.0
"""Interval at which unused sessions are ended."""
Key = tuple[UserIdentity, str | None]


class BoardSession:
    """A board, and the poller that fills it."""

    def __init__(
        self,
        key: Key,
        connect: Connect,
        sources: PageSources,
        events: EventLog,
        listing: SharedListing,
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
        """Stop polling; the event streams of the session's pages then end."""
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
            log.exception("dashboard session failed", user=self.identity.user, error=str(problem))
        finally:
            self.has_ended = True
            await self._poller.close()


class BoardSessions:
    """The sessions of all users."""

    def __init__(
        self,
        connect: Callable[[UserIdentity], Connect],
        *,
        has_controls: bool,
        event_feed: EventFeed,
    ) -> None:
        self._connect = connect
        self._has_controls = has_controls
        self._feed = (event_feed, "")
        self._sessions: dict[Key, BoardSession] = {}
        self._listing = SharedListing()
        self.events: Final = EventLog(self.request_read, lambda: self.set_feed(EventFeed.LIVE))

    @contextlib.contextmanager
    def open_page(
        self, group: asyncio.TaskGroup, key: Key, chosen: str | None
    ) -> Generator[BoardSession]:
        """Yield the session of a user and namespace (`key`) for a page that selects `chosen`.

        A new session polls in `group`. Raise `Throttled` if there are too many sessions.
        """
        session = self._get_session(group, key)
        with session.board.count_page(chosen):
            yield session
        session.unused_since = steady()

    def set_feed(self, event_feed: EventFeed, problem: str = "") -> None:
        """Set on all boards whether events arrive."""
        self._feed = (event_feed, problem)
        for _session in self._sessions.values():
            _session.board.set_feed(event_feed, problem)

    def request_read(self, key: str) -> None:
        """Request a read of a changed RayService in all sessions."""
        for _session in self._sessions.values():
            _session.board.request_read(key)

    async def expire(self) -> None:
        """End unused sessions periodically, until cancelled."""
        while True:
            await asyncio.sleep(EXPIRY_SECONDS)
            for key, _session in list(self._sessions.items()):
                if _session.has_ended or (
                    not _session.board.pages and steady() - _session.unused_since > UNUSED_SECONDS
                ):
                    self._end(key)

    def end(self) -> None:
        self._listing.close()
        for key in list(self._sessions):
            self._end(key)

    def _get_session(self, group: asyncio.TaskGroup, key: Key) -> BoardSession:
        session = self._sessions.get(key)
        if session is not None and not session.has_ended:
            return session
        identity, namespace = key
        own = [key for key in self._sessions if key[0].user == identity.user]
        if len(own) >= MAX_SESSIONS_PER_USER:
            self._make_room(
                own, f"you have pages of {MAX_SESSIONS_PER_USER} namespaces open: close one"
            )
        if len(self._sessions) >= MAX_SESSIONS:
            self._make_room(
                list(self._sessions), f"{MAX_SESSIONS} users have pages open: try again later"
            )
        feed, problem = self._feed
        sources = PageSources(
            namespace=namespace,
            event_feed=feed,
            feed_problem=problem,
            has_controls=self._has_controls,
            has_logs=True,
            user=identity.user,
        )
        made = self._sessions[key] = BoardSession(
            key, self._connect(identity), sources, self.events, self._listing
        )
        made.start(group)
        return made

    def _make_room(self, keys: list[Key], problem: str) -> None:
        """End the session of `keys` that has been unused for the longest time.

        Raise `Throttled` with the text `problem` if all these sessions are in use.
        """
        unused = [key for key in keys if not self._sessions[key].board.pages]
        if not unused:
            raise errors.Throttled(problem)
        self._end(min(unused, key=lambda key: self._sessions[key].unused_since))

    def _end(self, key: Key) -> None:
        self._sessions.pop(key).end()


REGISTER: Final = "RAYBUS_NATS_REGISTER_KEY"


def choose_access(
    nats: str | None, credentials: Path | None, environ: Mapping[str, str], place: KubeAccess
) -> NatsAccess | None:
    """Return the connection to NATS; None if none is configured.

    Raises `InvalidSpec` for an invalid setting.
    """
    if nats is None and credentials is None:
        return None
    if credentials is not None or not environ.get(REGISTER):
        return NatsAccess(connection.build_settings(nats, credentials))
    settings = Settings.from_environment(connection.USER, environ)
    connect = partial(
        KubeClient.connect,
        kubeconfig=place.kubeconfig,
        user_agent=USER_AGENT,
        context=place.context,
    )
    return NatsAccess(settings, FORWARD_SECONDS, Registration(settings, connect))


def build_listener(access: NatsAccess, sessions: BoardSessions) -> UpgradeEventListener:
    """Return the listener that receives the events of all namespaces for all sessions."""

    async def run_connected(read: ReadEvents) -> None:
        await read(access)

    return UpgradeEventListener(run_connected, None, sessions, sessions.events)
