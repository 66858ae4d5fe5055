"""Take, renew, yield and release the Lease at the API server.

A leader that cannot reach NATS yields the Lease to a replica that can.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final

import msgspec
import structlog

from common import errors
from common.api.core import LeaseSpec
from common.clock import Clock, Silence, steady
from common.kube.client import Kube
from common.kube.resources import LEASE
from watcher import leadership, metrics
from watcher.leadership import LeaderRole, Preparation, Successor, WatcherLease, WatcherObservation
from watcher.ports import BusServer
from watcher.term import Term

log = structlog.get_logger()

REQUEST_ERRORS: Final = (errors.RaybusError, TimeoutError)
"""Exceptions that a failed request to the API server may raise."""
ASK_SECONDS: Final = 1.0
"""Seconds between two requests that check whether NATS answers."""
ASK_AGAIN_SECONDS: Final = 0.2
"""Seconds between two requests to NATS while NATS does not answer."""
RENEWAL_SECONDS: Final = 2.0
"""Timeout in seconds of one attempt to renew the Lease.

A second attempt fits in before the Lease can expire.
"""
MAX_CHECK_GAP: Final = 1.0
"""Maximum time in seconds that one gap between two checks adds to the silence of NATS.

A leader checks every 0.5 s. During a much longer gap this process was stopped, so most of the gap
says nothing about NATS.
"""
MAX_REQUEST_GAP: Final = 4.5
"""Like `MAX_CHECK_GAP`, for the silence after which this replica connects to NATS again.

This silence is only measured after each request, and two requests may time out in between.
"""
SERVER_TIMEOUT: Final = 4.0
"""Seconds without an answer of the NATS server after which a leader yields.

