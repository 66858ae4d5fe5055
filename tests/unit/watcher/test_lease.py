"""The end of a leader: another watcher prepares meanwhile, if there is one, and the Lease is
released at once, whatever request was in progress.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import msgspec
import pytest

from common import errors
from common.api.meta import micro_time
from common.api.opaque import Body
from common.clock import SystemClock
from common.kube.resources import LEASE, Resource
from support.fakes.kube import FakeKube
from unit.watcher.a_nats import Nats, asked
from watcher import leadership
from watcher.adapters.lease import RENEWAL_SECONDS, Leadership, ReachCheck
from watcher.leadership import LEASE_NAME
from watcher.term import Term

pytestmark = pytest.mark.looptime

NAMESPACE = "raybus"
MOMENT: Final = 2 * leadership.HAND_OVER_CHECK_SECONDS


@pytest.fixture(autouse=True)
def one_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let Leases expire by the loop's time, which is virtual."""
    monkeypatch.setattr("watcher.adapters.lease.steady", lambda: asyncio.get_running_loop().time())


class LateKube(FakeKube):
    """An API server that carries out an abandoned renewal late, just after the next read."""

    is_late = False
    after_read: Callable[[bytes], None] | None = None

    async def get(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        answer = await super().get(resource, namespace, name)
        if self.after_read is not None:
            self.after_read(answer)
        if self.is_late:
            self.is_late = False
            lease = msgspec.json.decode(answer)
            lease["spec"]["renewTime"] = micro_time(SystemClock().now())
            await self.replace(resource, namespace, lease)
        return answer


class Candidate:
    """A watcher that can lead: its work takes some time to prepare, and then runs until it is
    cancelled.
    """

    def __init__(
        self, kube: FakeKube, reach: ReachCheck, name: str, *, prepares: float = 2.0
    ) -> None:
        self._leadership = Leadership(kube, SystemClock(), reach, namespace=NAMESPACE, me=name)
        self._prepares = prepares
        self.is_complete = True
        self.terms: list[Term] = []
        self.leads_since: float | None = None
        self.left_at: float | None = None
        self.dropped = 0
        """Number of preparations that were not followed by leadership."""

    @property
    def may_publish(self) -> bool:
        return self._leadership.has_valid_lease

    @property
    def problem(self) -> str | None:
        return self._leadership.problem

    async def run(self) -> None:
        while True:
            await self._leadership.lead(self._work, is_complete=lambda: self.is_complete)

    async def _work(self, term: Term) -> None:
        loop = asyncio.get_running_loop()
        self.terms.append(term)
        try:
            await asyncio.sleep(self._prepares)
            term.prepared.set()
            await term.begun.wait()
            self.leads_since = loop.time()
            await asyncio.Future()
        finally:
            self.left_at = loop.time()
            self.dropped += not term.begun.is_set()


@asynccontextmanager
async def running(*candidates: Candidate) -> AsyncGenerator[list[asyncio.Task[None]]]:
    """Run candidates, the first of which already leads."""
    async with asyncio.TaskGroup() as group:
        tasks: list[asyncio.Task[None]] = []
        for each in candidates:
            tasks.append(group.create_task(each.run()))
            await asyncio.sleep(5.0)
        yield tasks
        for task in tasks:
            task.cancel()


async def held_lease(kube: FakeKube) -> Any:
    return msgspec.json.decode(await kube.get(LEASE, NAMESPACE, LEASE_NAME))


@pytest.mark.parametrize(
    "is_late", [pytest.param(False, id="at rest"), pytest.param(True, id="in a renewal")]
)
async def test_a_leader_that_ends_lets_its_lease_go(is_late: bool) -> None:
    kube, nats = LateKube(), Nats()
    async with asked(nats) as reach:
        one = Candidate(kube, reach, "a")
        async with running(one) as (task,):
            kube.is_late = is_late
            task.cancel()
    lease = await held_lease(kube)
    assert not lease["spec"]["holderIdentity"]
    assert not nats.reconnects


@pytest.mark.parametrize("prepares", [0.0, 2.0, 12.0])
async def test_a_leader_leads_until_another_one_is_prepared(prepares: float) -> None:
    kube, loop = FakeKube(), asyncio.get_running_loop()
    async with asked(Nats()) as reach:
        one, two = Candidate(kube, reach, "a"), Candidate(kube, reach, "b", prepares=prepares)
        async with running(one, two) as (first, _):
            assert two.terms == []
            ended_at = loop.time()
            first.cancel()
            await asyncio.sleep(prepares + 5.0)
            assert one.left_at is not None
            assert two.leads_since is not None
            assert two.terms[0].is_handed_over
            assert (
                prepares <= one.left_at - ended_at <= prepares + leadership.CHECK_SECONDS + MOMENT
            )
            assert 0.0 <= two.leads_since - one.left_at <= MOMENT
            assert (
                leadership.NEXT_ANNOTATION
                not in (await held_lease(kube))["metadata"]["annotations"]
            )
            assert (await held_lease(kube))["spec"]["holderIdentity"] == "b"


async def test_one_of_two_prepares() -> None:
    kube = FakeKube()
    async with asked(Nats()) as reach:
        one, two, three = (Candidate(kube, reach, name) for name in "abc")
        async with running(one, two, three) as (first, *_):
            first.cancel()
            await asyncio.sleep(5.0)
            assert sorted((len(two.terms), len(three.terms))) == [0, 1]
            assert (two.dropped, three.dropped) == (0, 0)
            assert [each.leads_since is not None for each in (two, three)] == [
                bool(each.terms) for each in (two, three)
            ]


async def test_another_one_prepares_when_the_first_ends() -> None:
    """This happens in a rollout, which also ends the standby that has answered."""
    kube, loop = FakeKube(), asyncio.get_running_loop()
    async with asked(Nats()) as reach:
        one, two, three = (Candidate(kube, reach, name) for name in "abc")
        async with running(one, two, three) as (first, *others):
            began = loop.time()
            first.cancel()
            await asyncio.sleep(1.0)
            chosen, other = (two, three) if two.terms else (three, two)
            others[(two, three).index(chosen)].cancel()
            await asyncio.sleep(5.0)
            assert chosen.dropped == 1
            assert other.leads_since is not None
            assert other.terms[-1].is_handed_over
            assert one.left_at is not None
            assert 3.0 <= one.left_at - began <= 3.0 + leadership.CHECK_SECONDS + MOMENT


async def test_a_leader_leaves_soon_when_the_only_other_one_ends() -> None:
    kube, loop = FakeKube(), asyncio.get_running_loop()
    async with asked(Nats()) as reach:
        one, two = Candidate(kube, reach, "a"), Candidate(kube, reach, "b")
        async with running(one, two) as (first, second):
            first.cancel()
            await asyncio.sleep(1.0)
            second.cancel()
            began = loop.time()
            await asyncio.sleep(5.0)
            assert one.left_at is not None
            assert one.left_at - began <= leadership.ANSWER_SECONDS + MOMENT
            assert not (await held_lease(kube))["spec"]["holderIdentity"]


async def test_a_leader_without_another_one_leaves_soon() -> None:
    kube, loop = FakeKube(), asyncio.get_running_loop()
    async with asked(Nats()) as reach:
        one = Candidate(kube, reach, "a")
        async with running(one) as (task,):
            began = loop.time()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert loop.time() - began <= leadership.ANSWER_SECONDS + MOMENT


async def test_a_stream_that_is_not_complete_is_not_handed_over() -> None:
    kube, loop = FakeKube(), asyncio.get_running_loop()
    async with asked(Nats()) as reach:
        one, two = Candidate(kube, reach, "a"), Candidate(kube, reach, "b")
        async with running(one, two) as (first, _):
            one.is_complete, began = False, loop.time()
            first.cancel()
            await asyncio.sleep(5.0)
            assert one.left_at == began
            assert two.leads_since is not None
            assert not two.terms[-1].is_handed_over


@pytest.mark.parametrize("is_last_moment", [False, True])
async def test_a_stream_that_is_incomplete_at_the_end_is_not_handed_over(
    is_last_moment: bool,
) -> None:
    """The stream filled up while the other watcher prepared: an object may have been purged and
    have no tombstone.
    """
    kube = LateKube()
    async with asked(Nats()) as reach:
        one, two = Candidate(kube, reach, "a"), Candidate(kube, reach, "b")
        async with running(one, two) as (first, _):

            def fill(lease: bytes) -> None:
                moment = (
                    leadership.Preparation.DONE if is_last_moment else leadership.Preparation.BEGUN
                )
                one.is_complete = one.is_complete and moment.encode() not in lease

            kube.after_read = fill
            first.cancel()
            await asyncio.sleep(5.0)
            assert two.leads_since is not None
            assert not two.terms[-1].is_handed_over


class CutKube(FakeKube):
    """An API server that some watchers cannot reach at times."""

    def __init__(self, shared: FakeKube) -> None:
        super().__init__()
        self.shared = shared
        self.is_away = self.is_refusing = False

    async def get(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        await self._reach()
        return await self.shared.get(resource, namespace, name)

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        await self._reach()
        return await self.shared.create(resource, namespace, body)

    async def replace(
        self,
        resource: Resource,
        namespace: str | None,
        body: Body,
        *,
        subresource: str | None = None,
    ) -> bytes:
        await self._reach()
        return await self.shared.replace(resource, namespace, body, subresource=subresource)

    async def _reach(self) -> None:
        if self.is_away:
            await asyncio.Future()
        if self.is_refusing:
            raise errors.Unavailable("the API server is overloaded")


async def test_a_leader_goes_on_where_nobody_had_its_lease_meanwhile() -> None:
    """This happens after some seconds without a processor: its session, and therefore the state of
    each reader, is unchanged.
    """
    kube = CutKube(FakeKube())
    async with asked(Nats()) as reach:
        one = Candidate(kube, reach, "a")
        async with running(one):
            kube.is_away = True
            await asyncio.sleep(leadership.DEADLINE_SECONDS + 0.1)
            assert not one.may_publish
            await asyncio.sleep(60)
            assert one.problem is not None
            kube.is_away = False
            await asyncio.sleep(RENEWAL_SECONDS + 1)
            assert one.may_publish
            assert one.problem is None
            assert (len(one.terms), one.left_at) == (1, None)


async def test_a_leader_that_finds_another_one_ends_its_term() -> None:
    kube = FakeKube()
    cut = CutKube(kube)
    async with asked(Nats()) as reach:
        one, two = Candidate(cut, reach, "a"), Candidate(kube, reach, "b")
        async with running(one, two):
            cut.is_away = True
            for _ in range(200):
                await asyncio.sleep(0.1)
                assert not (one.may_publish and two.may_publish)
            assert two.may_publish
            cut.is_away = False
            await asyncio.sleep(RENEWAL_SECONDS + 1)
            assert one.left_at is not None
            assert not one.may_publish


async def test_a_leader_begins_anew_where_another_one_led_meanwhile() -> None:
    """The other watcher may have published changes that this one's session does not know."""
    kube = FakeKube()
    cut = CutKube(kube)
    async with asked(Nats()) as reach:
        one, two = Candidate(cut, reach, "a"), Candidate(kube, reach, "b")
        async with running(one, two) as (_, second):
            cut.is_away = True
            await asyncio.sleep(20)
            second.cancel()
            await asyncio.sleep(5)
            assert not (await held_lease(kube))["spec"]["holderIdentity"]
            cut.is_away = False
            await asyncio.sleep(RENEWAL_SECONDS + 3)
            assert one.may_publish
            assert len(one.terms) == 2


async def test_a_leader_is_ready_again_after_one_renewal_that_failed() -> None:
    kube = CutKube(FakeKube())
    async with asked(Nats()) as reach:
        one = Candidate(kube, reach, "a")
        async with running(one):
            kube.is_refusing = True
            await asyncio.sleep(leadership.RENEW_SECONDS + leadership.CHECK_SECONDS)
            kube.is_refusing = False
            await asyncio.sleep(RENEWAL_SECONDS)
            assert one.problem is None


async def test_a_leader_that_fails_leaves_at_once() -> None:
    kube, loop = FakeKube(), asyncio.get_running_loop()
    failed_at = 0.0

    async def fail(term: Term) -> None:
        nonlocal failed_at
        await term.begun.wait()
        await asyncio.sleep(1.0)
        failed_at = loop.time()
        raise RuntimeError

    async with asked(Nats()) as reach:
        one = Leadership(kube, SystemClock(), reach, namespace=NAMESPACE, me="a")
        with pytest.RaisesGroup(RuntimeError):
            await one.lead(fail, is_complete=lambda: True)
    assert loop.time() - failed_at < MOMENT
    assert not (await held_lease(kube))["spec"]["holderIdentity"]


async def test_a_leader_does_not_wait_for_ever_for_one_that_prepares() -> None:
    kube, loop = FakeKube(), asyncio.get_running_loop()
    async with asked(Nats()) as reach:
        one, two = Candidate(kube, reach, "a"), Candidate(kube, reach, "b", prepares=1000.0)
        async with running(one, two) as (first, _):
            began = loop.time()
            first.cancel()
            await asyncio.sleep(leadership.PREPARE_SECONDS + 5.0)
            assert one.left_at is not None
            assert one.left_at - began <= leadership.PREPARE_SECONDS + MOMENT
            assert (await held_lease(kube))["spec"]["holderIdentity"] == "b"
            assert not two.terms[-1].is_handed_over
            assert two.dropped == 0  # it goes on with what it has listed


async def test_a_preparation_for_a_leader_that_is_replaced_by_another_is_dropped() -> None:
    kube = FakeKube()
    async with asked(Nats()) as reach:
        one, two = Candidate(kube, reach, "a"), Candidate(kube, reach, "b", prepares=1000.0)
        async with running(one, two) as (first, _):
            first.cancel()
            await asyncio.sleep(2.0)
            lease = await held_lease(kube)
            lease["spec"] |= {"holderIdentity": "kuberay", "leaseDurationSeconds": 1000}
            await kube.replace(LEASE, NAMESPACE, lease)
            await asyncio.sleep(2.0)
            assert two.dropped == 1
            assert not two.terms[-1].begun.is_set()


async def test_the_end_of_a_leader_that_leaves_is_noticed() -> None:
    """The leader is killed during its exit: its Lease expires like that of any other leader."""
    kube = FakeKube()
    async with asked(Nats()) as reach:
        two = Candidate(kube, reach, "b")
        async with asyncio.TaskGroup() as group:
            spec = leadership.build_taken_spec(None, "a", at=SystemClock().now())
            mark = {
                leadership.ANNOTATION: leadership.format_annotation(
                    "a", leadership.LeaderRole.LEAVES
                )
            }
            metadata = {"name": LEASE_NAME, "namespace": NAMESPACE, "annotations": mark}
            body = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": metadata}
            await kube.create(LEASE, NAMESPACE, {**body, "spec": msgspec.to_builtins(spec)})
            task = group.create_task(two.run())
            await asyncio.sleep(leadership.DURATION_SECONDS + 1.0)
            assert two.leads_since is not None
            assert not two.terms[-1].is_handed_over
            task.cancel()
