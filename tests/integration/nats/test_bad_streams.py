"""A state stream with a wrong configuration, or of another installation.

The tests check `/readyz` of a real watcher, and the behaviour of readers.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from prometheus_client import REGISTRY

from common.bus import feed, streams, subjects
from common.bus.nats import Bus, connect
from common.bus.state_feed import StateFeed
from common.kube import resources
from common.kube.client import KubeClient
from common.kube.installation import Installation
from common.settings import Settings
from localcluster.control_plane import ControlPlane
from support.builders.manifests import a_ray_cluster
from support.fakes.listener import Recorder
from support.following import follow_as_one
from support.servers.nats import nats_server
from support.servers.relayed import EVERYTHING, Watcher
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration]

SLOW: Final = 120.0
"""Seconds that a busy machine may take to start a watcher."""


class Open:
    """A server without users: every client may do everything, as where a user brings another NATS."""

    def __init__(self, url: str) -> None:
        self._url = url

    def settings(self, user: str) -> Settings:
        return Settings(service=user, nats_url=self._url)


@asynccontextmanager
async def open_nats(folder: Path) -> AsyncGenerator[tuple[Open, Bus]]:
    with nats_server(folder) as server:
        access = Open(server.url)
        async with connect(access.settings("admin")) as bus:
            await bus.session()
            yield access, bus


async def until_unready(watcher: Watcher, text: str) -> str:
    """Wait until readiness contains a text; return all of it."""
    answers: list[str] = []

    async def is_reported() -> bool:
        answers.append((await watcher.get("/readyz"))[1])
        return text in answers[-1]

    try:
        await eventually_true(is_reported, within=SLOW, every=0.1, what=text)
    except AssertionError as problem:
        raise AssertionError(f"{problem}; readiness is {answers[-1]!r}") from problem
    return answers[-1].strip()


async def make(bus: Bus, **fields: object) -> None:
    await bus.api(
        "STREAM.CREATE.RAY_STATE", {**streams.build_state_config(), **fields}, dict[str, Any]
    )


async def test_readiness_names_what_is_wrong_with_the_stream_until_it_is_set_right(
    control_plane: ControlPlane, namespace: str, tmp_path: Path
) -> None:
    async with open_nats(tmp_path) as (access, bus):
        watcher = Watcher(access, control_plane.kubeconfig, namespace)
        watcher.start()
        try:
            problem = await until_unready(watcher, "RAY_STATE: stream not found")
            assert problem == (
                "NATS refused STREAM.INFO.RAY_STATE: stream not found (10059); "
                "the provisioner beside the server makes it; see its log"
            )

            await make(bus, max_bytes=1_000_000, max_msgs_per_subject=5)
            problem = await until_unready(watcher, "max_bytes")
            assert problem == (
                "stream RAY_STATE: max_msgs_per_subject is 5, must be 1; max_bytes is 1000000, must be -1; "
                "`python -m nats_admin.provision streams` changes it, or delete it: it is made anew and filled again"
            )

            await bus.api("STREAM.UPDATE.RAY_STATE", streams.build_state_config(), dict[str, Any])
            await watcher.until_ready(within=SLOW)

            await bus.api(
                "STREAM.UPDATE.RAY_STATE",
                {**streams.build_state_config(), "sealed": True},
                dict[str, Any],
            )
            assert "sealed is True, must be False" in await until_unready(watcher, "sealed")

            await bus.api("STREAM.DELETE.RAY_STATE", None, dict[str, Any])
            await make(bus)
            await watcher.until_ready(within=SLOW)
        finally:
            watcher.kill()


async def test_a_second_installation_on_the_same_stream_is_refused(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    ours, theirs = (
        await Installation(kube, namespace).read_identity(),
        await Installation(kube, "other").read_identity(),
    )
    async with open_nats(tmp_path) as (access, bus), asyncio.TaskGroup() as group:
        await make(bus)
        await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("ours"))
        first, second = (
            Watcher(access, control_plane.kubeconfig, namespace),
            Watcher(access, control_plane.kubeconfig, "default"),
        )
        readers = {name: Recorder() for name in (ours, theirs)}
        feeds = {name: StateFeed(bus, reader="test", installation=name) for name in readers}
        tasks = [
            group.create_task(follow_as_one(feeds[name], EVERYTHING, readers[name]))
            for name in readers
        ]
        try:
            first.start()
            await eventually(
                lambda: readers[ours].knows("RayCluster", "ours"), within=SLOW, what="our cluster"
            )
            second.start()
            problem = await until_unready(second, feed.FOREIGN)
            assert problem == feed.explain_foreign_epoch(
                f"{ours}/x", f"{ours.partition('/')[0]}/default"
            )
            assert problem.endswith("or delete the stream RAY_STATE if the other one is gone")

            await eventually(
                lambda: feeds[theirs].problem, within=SLOW, what="the reader's refusal"
            )
            assert readers[theirs].syncs == []
            assert (await first.get("/readyz"))[0] == 200
            assert readers[ours].knows("RayCluster", "ours")
        finally:
            for watcher in (first, second):
                watcher.kill()
            for task in tasks:
                task.cancel()


async def test_an_undecodable_message_is_skipped_and_replaced(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    async with open_nats(tmp_path) as (access, bus), asyncio.TaskGroup() as group:
        await make(bus)
        await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster("name.with.dots"))
        watcher, reader = Watcher(access, control_plane.kubeconfig, namespace), Recorder()
        following = group.create_task(
            follow_as_one(StateFeed(bus, reader="test"), EVERYTHING, reader)
        )
        try:
            watcher.start()
            await eventually(
                lambda: reader.knows("RayCluster", "name.with.dots"),
                within=SLOW,
                what="the cluster",
            )
            subject = next(iter(await held(bus, namespace)))
            assert subject.endswith(".name_with_dots")

            before = skipped()
            await bus.publish(subject, b"\xff nonsense", {}, expected=None, message_id="nonsense")
            await eventually(
                lambda: skipped() > before, within=SLOW, what="the count of skipped messages"
            )

            async def is_replaced() -> bool:
                found = await bus.last(subjects.STATE_STREAM, subject)
                return found is not None and found.headers.get("Raybus-Kind") == "RayCluster"

            await eventually_true(
                is_replaced, within=SLOW, every=0.1, what="the object in its place"
            )
            await eventually(
                lambda: reader.knows("RayCluster", "name.with.dots"), within=SLOW, what="the reload"
            )
        finally:
            watcher.kill()
            following.cancel()


def skipped() -> float:
    """Return how many messages readers of this process did not understand."""
    return (
        REGISTRY.get_sample_value(
            "raybus_undecodable_messages_total", {"controller": "feed", "kind": ""}
        )
        or 0.0
    )


async def held(bus: Bus, namespace: str) -> dict[str, int]:
    """Return the subjects of a namespace's RayClusters."""
    request = {"subjects_filter": f"ray.state.*.cluster.raycluster.{namespace}.>"}
    info = await bus.api("STREAM.INFO.RAY_STATE", request, dict[str, Any])
    return info["state"]["subjects"]