Two requests can time out within this time.
"""
STREAM_TIMEOUT: Final = 12.0
"""Seconds without an answer of the stream after which a leader yields and connects again."""


Work = Callable[[Term], Coroutine[Any, Any, None]]
"""Function that does the work of a leader until it is cancelled."""


class ReachCheck:
    """Checks whether this replica can reach NATS; `run` sends requests until cancelled.

    A server that does not answer a ping is out of reach, but another replica may reach it, so the
    leader yields after `SERVER_TIMEOUT`. A server that answers while the stream does not is
    probably electing the stream's leader. The election takes up to eight seconds, and no other
    watcher can speed it up, so the leader yields only after `STREAM_TIMEOUT`.
    """

    def __init__(self, server: BusServer) -> None:
        self._server = server
        time = asyncio.get_running_loop().time
        self._server_silence = Silence(longest_gap=MAX_CHECK_GAP, clock=time)
        self._stream_silence = Silence(longest_gap=MAX_CHECK_GAP, clock=time)
        self._connection_silence = Silence(longest_gap=MAX_REQUEST_GAP, clock=time)
        self.problem: str | None = "the state stream has not been asked for yet"
        """Why the state stream cannot be written to; None if it can."""

    @property
    def is_lost(self) -> bool:
        """Whether a leader should yield to another replica, which may be able to reach NATS."""
        is_server_lost = self._server_silence.seconds() > SERVER_TIMEOUT
        return self._stream_silence.seconds() > STREAM_TIMEOUT or is_server_lost

    async def run(self) -> None:
        while True:
            try:
                await self._server.identity()
                self.problem, is_answered = None, True
            except (errors.Retryable, errors.Terminal) as problem:
                self.problem = str(problem)
                # A missing or wrong stream is an answer too: no watcher can write before the stream
                # is created.
                is_answered = isinstance(problem, errors.NotFound | errors.Terminal)
            if is_answered:
                for silence in (
                    self._server_silence,
                    self._stream_silence,
                    self._connection_silence,
                ):
                    silence.end()
            elif await self._server.is_in_reach():
                self._server_silence.end()
            if self._connection_silence.seconds() > STREAM_TIMEOUT:
                self._connection_silence.end()
                await self._server.reconnect(
                    f"no answer of the state stream for {STREAM_TIMEOUT:g} s"
                )
            await asyncio.sleep(ASK_SECONDS if self.problem is None else ASK_AGAIN_SECONDS)


class Leadership:
    """One replica's part in the election of the only watcher that publishes."""

    def __init__(
        self, kube: Kube, clock: Clock, reach: ReachCheck, *, namespace: str, me: str
    ) -> None:
        self._kube = kube
        self._clock = clock
        self._namespace = namespace
        self._me = me
        self._reach = reach
        self._where = f"the Lease {namespace}/{leadership.LEASE_NAME}"
        self._seen: WatcherObservation | None = None
        self._valid_until = 0.0
        self._written_at = 0.0
        self._prepares = False
        """Whether this replica prepares to lead after the leaving leader."""
        self.problem: str | None = "the Lease has not been read yet"
        """Why neither this replica nor another watcher leads; None if one does."""
        self.standing_by: str | None = None
        """Text that names the Lease holder while this replica stands by.

        None if it leads or has a problem.
        """

    @property
    def has_valid_lease(self) -> bool:
        """Whether this replica's Lease has not expired, so that no other replica can lead now.

        The time is read from the machine's clock, which continues while the process is stopped.
        """
        return steady() < self._valid_until

    async def lead(self, work: Work, *, is_complete: Callable[[], bool]) -> None:
        """Wait for the Lease, run `work` while this replica holds the Lease, and release the Lease.

        If the present leader shuts down, `work` starts before this replica holds the Lease.
        `is_complete` returns whether the stream holds everything that the API server has reported,
        so that another watcher can continue from it.
        """
        term, working = Term(), None
        async with asyncio.TaskGroup() as group:
            try:
                while not await self._try_to_lead(term):
                    if self._prepares and working is None:
                        log.info("preparing to lead", after=self.standing_by)
                        working = group.create_task(work(term))
                    elif working is not None and not self._prepares:
                        await _ended(working)
                        term, working = Term(), None
                    wait = (
                        leadership.HAND_OVER_CHECK_SECONDS
                        if self._prepares
                        else leadership.CHECK_SECONDS
                    )
                    await asyncio.sleep(wait)
                log.info("leading", lease=leadership.LEASE_NAME, identity=self._me)
                _export(is_leading=True)
                self.problem = self.standing_by = None
                working = working or group.create_task(work(term))
                term.begun.set()
                reason = await self._keep()
                await _ended(working)
                self._set_problem(reason)
            except BaseException:
                if working is not None and term.begun.is_set():
                    # In its own task, because Python 3.11 does not handle timeouts in a cancelled
                    # task.
                    is_handed_over = not working.done() and await group.create_task(
                        self._hand_over(is_complete)
                    )
                    role = (
                        LeaderRole.HANDED_OVER
                        if is_handed_over and is_complete()
                        else LeaderRole.LEADS
                    )
                    await _ended(working)
                    await self._release(role)
                elif self._prepares:
                    await self._withdraw()
                raise
            finally:
                _export(is_leading=False)
                self._valid_until = 0.0

    async def _try_to_lead(self, term: Term) -> bool:
        """Take the Lease if it is free and NATS can be reached.

        Return whether this replica took it.
        """
        if (reason := self._reach.problem) is not None:
            await self._try(LeaderRole.YIELDS)
            self._set_problem(reason)
            return False
        return await self._try(LeaderRole.LEADS, term)

    async def _keep(self) -> str:
        """Renew the Lease until it is lost or NATS is out of reach; return what happened.

        A leader that could not renew in time publishes nothing, because another watcher may hold
        the Lease. It publishes again if it can renew later, for example after seconds without CPU,
        and nobody has held the Lease meanwhile.
        """
        began = self._transitions
        while True:
            await asyncio.sleep(leadership.CHECK_SECONDS)
            if self._reach.is_lost:
                return self._reach.problem or "NATS was out of reach"
            if self.has_valid_lease and self._is_renewed:
                continue
            is_ours = False
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(RENEWAL_SECONDS):
                    is_ours = await self._try(LeaderRole.LEADS)
            holder = self._seen.spec.holder_identity if self._seen is not None else self._me
            if not is_ours and holder != self._me:
                return f"the Lease now belongs to {holder or 'nobody'}"
            if self._transitions != began:
                return "another watcher held the Lease meanwhile"
            if self.has_valid_lease:
                self.problem = None
            else:
                self._set_problem(
                    f"{self._where} could not be renewed for {leadership.DEADLINE_SECONDS:g} s, "
                    "so nothing is published"
                )
            _export(is_leading=self.has_valid_lease)

    @property
    def _transitions(self) -> int | None:
        """Number of changes of the Lease holder when this replica last read or wrote the Lease."""
        return None if self._seen is None else self._seen.spec.lease_transitions

    async def _hand_over(self, is_complete: Callable[[], bool]) -> bool:
        """Announce that this replica leaves, and lead until another replica is prepared to lead.

        Returns False if no replica is prepared in time, if the stream is incomplete, or if this
        replica lost the Lease or NATS.
        """
        with contextlib.suppress(*REQUEST_ERRORS):
            async with asyncio.timeout(leadership.PREPARE_SECONDS):
                answered_at = steady()
                while is_complete() and self.has_valid_lease and not self._reach.is_lost:
                    began, lease = steady(), await self._read()
                    if lease is None or lease.spec.holder_identity != self._me:
                        break
                    successor = lease.successor
                    if successor is not None and successor.progress is Preparation.DONE:
                        log.info("handing over", to=successor.identity)
                        return True
                    if successor is not None:
                        answered_at = began
                    elif began > answered_at + leadership.ANSWER_SECONDS:
                        break
                    if lease.role is not LeaderRole.LEAVES or not self._is_renewed:
                        with contextlib.suppress(errors.Conflict):
                            await self._write(
                                lease, LeaderRole.LEAVES, began, following=str(successor or "")
                            )
                    await asyncio.sleep(leadership.HAND_OVER_CHECK_SECONDS)
        return False

    def _set_problem(self, reason: str) -> None:
        """Record why this replica does not lead, while no other watcher is known to lead."""
        if reason != self.problem:
            log.warning("not leading", why=reason)
        self.problem, self.standing_by = reason, None

    async def _try(self, role: LeaderRole, term: Term | None = None) -> bool:
        """Take or renew the Lease with this `role` if that is allowed.

        Return whether the Lease was written. With `LeaderRole.YIELDS` this replica does not take
        the Lease, but renews it if it is the holder.
        """
        try:
            async with asyncio.timeout(leadership.DEADLINE_SECONDS):
                return await self._take(role, term)
        except (errors.Conflict, errors.AlreadyExists):
            return False
        except REQUEST_ERRORS as problem:
            if role is LeaderRole.LEADS and not self.has_valid_lease:
                self._set_problem(
                    f"{self._where} cannot be had: {problem or 'the API server does not answer'}"
                )
            return False

    async def _take(self, role: LeaderRole, term: Term | None) -> bool:
        began, lease = steady(), await self._read()
        self._prepares = False
        if lease is None:
            if role is LeaderRole.LEADS:
                await self._write(None, role, began)
            return role is LeaderRole.LEADS
        self._seen = leadership.observe(self._seen, lease, now=steady())
        has_yielded = lease.role is LeaderRole.YIELDS and self._is_renewed
        if role is LeaderRole.YIELDS and (has_yielded or lease.spec.holder_identity != self._me):
            return False
        if (holder := leadership.find_blocking_holder(self._seen, self._me, now=steady())) is None:
            await self._write(lease, role, began)
            if term is not None:
                term.is_handed_over = bool(lease.next_holder)
            return True
        text = f"{self._where} is held by {holder}"
        if lease.role is None and not lease.next_holder:
            self._set_problem(text)
            return False
        if self.standing_by is None:
            log.info("standing by", why=text)
        self.problem, self.standing_by = None, text
        if term is not None and leadership.may_prepare(lease, self._me):
            self._prepares = True
            mine = Successor(
                self._me, Preparation.DONE if term.prepared.is_set() else Preparation.BEGUN
            )
            if lease.successor != mine:
                await self._put(lease.spec, lease, {leadership.NEXT_ANNOTATION: str(mine)})
        return False

    async def _withdraw(self) -> None:
        """Record in the Lease that this replica no longer prepares, so that another replica can."""

        def prepared_for(lease: WatcherLease) -> LeaseSpec | None:
            return (
                lease.spec
                if lease.successor is not None and lease.successor.identity == self._me
                else None
            )

        with contextlib.suppress(*REQUEST_ERRORS):
            await self._rewrite(prepared_for, {leadership.NEXT_ANNOTATION: ""})

    @property
    def _is_renewed(self) -> bool:
        return steady() < self._written_at + leadership.RENEW_SECONDS

    async def _release(self, role: LeaderRole) -> None:
        def released(lease: WatcherLease) -> LeaseSpec | None:
            is_ours = lease.spec.holder_identity == self._me
            return (
                leadership.build_released_spec(lease.spec, at=self._clock.now())
                if is_ours
                else None
            )

        try:
            if await self._rewrite(released, self._mark(role)):
                log.info("Lease released", lease=leadership.LEASE_NAME)
        except REQUEST_ERRORS as problem:
            log.warning(
                "cannot release the Lease", error=str(problem) or "the API server does not answer"
            )

    async def _rewrite(
        self, change: Callable[[WatcherLease], LeaseSpec | None], annotations: Mapping[str, str]
    ) -> bool:
        """Write the spec that `change` returns, and the annotations, to the Lease.

        Returns False if the Lease does not exist or `change` returns None. If another writer
        changes the Lease at the same time, `change` is called again with the new content. The other
        writer may be the holder, or a cancelled renewal of this replica that still arrived.
        """
        async with asyncio.timeout(leadership.RENEW_SECONDS):
            while (lease := await self._read()) is not None and (spec := change(lease)) is not None:
                with contextlib.suppress(errors.Conflict):
                    await self._put(spec, lease, annotations)
                    return True
        return False

    async def _read(self) -> WatcherLease | None:
        try:
            answer = await self._kube.get(LEASE, self._namespace, leadership.LEASE_NAME)
        except errors.NotFound:
            return None
        return msgspec.json.decode(answer, type=WatcherLease)

    async def _write(
        self, previous: WatcherLease | None, role: LeaderRole, began: float, *, following: str = ""
    ) -> None:
        """Take or renew the Lease.

        Its validity counts from `began`, when this replica read the Lease. `previous` is the Lease
        as read, or None if it does not exist. `following` is the new value of `NEXT_ANNOTATION`.
        """
        mine = leadership.build_taken_spec(
            None if previous is None else previous.spec, self._me, at=self._clock.now()
        )
        lease = await self._put(
            mine, previous, {**self._mark(role), leadership.NEXT_ANNOTATION: following}
        )
        self._seen = leadership.observe(None, lease, now=steady())
        self._written_at = began
        self._valid_until = (
            0.0 if lease.role is LeaderRole.YIELDS else began + leadership.DEADLINE_SECONDS
        )

    def _mark(self, role: LeaderRole) -> dict[str, str]:
        return {leadership.ANNOTATION: leadership.format_annotation(self._me, role)}

    async def _put(
        self, spec: LeaseSpec, lease: WatcherLease | None, annotations: Mapping[str, str]
    ) -> WatcherLease:
        """Create or replace the Lease; an annotation with an empty value is removed."""
        metadata = {} if lease is None else lease.metadata
        before: dict[str, str] = metadata.get("annotations") or {}
        body = {
            "apiVersion": LEASE.api_version,
            "kind": LEASE.kind,
            "metadata": {
                **{name: value for name, value in metadata.items() if name != "managedFields"},
                "name": leadership.LEASE_NAME,
                "namespace": self._namespace,
                "annotations": {
                    name: value for name, value in {**before, **annotations}.items() if value
                },
            },
            "spec": msgspec.to_builtins(spec),
        }
        write = self._kube.create if lease is None else self._kube.replace
        return msgspec.json.decode(await write(LEASE, self._namespace, body), type=WatcherLease)


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait((task,))


def _export(*, is_leading: bool) -> None:
    metrics.LEADER.set(is_leading)
    metrics.MASTER.labels(leadership.LEASE_NAME).set(is_leading)
