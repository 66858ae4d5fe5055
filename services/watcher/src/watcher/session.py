"""Sessions in which a leader publishes the objects of the API server, one session after another.

If a session begins before its replica leads, it prepares (ADR 39): it reads the stream and lists
all objects, but publishes nothing yet. A session ends when the stream no longer exists, when
another process has written to it, or when the connection is lost. It also ends when an object must
move to another tree and the stream does not hold its message. The next session starts almost at
once or, if sessions keep ending early, after a growing backoff.
"""

import asyncio
import contextlib
import random
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final, NoReturn

import structlog

from common import errors
from common.bus import forms, subjects
from common.bus.messages import Synced
from common.bus.streams import StreamInfo
from common.kube.client import KubeClient
from common.kube.resources import RAY_CLUSTER, RAY_CRON_JOB, RAY_JOB, RAY_SERVICE
from common.kube.watch import Watch, WatchTarget, WatchTiming
from watcher import metrics, publish_filter
from watcher.outbox import MAX_IN_FLIGHT, Outbox
from watcher.ports import StateStream
from watcher.relay import Relay, RelaySource
from watcher.term import Term

log = structlog.get_logger()

CHECK_SECONDS: Final = 1.0
"""Interval between checks that the stream is still the same and has no other writer."""
MIN_RETRY_DELAY: Final = 0.1
"""Seconds before the next session, if the last session was healthy."""
MAX_RETRY_DELAY: Final = 5.0
"""Upper bound in seconds of the backoff between sessions."""
HEALTHY_SECONDS: Final = 10.0
"""Duration of a session after which the backoff starts over."""
RENEW_SECONDS: Final = 10.0
"""Interval at which the first partition's sync marker confirms that the stream is up to date."""
FIRST_KINDS: Final = frozenset({RAY_CLUSTER, RAY_SERVICE, RAY_JOB, RAY_CRON_JOB})
"""Kinds that are listed first, because users create them.

A new RayCluster then does not wait for the list of 100,000 pods.
"""
FIRST_KINDS_TIMEOUT: Final = 5.0
"""Maximum time that the other kinds wait until the `FIRST_KINDS` are listed."""
STUCK_SECONDS: Final = 180.0
"""Time without any activity of a watch, not even an error, after which the watch counts as stuck.

All timeouts of a watch are shorter.
"""
CREATED_ANEW: Final = "the state stream was created anew"


