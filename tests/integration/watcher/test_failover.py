"""Two watchers, and everything that can happen to the leader: the other takes over, nothing is lost and no version decreases.

Each has its own wire to NATS and to the API server, while objects come, change and go all the time.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Final

import msgspec
import pytest

from common import errors
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.bus import messages, subjects
from common.bus.messages import ObjectState, Synced, Tombstone
from common.bus.nats import connect
from common.bus.subjects import TreeKind, TreeLocation
from common.kube import resources
from common.kube.client import KubeClient, PatchRequest
from integration.watcher.replicas import KINDS, Replica, replica
from localcluster.control_plane import ControlPlane
from support.builders.manifests import a_ray_cluster
from support.servers import witness as witnesses
from support.servers.relayed import provisioned
from support.servers.witness import Witness, witnessed
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration]

TAKE_OVER_SECONDS: Final = 10.0
TIMEOUT: Final = 90.0
"""Seconds that anything else may take, on a machine that others use as well."""


class _Answer(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


class Pair(msgspec.Struct, frozen=True, kw_only=True):
    """Two of them, the leader first, and a reader of what they publish."""

    leader: Replica
    other: Replica
    witness: Witness
    kube: KubeClient
    namespace: str

    async def touch(self) -> tuple[str, str]:
        """Change an object; return its name and new version."""
        patch = PatchRequest(
            body={"metadata": {"annotations": {"touched": random.randbytes(4).hex()}}}
        )
        answer = await self.kube.patch(resources.RAY_CLUSTER, self.namespace, "steady", patch)
        return "steady", msgspec.json.decode(answer, type=_Answer).metadata.resource_version

    async def taken_over(self, since: float) -> None:
        """Wait until a change of this moment is on the stream, published by the other one."""
        loop = asyncio.get_running_loop()
        received = await self.witness.until_received(*await self.touch(), within=TIMEOUT)
        took = received - since
        print(f"\ntake-over: a change was published {took:.1f} s after the fault")  # noqa: T201  (the figure of this test)
        assert took < TAKE_OVER_SECONDS
        await eventually(
            lambda: self.witness.epoch() is not None,
            within=TIMEOUT,
            what="one epoch in all partitions",
        )
        assert await self.other.leads(self.kube, self.namespace)
        assert loop.time() >= since

    async def agree(self) -> None:
        """Wait until the stream holds what a list holds; nothing ever went back."""
        await witnesses.agree(self.witness, self.kube, self.namespace, KINDS, within=TIMEOUT)
        assert self.witness.regressions == []


@contextlib.asynccontextmanager
async def busy(kube: KubeClient, namespace: str) -> AsyncGenerator[None]:
    """Let objects come, change and go for the length of a block."""
    chance = random.Random(7)

    async def live() -> None:
        number = 0
        while True:
            number += 1
            name = f"c{number % 12}"
            service: Body = {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": f"{name}-head-svc", "labels": {"ray.io/cluster": name}},
                "spec": {"clusterIP": "None", "ports": [{"port": 80}]},
            }
            touched = PatchRequest(body={"metadata": {"annotations": {"number": str(number)}}})
            does: list[Callable[[], Awaitable[bytes]]] = [
                lambda name=name: kube.create(
                    resources.RAY_CLUSTER, namespace, a_ray_cluster(name)
                ),
                lambda body=service: kube.create(resources.SERVICE, namespace, body),
                lambda name=name, patch=touched: kube.patch(
                    resources.RAY_CLUSTER, namespace, name, patch
                ),
                lambda name=name, patch=touched: kube.patch(
                    resources.RAY_CLUSTER, namespace, name, patch
                ),
                lambda name=name: kube.delete(resources.RAY_CLUSTER, namespace, name),
                lambda name=name: kube.delete(resources.SERVICE, namespace, f"{name}-head-svc"),
            ]
            with contextlib.suppress(errors.Retryable):  # it is there already, or gone
                await chance.choice(does)()
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as group:
        living = group.create_task(live())
        try:
            yield
        finally:
            living.cancel()


@contextlib.asynccontextmanager
async def pair(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, folder: Path
) -> AsyncGenerator[Pair]:
    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("steady"))
    async with (
        provisioned(folder) as (secured, bus),
        replica(secured, control_plane.kubeconfig, namespace, folder / "a.kubeconfig") as first,
    ):
        await first.watcher.until_ready(within=TIMEOUT)
        async with (
            witnessed(bus) as witness,
            replica(
                secured, control_plane.kubeconfig, namespace, folder / "b.kubeconfig"
            ) as second,
        ):
            await second.watcher.until_ready(within=TIMEOUT)
            async with busy(kube, namespace):
                yield Pair(
                    leader=first, other=second, witness=witness, kube=kube, namespace=namespace
                )


@pytest.fixture
def now() -> Callable[[], float]:
    return lambda: asyncio.get_running_loop().time()


async def test_a_standby_reports_that_it_is_one(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async with pair(control_plane, kube, namespace, tmp_path) as both:
        status, text = await both.other.watcher.get("/readyz")
        held = f"the Lease {namespace}/ray-operator-leader is held by {both.leader.watcher.name}"
        assert (status, text) == (200, f"standing by: {held}\n")
        assert await both.leader.watcher.get("/readyz") == (200, "ok\n")
        assert (await both.other.watcher.get("/healthz"))[0] == 200
        await both.witness.until_received(*await both.touch(), within=10.0)


async def test_a_leader_that_is_killed_is_replaced(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    now: Callable[[], float],
) -> None:
    async with pair(control_plane, kube, namespace, tmp_path) as both:
        both.leader.watcher.kill()
        await both.taken_over(now())
        await both.agree()


async def test_a_leader_that_is_terminated_hands_over_at_once(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    now: Callable[[], float],
) -> None:
    async with pair(control_plane, kube, namespace, tmp_path) as both:
        began, epoch = now(), both.witness.epoch()
        async with asyncio.timeout(TIMEOUT), asyncio.TaskGroup() as group:
            stopping = group.create_task(asyncio.to_thread(both.leader.watcher.stop))
            while (
                not stopping.done()
            ):  # a change is published at once all the while, by the one or the other
                at = now()
                assert (
                    await both.witness.until_received(*await both.touch(), within=TIMEOUT) - at
                    < 2.0
                )
        assert stopping.result() == 0
        await both.taken_over(began)
        assert both.witness.epoch() == epoch  # no reader loads the state anew
        await both.agree()


async def test_a_leader_that_hangs_is_replaced_and_publishes_nothing_when_it_resumes(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    now: Callable[[], float],
) -> None:
    async with pair(control_plane, kube, namespace, tmp_path) as both:
        both.leader.watcher.freeze()
        await kube.create(
            resources.RAY_CLUSTER, namespace, a_ray_cluster("ghost")
        )  # only the sleeper's socket receives it
        await kube.delete(resources.RAY_CLUSTER, namespace, "ghost")
        await both.taken_over(now())

        both.leader.watcher.thaw()
        await eventually_true(
            lambda: _stands_by(both.leader), within=TIMEOUT, what="an old leader that stands by"
        )
        await both.agree()
        assert "ghost" not in {name for _, name, _ in both.witness.shown()}


async def test_a_leader_without_the_api_server_is_replaced(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    now: Callable[[], float],
) -> None:
    async with pair(control_plane, kube, namespace, tmp_path) as both:
        both.leader.to_api.swallow()
        await both.taken_over(now())
        await eventually_true(
            lambda: _is_unready(both.leader), within=TIMEOUT, what="an unready old leader"
        )

        both.leader.to_api.restore()
        await both.leader.watcher.until_ready(within=TIMEOUT)
        await both.agree()


async def test_a_leader_without_nats_makes_room(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    now: Callable[[], float],
) -> None:
    async with pair(control_plane, kube, namespace, tmp_path) as both:
        both.leader.to_nats.swallow()
        await both.taken_over(now())
        await eventually_true(
            lambda: _is_unready(both.leader), within=TIMEOUT, what="an unready old leader"
        )

        both.leader.to_nats.restore()
        await eventually_true(
            lambda: _stands_by(both.leader), within=TIMEOUT, what="an old leader that stands by"
        )
        await both.agree()


async def test_without_nats_nobody_else_gets_the_lease(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async with pair(control_plane, kube, namespace, tmp_path) as both:
        for each in (both.leader, both.other):
            each.to_nats.swallow()

        async def yields() -> bool:
            lease = msgspec.json.decode(
                await kube.get(resources.LEASE, namespace, "ray-operator-leader")
            )
            return bool(
                lease["metadata"]["annotations"]["raybus.io/watcher"]
                == f"{both.leader.watcher.name} yields"
            )

        await eventually_true(yields, within=TIMEOUT, every=0.1, what="the message that it yields")
        assert await both.leader.leads(kube, namespace), (
            "KubeRay would take a Lease that nobody holds"
        )

        for each in (both.leader, both.other):
            each.to_nats.restore()
        await both.witness.until_received(*await both.touch(), within=TIMEOUT)
        await both.agree()


async def test_they_change_places_again_and_again(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
    now: Callable[[], float],
) -> None:
    async with pair(control_plane, kube, namespace, tmp_path) as both:
        for _ in range(3):
            began = now()
            assert await asyncio.to_thread(both.leader.watcher.stop) == 0
            await both.taken_over(began)
            both.leader.watcher.start()
            await both.leader.watcher.until_ready(within=TIMEOUT)
            both = msgspec.structs.replace(both, leader=both.other, other=both.leader)  # noqa: PLW2901  (they changed places)
        await both.agree()


async def test_a_foreign_write_is_corrected(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async with (
        provisioned(tmp_path) as (secured, bus),
        replica(secured, control_plane.kubeconfig, namespace, tmp_path / "a.kubeconfig") as only,
        connect(secured.settings("watcher")) as late,
    ):
        await only.watcher.until_ready(within=TIMEOUT)
        async with witnessed(bus) as witness:
            await eventually(
                lambda: witness.epoch() is not None, within=TIMEOUT, what="the first epoch"
            )
            first = witness.epoch()
            ghost = ObjectState(
                kind="RayCluster",
                namespace=namespace,
                name="ghost",
                uid="u",
                version="1",
                form="1",
                body=b"{}",
            )
            wire = messages.encode(ghost)
            where = subjects.build_state_subject(
                TreeLocation(5, TreeKind.CLUSTER), "RayCluster", namespace, "ghost"
            )
            await late.publish(where, wire.payload, wire.headers, expected=0, message_id="late")
            await eventually(
                lambda: isinstance(witness.last.get(where), Tombstone),
                within=TIMEOUT,
                what="its end",
            )
            await eventually(
                lambda: witness.epoch() not in {None, first}, within=TIMEOUT, what="another epoch"
            )

            second = witness.epoch()
            marker = messages.encode(Synced(epoch="of-a-sleeper", version=1))
            await late.publish(
                subjects.build_marker_subject(5),
                marker.payload,
                marker.headers,
                expected=None,
                message_id="later",
            )
            await eventually(
                lambda: witness.epoch() not in {None, first, second},
                within=TIMEOUT,
                what="one epoch again",
            )


async def _is_unready(each: Replica) -> bool:
    return (await each.watcher.get("/readyz"))[0] == 503


async def _stands_by(replica: Replica) -> bool:
    return (await replica.watcher.get("/readyz"))[1].startswith("standing by")
