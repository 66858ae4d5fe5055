"""Three NATS servers are restarted in turn under load.

A real watcher publishes, a reader follows, and a ledger knows all written versions. Whenever the
reader may decide, it must know every object in the state that the watcher's list had, or a newer
one. So nothing is lost, nothing regresses, and no decision rests on an incomplete state. The times
without a complete state are printed.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from common import errors
from common.bus import streams
from common.bus.messages import ObjectMessage
from common.bus.nats import connect
from common.bus.state_feed import StateFeed
from common.kube import resources
from common.kube.client import KubeClient, PatchRequest
from localcluster.control_plane import ControlPlane
from nats_admin import stream_keeper
from support.builders.manifests import a_ray_cluster
from support.fakes.listener import Recorder
from support.following import follow_as_one
from support.servers.nats_cluster import NatsCluster, nats_cluster
from support.servers.relayed import EVERYTHING, Watcher
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration, pytest.mark.long]

OBJECTS: Final = 20
TIMEOUT: Final = 180.0
"""Seconds until the first load: a starting watcher on a machine that is busy with other things."""
PAUSE: Final = 0.05
"""Seconds between two changes: about 15 a second."""
STEPPED_DOWN: Final = 30.0
"""Maximum seconds for which a reader may lack the state when a server hands over.

An idle machine needs two."""
ELECTION: Final = 60.0
"""Maximum seconds for which a reader may lack the state when a leader is killed.

On an idle machine the election takes 5 to 8 s; the watcher's next session follows."""


class Ledger(Recorder):
    """A reader that is checked against all written versions whenever it may decide."""

    def __init__(self) -> None:
        super().__init__()
        self.written: dict[str, list[int]] = {}
        """Every version of each object, as the API server numbered them."""
        self.wrong: list[str] = []
        self.gaps: list[float] = []
        self._since: float | None = None

    def loading(self, reason: str) -> None:
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
        super().loading(reason)

    def synced(self, version: int) -> None:
        super().synced(version)
        if self._since is not None:
            self.gaps.append(asyncio.get_running_loop().time() - self._since)
        self._since = None
        for name, versions in self.written.items():
            listed = max((each for each in versions if each <= version), default=0)
            if self.version_of(name) < listed:
                self.wrong.append(
                    f"{name} is {self.version_of(name)}, the list at {version} had {listed}"
                )

    def take(self, message: ObjectMessage, *, trace: str) -> None:
        before = dict(self.objects)
        super().take(message, trace=trace)
        for key, found in self.objects.items():
            old = before.get(key)
            if old is not None and version(found) < version(old):
                self.wrong.append(f"{key} went back from {version(old)} to {version(found)}")

    def version_of(self, name: str) -> int:
        return next(
            (version(found) for (_, _, known), found in self.objects.items() if known == name), 0
        )

    def is_even(self) -> bool:
        """Return whether the newest version of every object is known."""
        return self.is_synced and all(
            self.version_of(name) == versions[-1] for name, versions in self.written.items()
        )


class Harness(msgspec.Struct, frozen=True, kw_only=True):
    """The servers, the reader and the watcher."""

    nats: NatsCluster
    reader: Ledger
    watcher: Watcher


def version(found: dict[str, Any]) -> int:
    return int(found["metadata"]["resourceVersion"])


async def load(kube: KubeClient, namespace: str, ledger: Ledger) -> None:
    """Change one object after the other until cancelled."""
    for number, name in zip(count(), cycle(list(ledger.written))):
        change = {"metadata": {"annotations": {"changed": str(number)}}}
        answer = await kube.patch(resources.RAY_CLUSTER, namespace, name, PatchRequest(body=change))
        ledger.written[name].append(version(msgspec.json.decode(answer, type=dict[str, Any])))
        await asyncio.sleep(PAUSE)


