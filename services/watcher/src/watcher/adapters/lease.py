"""The Lease at the API server: take it, keep it, yield it, let it go; a leader without NATS makes room for a replica that has it."""

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
from watcher.leadership import Lease, LeaseObservation, Preparation, Role, Successor
from watcher.ports import Server
from watcher.term import Term

log = structlog.get_logger()

OURS: Final = (errors.RaybusError, TimeoutError)
ASK_SECONDS: Final = 1.0
ASK_AGAIN_SECONDS: Final = 0.2
"""As long as there is a problem."""
RENEWAL_SECONDS: Final = 2.0
"""Most seconds for one attempt of a leader to renew: a second one fits in before the Lease can expire."""
CHECKED_SECONDS: Final = 1.0
"""Of the time between two looks of a leader this much counts as silence; it looks each half second."""
ASKED_SECONDS: Final = 4.5
"""Likewise between two questions to NATS, each of which is two requests that may time out."""
SERVER_SECONDS: Final = 4.0
"""A leader yields after its server has been silent for this long; two requests can time out in it."""
STREAM_SECONDS: Final = 12.0
"""A leader yields, and tries another connection, after its stream has been silent for this long."""


Work = Callable[[Term], Coroutine[Any, Any, None]]
"""What a leader does, until cancelled."""