class Sessions:
    """Keeps the state stream equal to the API server while this replica leads."""

    def __init__(
        self,
        kube: KubeClient,
        stream: StateStream,
        namespaces: Sequence[str],
        *,
        new_epoch: Callable[[], str],
    ) -> None:
        """Watch these namespaces; all namespaces if the sequence is empty.

        `new_epoch` returns the name for the epoch of a new session.
        """
        self._kube = kube
        self._stream = stream
        self._targets = [
            target
            for namespace in (namespaces or [None])
            for target in (
                *(
                    WatchTarget(resource=kind, namespace=namespace, selector=part)
                    for kind, part in publish_filter.REQUIRED
                ),
                *(
                    WatchTarget(resource=kind, namespace=namespace, is_optional=True)
                    for kind in publish_filter.OPTIONAL
                ),
            )
        ]
        self._new_epoch = new_epoch
        self._watches: list[Watch] = []
        self._outbox: Outbox | None = None
        self._problem: str | None = "the stream has not been asked for yet"

    @property
    def problem(self) -> str | None:
        """Why the stream may differ from the API server; None if it does not.

        For the readiness probe.
        """
        unsent = self._outbox.problem if self._outbox is not None else None
        return (
            self._problem
            or unsent
            or next((watch.problem for watch in self._watches if watch.problem), None)
        )

    @property
    def stuck(self) -> str | None:
        """Why a watch is stuck, for the liveness probe; None if every watch is active."""
        now = asyncio.get_running_loop().time()
        stuck = [
            watch
            for watch in self._watches
            if now - watch.active_at > STUCK_SECONDS and watch.is_served
        ]
        return f"the watch of {stuck[0].target} stands still" if stuck else None

    async def run(self, term: Term) -> None:
        loop = asyncio.get_running_loop()
        retry = MIN_RETRY_DELAY
        while True:
            began = loop.time()
            try:
                reason = await self._run_session(term)
            except errors.RaybusError as problem:
                reason = str(problem)
            finally:  # a blocked watch is no reason for a restart once this replica no longer leads
                self._watches, self._outbox = [], None
                metrics.SYNCED.set(0)
                metrics.WATCH_AGE.clear()
            if reason != self._problem:
                log.warning("watch session ended; restarting", why=reason)
            self._problem = reason
            retry = (
                MIN_RETRY_DELAY
                if loop.time() - began > HEALTHY_SECONDS
                else min(MAX_RETRY_DELAY, retry * 2)
            )
            await asyncio.sleep(retry)

    async def _run_session(self, term: Term) -> str:
        """Run one session until it must end; return why it ended."""
        loop = asyncio.get_running_loop()
        over: asyncio.Future[str] = loop.create_future()

        def end_session(reason: str) -> None:
            if not over.done():
                over.set_result(reason)

        term.prepared.clear()
        identity, marker = await self._stream.identity(), await self._stream.marker()
        entries, is_open = await self._stream.load(), term.begun.is_set()
        outbox = self._outbox = Outbox(self._stream, entries, end_session, is_open=is_open)
        relay = Relay(outbox, end_session)
        sources = [
            (target, RelaySource(relay, number, target.resource, target.namespace))
            for number, target in enumerate(self._targets)
        ]
        self._watches = [
            Watch(
                self._kube,
                target,
                source,
                jitter=random.random,
                timing=WatchTiming(),
                reached=source.reached,
                protobuf_sink=source.protobuf,
            )
            for target, source in sources
        ]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(run_in_turn(self._watches)),
                group.create_task(self._list_all(term)),
                group.create_task(self._publish(term, relay, identity, marker)),
                group.create_task(_end_with(self._stream.until_lost, end_session)),
            ]
            reason = await over
            for task in tasks:
                task.cancel()
        return reason

    async def _list_all(self, term: Term) -> None:
        for watch in self._watches:
            self._problem = f"{watch.target} is not listed yet"
            await watch.known.wait()
        term.prepared.set()

    async def _publish(
        self, term: Term, relay: Relay, begun: StreamInfo, before: Synced | None
    ) -> None:
        """Wait until the term has begun, then publish changes until the session ends.

        `begun` is the stream at the start of the session, and `before` the last sync marker in it
        then.
        """
        identity, outbox, epoch = begun, relay.outbox, None
        if not outbox.is_open:
            await term.begun.wait()
            try:
                identity, marker = await self._stream.identity(), await self._stream.marker()
                stored = await self._stream.since(begun.state.last_seq + 1)
            except errors.RaybusError as problem:
                return relay.end_session(str(problem))
            if identity.created != begun.created:
                return relay.end_session(CREATED_ANEW)
            outbox.open(stored)
            if term.is_handed_over and (epoch := choose_epoch(marker, relay.version)) is not None:
                before = marker
        async with asyncio.TaskGroup() as group:
            for _ in range(MAX_IN_FLIGHT):
                group.create_task(outbox.work())
            group.create_task(relay.move())
            group.create_task(_end_with(partial(self._guard, identity, outbox), relay.end_session))
            await self._complete(term, relay, before, epoch)
        return None

    async def _complete(
        self, term: Term, relay: Relay, before: Synced | None, kept_epoch: str | None
    ) -> NoReturn:
        """Wait until all lists are complete, publish the differences, then publish the sync marker.

        After each newer list, the markers of all partitions are published again. The marker of the
        first partition is also renewed every `RENEW_SECONDS`. `kept_epoch` is the epoch of the
        previous leader; None if a new epoch begins.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        await term.prepared.wait()
        relay.everything_is_listed()
        epoch, marked, renewed_at = kept_epoch or self._new_epoch(), 0, 0.0
        history = choose_history(before, relay.version, epoch)
        while True:
            version = relay.version
            is_due = loop.time() >= renewed_at + RENEW_SECONDS and not any(
                watch.problem for watch in self._watches
            )
            if version > marked or is_due:
                self._problem = (
                    f"{len(relay.outbox)} objects are not published yet" if not marked else None
                )
                await relay.outbox.flush()
                marker = Synced(
                    epoch=epoch,
                    version=version,
                    partitions=subjects.PARTITIONS,
                    renewed=RENEW_SECONDS,
                    history=history,
                    forms=forms.list_forms(),
                )
                if version > marked:
                    relay.publish_marker(marker)
                else:
                    relay.renew_marker(marker)
                await relay.outbox.flush()
                if not marked:
                    self._problem = None
                    metrics.SYNCED.set(1)
                    metrics.EPOCHS.inc(0 if kept_epoch else 1)
                    seconds = round(loop.time() - began, 3)
                    log.info(
                        "initial sync complete",
                        epoch=epoch,
                        objects=len(relay),
                        seconds=seconds,
                    )
                marked, renewed_at = version, loop.time()
            await asyncio.sleep(CHECK_SECONDS)

    async def _guard(self, identity: StreamInfo, outbox: Outbox) -> str:
        """Wait until the stream is replaced, loses messages or has another writer.

        Return what happened. `identity` is the stream when this watcher began to publish.
        """
        outbox.last_sequence = max(outbox.last_sequence, identity.state.last_seq)
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            metrics.SYNCED.set(self._problem is None and outbox.problem is None)
            now = asyncio.get_running_loop().time()
            for watch in self._watches:
                if watch.is_served:
                    metrics.WATCH_AGE.labels(str(watch.target)).set(now - watch.received_at)
            newest = outbox.last_sequence
            try:
                stream_info = await self._stream.identity()
            except errors.NotFound:
                return "the state stream is gone"
            except errors.Terminal as problem:
                return str(problem)
            except errors.Retryable as problem:
                log.warning("cannot read the stream", why=str(problem))
                continue
            metrics.STREAM_BYTES.set(stream_info.state.bytes)
            if stream_info.created != identity.created:
                return CREATED_ANEW
            if stream_info.state.last_seq < newest:
                return f"the state stream fell back from {newest} to {stream_info.state.last_seq}"
            if (
                stream_info.state.last_seq
                > identity.state.last_seq + outbox.stored_count + outbox.in_flight
            ):
                return (
                    "somebody else has written to the state stream: a watcher before us, or of "
                    "another cluster"
                )


async def run_in_turn(watches: Sequence[Watch]) -> None:
    """Run watches until cancelled, those of `FIRST_KINDS` first.

    The other watches start when the first ones have listed their objects, or after
    `FIRST_KINDS_TIMEOUT`.
    """
    first = [watch for watch in watches if watch.target.resource in FIRST_KINDS]
    async with asyncio.TaskGroup() as group:
        for watch in first:
            group.create_task(watch.run())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(FIRST_KINDS_TIMEOUT):
                for watch in first:
                    await watch.known.wait()
        for watch in watches:
            if watch not in first:
                group.create_task(watch.run())


async def _end_with(
    reason: Callable[[], Awaitable[str]], end_session: Callable[[str], None]
) -> None:
    end_session(await reason())


def choose_epoch(marker: Synced | None, version: int) -> str | None:
    """Return the epoch of a stream that the previous leader handed over, or None for a new epoch.

    If the epoch is kept, readers need not load the stream again. `marker` is the last sync marker
    of the stream, and `version` the resource version of this watcher's lists. A new epoch begins if
    the stream has no marker or was published by another build. It also begins if the stream is
    newer than the lists, because the API server's versions have started over.
    """
    if marker is None or version < marker.version:
        return None
    is_alike = marker.partitions == subjects.PARTITIONS and marker.forms == forms.list_forms()
    return marker.epoch if is_alike else None


def choose_history(before: Synced | None, version: int, epoch: str) -> str:
    """Return the name of the current history of resource versions, to write into sync markers.

    `before` is the last marker; if there is none, the name is empty. If the version of the last
    marker is above `version`, the API server's versions have started over, as after a restore from
    a backup. A new history then begins, with the name `epoch`.
    """
    if before is None:
        return ""
    return epoch if version < before.version else before.history