@asynccontextmanager
async def under_load(
    folder: Path, control_plane: ControlPlane, kube: KubeClient, namespace: str
) -> AsyncGenerator[Harness]:
    async with (
        nats_cluster(folder) as cluster,
        connect(cluster.settings("cluster-reconciler")) as bus,
    ):
        watcher, reader = Watcher(cluster, control_plane.kubeconfig, namespace), Ledger()
        for number in range(OBJECTS):
            name = f"demo-{number}"
            answer = await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster(name))
            reader.written[name] = [version(msgspec.json.decode(answer, type=dict[str, Any]))]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(follow_as_one(StateFeed(bus, reader="test"), EVERYTHING, reader))
            ]
            watcher.start()
            try:
                await eventually(reader.is_even, within=TIMEOUT, what="the first load")
                changing = group.create_task(load(kube, namespace, reader))
                yield Harness(nats=cluster, reader=reader, watcher=watcher)
                changing.cancel()
                await eventually(
                    reader.is_even, within=TIMEOUT, what="the newest version of everything"
                )
            finally:
                watcher.kill()
                for task in tasks:
                    task.cancel()
    assert reader.wrong == []
    changes = sum(len(versions) for versions in reader.written.values())
    reported = ", ".join(f"{gap:.1f}" for gap in reader.gaps[1:])
    gaps = f"the reader was without the state {len(reader.gaps) - 1} times: {reported} s"
    print(f"{changes} changes, 0 lost; {gaps}")  # noqa: T201  (the figures that the test is about)


async def until_written_anew(harness: Harness) -> None:
    """Wait until a change that is made from now on is known to the reader."""
    known = {name: versions[-1] for name, versions in harness.reader.written.items()}
    await eventually(
        lambda: (
            harness.reader.is_synced
            and any(harness.reader.version_of(name) > known[name] for name in known)
        ),
        within=TIMEOUT,
        what="a change",
    )


async def test_servers_are_replaced_one_after_the_other(
    tmp_path: Path, control_plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    async with (
        under_load(tmp_path, control_plane, kube, namespace) as harness,
        connect(harness.nats.settings("keeper")) as bus,
    ):
        for server in harness.nats.servers:
            await asyncio.to_thread(server.retire)
            await asyncio.to_thread(server.start)
            await bus.session()
            await harness.nats.until_whole(bus, "RAY_STATE")
        await eventually(lambda: harness.reader.is_synced, within=TIMEOUT, what="the reader's load")
    assert max(harness.reader.gaps[1:], default=0.0) < STEPPED_DOWN


async def test_the_leader_of_the_stream_is_killed(
    tmp_path: Path, control_plane: ControlPlane, kube: KubeClient, namespace: str
) -> None:
    async with (
        under_load(tmp_path, control_plane, kube, namespace) as harness,
        connect(harness.nats.settings("keeper")) as bus,
    ):
        await bus.session()
        leader = await harness.nats.leader(bus, "RAY_STATE")
        assert leader is not None

        async def another_leads() -> bool:
            await bus.session()
            try:
                return await harness.nats.leader(bus, "RAY_STATE") not in {None, leader}
            except errors.Retryable:
                return False

        loop = asyncio.get_running_loop()
        killed_at = loop.time()
        leader.kill()
        await eventually_true(another_leads, within=ELECTION, every=0.1, what="another leader")
        elected_at = loop.time()
        await until_written_anew(harness)
        elected, arrived = elected_at - killed_at, loop.time() - killed_at
        print(f"another leader after {elected:.1f} s, changes arrive again after {arrived:.1f} s")  # noqa: T201  (figures)
        await asyncio.to_thread(leader.start)
        await harness.nats.until_whole(bus, "RAY_STATE")
    assert max(harness.reader.gaps[1:], default=0.0) < ELECTION


async def test_a_stream_on_one_server_is_spread_over_three_and_keeps_what_it_holds(
    tmp_path: Path,
) -> None:
    async with (
        nats_cluster(tmp_path) as cluster,
        connect(cluster.settings("provisioner")) as provisioner,
    ):
        await provisioner.session()
        assert (
            await stream_keeper.ensure_streams(
                provisioner, [streams.build_state_config(replicas=1)], may_change=True
            )
            == []
        )
        async with connect(cluster.settings("watcher")) as bus:
            await bus.session()
            await bus.publish("ray.state.3.pod.ns.one", b"{}", {}, expected=None, message_id="one")

        assert await stream_keeper.ensure_streams(
            provisioner, [streams.build_state_config(replicas=3)]
        ) == ["stream RAY_STATE: num_replicas is 1, must be 3"]
        assert (
            await stream_keeper.ensure_streams(
                provisioner, [streams.build_state_config(replicas=3)], may_change=True
            )
            == []
        )
        await cluster.until_whole(provisioner, "RAY_STATE")
        assert (await provisioner.stream("RAY_STATE")).state.messages == 1