class Reach:
    """Whether this replica can reach NATS; `run` keeps asking.

    Two kinds of silence. A server that does not even answer a ping is out of reach, and for another replica it may well be in
    reach: the Lease goes after a few seconds. A server that answers while the stream does not is most likely electing the stream's
    leader, which takes up to eight seconds and which no other watcher can speed up: so that takes longer.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        time = asyncio.get_running_loop().time
        self._server_silence = Silence(longest_gap=CHECKED_SECONDS, clock=time)
        self._stream_silence = Silence(longest_gap=CHECKED_SECONDS, clock=time)
        self._connection_silence = Silence(longest_gap=ASKED_SECONDS, clock=time)
        self.problem: str | None = "the state stream has not been asked for yet"
        """Why the state stream cannot be written to; None while it can."""

    @property
    def is_lost(self) -> bool:
        """Return whether a leader should make room for a replica that may have better luck."""
        is_server_lost = self._server_silence.seconds() > SERVER_SECONDS
        return self._stream_silence.seconds() > STREAM_SECONDS or is_server_lost

    async def run(self) -> None:
        """Ask until cancelled."""
        while True:
            try:
                await self._server.identity()
                self.problem, is_answered = None, True
            except (errors.Retryable, errors.Terminal) as problem:
                self.problem = str(problem)
                # What is missing or wrong is an answer all the same; nobody can write before it is created.
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
            if self._connection_silence.seconds() > STREAM_SECONDS:
                self._connection_silence.end()
                await self._server.reconnect(
                    f"no answer of the state stream for {STREAM_SECONDS:g} s"
                )
            await asyncio.sleep(ASK_SECONDS if self.problem is None else ASK_AGAIN_SECONDS)


class Leadership:
    """One replica's claim to be the only one that publishes."""

    def __init__(self, kube: Kube, clock: Clock, reach: Reach, *, namespace: str, me: str) -> None:
        self._kube = kube
        self._clock = clock
        self._namespace = namespace
        self._me = me
        self._reach = reach
        self._where = f"the Lease {namespace}/{leadership.LEASE_NAME}"
        self._seen: LeaseObservation | None = None
        self._valid_until = 0.0
        self._written_at = 0.0
        self._prepares = False
        """Whether this replica prepares to follow a leader that leaves."""
        self.problem: str | None = "the Lease has not been read yet"
        """Why neither we nor another watcher lead; None while one does."""
        self.standing_by: str | None = None
        """The holder of the Lease that this replica stands by for; None while it leads, or has a problem."""

    @property
    def has_valid_lease(self) -> bool:
        """Return whether no other replica can lead now; by the machine's own clock, which runs on while a process is stopped."""
        return steady() < self._valid_until

    async def lead(self, work: Work, *, is_complete: Callable[[], bool]) -> None:
        """Wait for the Lease, have `work` done as long as it is held, and let it go; once for each time that this replica leads.

        The work begins before that when another leader leaves: its term has not begun then. `is_complete` is whether the stream holds
        all that the API server reports, so that another watcher can go on from it.
        """
        term, working = Term(), None
        async with asyncio.TaskGroup() as group:
            try:
                while not await self._is_taken(term):
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
                why = await self._keep()
                await _ended(working)
                self._set_problem(why)
            except BaseException:
                if working is not None and term.begun.is_set():
                    # In a task of its own: this one is cancelled, and Python 3.11 would not count the time-outs in it.
                    is_handed_over = not working.done() and await group.create_task(
                        self._hand_over(is_complete)
                    )
                    role = Role.HANDED_OVER if is_handed_over and is_complete() else Role.LEADS
                    await _ended(working)
                    await self._release(role)
                elif self._prepares:
                    await self._withdraw()
                raise
            finally:
                _export(is_leading=False)
                self._valid_until = 0.0

    async def _is_taken(self, term: Term) -> bool:
        """Take the Lease if it can be had, and if NATS can be reached."""
        if (why := self._reach.problem) is not None:
            await self._try(Role.YIELDS)
            self._set_problem(why)
            return False
        return await self._try(Role.LEADS, term)

    async def _keep(self) -> str:
        """Renew until another holder has had the Lease, or NATS is out of reach; return why.

        A leader that could not renew in time publishes nothing, since another watcher may have the Lease by now. Once it can renew
        again and finds that nobody had it, such as after seconds without a processor, its work goes on as if nothing had happened.
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
                    is_ours = await self._try(Role.LEADS)
            holder = self._seen.spec.holder_identity if self._seen is not None else self._me
            if not is_ours and holder != self._me:
                return f"the Lease now belongs to {holder or 'nobody'}"
            if self._transitions != began:
                return "another watcher held the Lease meanwhile"
            if self.has_valid_lease:
                self.problem = None
            else:
                self._set_problem(
                    f"{self._where} could not be renewed for {leadership.DEADLINE_SECONDS:g} s, so nothing is published"
                )
            _export(is_leading=self.has_valid_lease)

    @property
    def _transitions(self) -> int | None:
        """How often the Lease had changed its holder when it was read or written last."""
        return None if self._seen is None else self._seen.spec.lease_transitions

    async def _hand_over(self, is_complete: Callable[[], bool]) -> bool:
        """Announce that this replica leaves, and go on leading until another one is prepared, or none answers; return whether one is."""
        with contextlib.suppress(*OURS):
            async with asyncio.timeout(leadership.PREPARE_SECONDS):
                answered_at = steady()
                while is_complete() and self.has_valid_lease and not self._reach.is_lost:
                    asked, found = steady(), await self._read()
                    if found is None or found.spec.holder_identity != self._me:
                        break
                    successor = found.successor
                    if successor is not None and successor.progress is Preparation.DONE:
                        log.info("handing over", to=successor.identity)
                        return True
                    if successor is not None:
                        answered_at = asked
                    elif asked > answered_at + leadership.ANSWER_SECONDS:
                        break
                    if found.role is not Role.LEAVES or not self._is_renewed:
                        with contextlib.suppress(errors.Conflict):
                            await self._write(
                                found, Role.LEAVES, asked, following=str(successor or "")
                            )
                    await asyncio.sleep(leadership.HAND_OVER_CHECK_SECONDS)
        return False

    def _set_problem(self, why: str) -> None:
        """Record why this replica does not lead, and no other watcher is known to."""
        if why != self.problem:
            log.warning("not leading", why=why)
        self.problem, self.standing_by = why, None

    async def _try(self, role: Role, term: Term | None = None) -> bool:
        """Take or renew the Lease if allowed; return whether that was done. With `Role.YIELDS` it only renews."""
        try:
            async with asyncio.timeout(leadership.DEADLINE_SECONDS):
                return await self._take(role, term)
        except (errors.Conflict, errors.AlreadyExists):
            return False
        except OURS as problem:
            if role is Role.LEADS and not self.has_valid_lease:
                self._set_problem(
                    f"{self._where} cannot be had: {problem or 'the API server does not answer'}"
                )
            return False

    async def _take(self, role: Role, term: Term | None) -> bool:
        asked, found = steady(), await self._read()
        self._prepares = False
        if found is None:
            if role is Role.LEADS:
                await self._write(None, role, asked)
            return role is Role.LEADS
        self._seen = leadership.observe(self._seen, found, now=steady())
        has_yielded = found.role is Role.YIELDS and self._is_renewed
        if role is Role.YIELDS and (has_yielded or found.spec.holder_identity != self._me):
            return False
        if (holder := leadership.holder_to_wait_for(self._seen, self._me, now=steady())) is None:
            await self._write(found, role, asked)
            if term is not None:
                term.is_handed_over = bool(found.next_holder)
            return True
        held = f"{self._where} is held by {holder}"
        if found.role is None and not found.next_holder:
            self._set_problem(held)
            return False
        if self.standing_by is None:
            log.info("standing by", why=held)
        self.problem, self.standing_by = None, held
        if term is not None and leadership.may_prepare(found, self._me):
            self._prepares = True
            mine = Successor(
                self._me, Preparation.DONE if term.prepared.is_set() else Preparation.BEGUN
            )
            if found.successor != mine:
                await self._put(found.spec, found, {leadership.NEXT_ANNOTATION: str(mine)})
        return False

    async def _withdraw(self) -> None:
        """Let another replica prepare, or the leader leave, if that is possible."""

        def prepared_for(found: Lease) -> LeaseSpec | None:
            return (
                found.spec
                if found.successor is not None and found.successor.identity == self._me
                else None
            )

        with contextlib.suppress(*OURS):
            await self._rewrite(prepared_for, {leadership.NEXT_ANNOTATION: ""})

    @property
    def _is_renewed(self) -> bool:
        return steady() < self._written_at + leadership.RENEW_SECONDS

    async def _release(self, role: Role) -> None:
        def released(found: Lease) -> LeaseSpec | None:
            is_ours = found.spec.holder_identity == self._me
            return leadership.released(found.spec, at=self._clock.now()) if is_ours else None

        try:
            if await self._rewrite(released, self._mark(role)):
                log.info("the Lease was released", lease=leadership.LEASE_NAME)
        except OURS as problem:
            log.warning(
                "the Lease was not released", error=str(problem) or "the API server does not answer"
            )

    async def _rewrite(
        self, change: Callable[[Lease], LeaseSpec | None], annotations: Mapping[str, str]
    ) -> bool:
        """Change the Lease as it is found, again where it was written in between: by its holder, or by a cancelled renewal of ours that still arrived.

        Returns whether it was changed; it is not when it is gone, or `change` returns None.
        """
        async with asyncio.timeout(leadership.RENEW_SECONDS):
            while (found := await self._read()) is not None and (spec := change(found)) is not None:
                with contextlib.suppress(errors.Conflict):
                    await self._put(spec, found, annotations)
                    return True
        return False

    async def _read(self) -> Lease | None:
        try:
            answer = await self._kube.get(LEASE, self._namespace, leadership.LEASE_NAME)
        except errors.NotFound:
            return None
        return msgspec.json.decode(answer, type=Lease)

    async def _write(
        self, found: Lease | None, role: Role, asked: float, *, following: str = ""
    ) -> None:
        """Take or renew the Lease; it is ours for some time from the moment that we asked for it."""
        mine = leadership.taken(
            None if found is None else found.spec, self._me, at=self._clock.now()
        )
        lease = await self._put(
            mine, found, {**self._mark(role), leadership.NEXT_ANNOTATION: following}
        )
        self._seen = leadership.observe(None, lease, now=steady())
        self._written_at = asked
        self._valid_until = (
            0.0 if lease.role is Role.YIELDS else asked + leadership.DEADLINE_SECONDS
        )

    def _mark(self, role: Role) -> dict[str, str]:
        """Return the annotation that gives the role of this replica."""
        return {leadership.ANNOTATION: leadership.annotation_of(self._me, role)}

    async def _put(
        self, spec: LeaseSpec, found: Lease | None, annotations: Mapping[str, str]
    ) -> Lease:
        """Write the Lease with some annotations, of which empty ones are removed."""
        metadata = {} if found is None else found.metadata
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
        write = self._kube.create if found is None else self._kube.replace
        return msgspec.json.decode(await write(LEASE, self._namespace, body), type=Lease)


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel a task, and wait until it is over."""
    task.cancel()
    await asyncio.wait((task,))


def _export(*, is_leading: bool) -> None:
    metrics.LEADER.set(is_leading)
    metrics.MASTER.labels(leadership.LEASE_NAME).set(is_leading)
