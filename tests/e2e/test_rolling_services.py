"""All five services are rolled to another build and back while a RayService is upgraded in steps
and a RayCluster is scaled, under load.

10 requests a second and one of 8 s every 2 s go through the gateway; nothing is sent a second time.
`make e2e-rolling`; the figures go to build/rolling.txt. The other build has messages of another
major, which this one does not read, nor it ours; with `RAYBUS_EARLIER_CHECKOUT`, a folder with an
older commit, that one follows.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, suppress
from functools import partial
from itertools import cycle, pairwise
from pathlib import Path
from typing import Final

import msgspec
import pytest
import pytest_asyncio

from chaos.checker import history as checker
from chaos.checker.evidence import HEAD
from chaos.evidence_room import EvidenceStore
from common import errors, labels
from common.api.core import Pod
from common.kube.client import PatchRequest
from common.kube.resources import RAY_CLUSTER
from localcluster.demo import demo_cluster, tally
from localcluster.demo.cluster_state import NAMESPACE as SERVICE_NAMESPACE
from localcluster.demo.cluster_state import RAYBUS_NAMESPACE
from localcluster.demo.tally import LoadAnswer, UpgradeWindow
from localcluster.driver import ClusterRecord
from support.waiting import eventually, eventually_true

from . import other_images, raybus, upgrade_status
from .conftest import Rig
from .greeter import Greeter, Options, serving_in_steps, settle, show
from .other_images import OtherBuild
from .ray_cluster import NAMESPACE, a_cluster, a_group, running

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.rolling]

FIGURES: Final = Path(__file__).parents[2] / "build" / "rolling.txt"
OPTIONS: Final = Options(interval=5)
UPGRADES: Final = 2
"""Upgrades of the RayService for each other build."""
CLUSTER: Final = "scaled"
GROUP: Final = "workers"
RATE: Final = 10.0
"""Short requests a second: with 40, two processors that start Ray and eight processes at once answer half of them too late."""
SIZES: Final = (2, 3, 1)
"""Workers that the RayCluster is asked for, by turns; it begins with one."""
PAUSE: Final = 20.0
"""Seconds between a change of the RayCluster that is carried out and the next one: to start Ray in a pod takes some 6 s of a processor."""
REST: Final = 10.0
"""Seconds between two rolls, which start eight processes each."""
ROLL_SECONDS: Final = 240
CHANGE_SECONDS: Final = 180
"""A change of the RayCluster is carried out in this time. No measurement: nothing is decided until the pods of the new build run."""


class Roll(msgspec.Struct, frozen=True, kw_only=True):
    """One replacement of all five services."""

    forward: bool
    seconds: float
    """From the first command until only pods of the new images were there, all ready."""


class Figures(msgspec.Struct, kw_only=True):
    """What one run came to."""

    build: str
    answers: list[LoadAnswer] = []
    window: UpgradeWindow = UpgradeWindow()
    rolls: list[Roll] = []
    upgrades: list[float] = []
    """Seconds from each changed spec to the end of the old cluster's pods."""
    waits: list[float] = []
    """Seconds from each change of the RayCluster's size until so many workers were there."""
    wanted: int = 0
    """Pods that the RayCluster was asked for, one after the other."""
    made: int = 0
    """Pods that it ever had."""
    clusters: int = 0
    """Clusters that the RayService ever had, the first one included."""
    heads: int = 0
    """Head pods that there ever were, that of the RayCluster included."""
    restarts: dict[str, int] = {}
    """Restarts of containers of raybus, by pod."""

    def __str__(self) -> str:
        found = tally.count(self.answers, self.window)
        p99 = {each.phase: each.p99_ms for each in found.phases}
        back = [each.seconds for each in self.rolls if not each.forward]
        lines = [
            f"{self.build}:",
            f"requests {found.requests}, failed {found.failed}, sent again {found.retried}",
            f"p99 of short requests {p99['before']} ms before, {p99['during']} ms meanwhile, {p99['after']} ms after",
            f"rolls of five services: {len(self.rolls) - len(back)} forward in {_spread([each.seconds for each in self.rolls if each.forward])}, "
            f"{len(back)} back in {_spread(back)}",
            f"upgrades promoted: {len(self.upgrades)} in {_spread(self.upgrades)}; clusters of the service: {self.clusters}; "
            f"heads: {self.heads}",
            f"changes of the RayCluster: {len(self.waits)}, carried out within {max(self.waits, default=0):.1f} s; "
            f"pods wanted {self.wanted}, made {self.made}",
            f"containers of raybus that restarted: {sum(self.restarts.values())}",
        ]
        return "\n    ".join(lines)


@pytest.fixture(scope="module")
def table() -> Generator[list[Figures]]:
    """Collect the figures of all runs, and print them at the end."""
    found: list[Figures] = []
    yield found
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text("".join(f"{each}\n" for each in found))


@pytest.fixture(scope="module", params=other_images.all_of_them(), ids=lambda build: build.name)
def other(
    request: pytest.FixtureRequest, known: ClusterRecord, tmp_path_factory: pytest.TempPathFactory
) -> OtherBuild:
    """Another build, with images on the node."""
    build: OtherBuild = request.param
    demo_cluster.load_images(
        other_images.archives(build, tmp_path_factory.mktemp(build.tag)), known.name
    )
    return build


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def service(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with upgrades in steps; requests may take as long as they like."""
    async with serving_in_steps(rig, OPTIONS) as greeter:
        yield greeter


async def test_no_request_fails_and_no_pod_is_made_twice_whichever_builds_run(
    rig: Rig, service: Greeter, other: OtherBuild, table: list[Figures]
) -> None:
    began = time.monotonic()
    room = EvidenceStore(lambda: time.monotonic() - began)
    figures = Figures(build=other.name)
    table.append(figures)
    try:
        async with (
            asyncio.timeout(1500),
            scaled(rig),
            room.open(rig.kube),
            service.followed() as moments,
            service.under_load(rate=RATE, think="8", seconds=1800.0) as answers,
        ):
            figures.answers = answers
            await settle(answers, more=100)
            await roll_while_upgraded_and_scaled(rig, service, other, room, figures)
            await settle(answers, more=100)
    finally:
        count_pods(room, figures)
        show("", figures)
        await rig.scenario().install()  # this build again, if the test ended in between
    failed = [each for each in answers if each.failed or each.retries]
    assert not failed, "\n".join(map(str, [*failed[:40], *moments]))
    assert checker.judge(room.seen) == []
    assert (figures.made, figures.clusters, figures.heads) == (
        figures.wanted,
        1 + UPGRADES,
        2 + UPGRADES,
    )
    assert {pod: number for pod, number in figures.restarts.items() if number} == {}
    upgrade_status.expect_sound(moments, surge=OPTIONS.surge)
    assert {each.forward for each in figures.rolls} == {True, False}
    assert len(answers) >= 1500, f"only {len(answers)} requests were sent"


async def roll_while_upgraded_and_scaled(
    rig: Rig, service: Greeter, other: OtherBuild, room: EvidenceStore, figures: Figures
) -> None:
    """Upgrade the service, and roll, scale and watch until that is done; all ends with this build."""
    over = asyncio.Event()
    figures.window = UpgradeWindow(began=time.time())  # noqa: TID251  (compared with the load's wall clock)
    async with asyncio.TaskGroup() as group:
        watching = group.create_task(watch(rig, figures))
        async with asyncio.TaskGroup() as changes:
            changes.create_task(roll_until(over, rig, other, figures))
            changes.create_task(scale_until(over, rig, room, figures))
            for _ in range(UPGRADES):
                began = room.now()
                await service.wait_for_promotion(await service.upgrade(OPTIONS), within=500)
                figures.upgrades.append(room.now() - began)
            over.set()
        watching.cancel()
    figures.window = msgspec.structs.replace(figures.window, ended=time.time())  # noqa: TID251  (as above)


async def roll_until(over: asyncio.Event, rig: Rig, other: OtherBuild, figures: Figures) -> None:
    """Roll all services forward and back until all is over."""
    while not over.is_set():
        for build in (other, None):
            began = time.monotonic()
            await roll(rig, build)
            done = Roll(forward=build is not None, seconds=round(time.monotonic() - began, 1))
            figures.rolls.append(done)
            show("", done)
            await asyncio.sleep(REST)


async def roll(rig: Rig, build: OtherBuild | None) -> None:
    """Replace all five services at once by those of another build; None takes that back."""
    # As docs/how-to/upgrade.md has it: the watcher first, and last on the way back. Nothing waits for the one before.
    for service in raybus.SERVICES if build else reversed(raybus.SERVICES):
        arguments = ("rollout", "undo", f"deployment/{service}")
        if build is not None:
            arguments = (
                "set",
                "image",
                f"deployment/{service}",
                f"{service}={build.image(service)}",
            )
        await rig.kubectl.run("-n", RAYBUS_NAMESPACE, *arguments)
    for service in raybus.SERVICES:
        await rig.kubectl.run(
            "-n",
            RAYBUS_NAMESPACE,
            "rollout",
            "status",
            f"deployment/{service}",
            f"--timeout={ROLL_SECONDS}s",
        )

    async def is_alone() -> bool:
        found: list[Pod] = []
        with suppress(errors.Unavailable):
            found = await raybus.pods(rig)
        pods = [
            pod for pod in found if pod.metadata.labels["app.kubernetes.io/name"] in raybus.SERVICES
        ]
        return bool(pods) and all(
            pod.is_running_and_ready and pod.spec.containers[0].image == wanted(pod) for pod in pods
        )

    def wanted(pod: Pod) -> str:
        service = pod.metadata.labels["app.kubernetes.io/name"]
        return other_images.this_image(service) if build is None else build.image(service)

    await eventually_true(is_alone, within=60, what="the pods of the build before going")


async def scale_until(over: asyncio.Event, rig: Rig, room: EvidenceStore, figures: Figures) -> None:
    """Change the RayCluster's size until all is over; each change is carried out before the next."""
    figures.wanted = 2
    for before, workers in pairwise(cycle((SIZES[-1], *SIZES[:-1]))):
        if over.is_set():
            return
        began = room.now()
        await eventually_true(
            partial(ask_for, rig, workers), within=CHANGE_SECONDS, what="an answer to a change"
        )
        what = f"{workers} workers after {before}"
        await eventually(partial(has, room, workers), within=CHANGE_SECONDS, what=what)
        figures.waits.append(room.now() - began)
        figures.wanted += max(0, workers - before)
        await asyncio.sleep(PAUSE)


async def ask_for(rig: Rig, workers: int) -> bool:
    """Change the RayCluster's size; return whether the API server has answered."""
    change = [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": workers}]
    patch = PatchRequest(body=change, content_type="application/json-patch+json")
    with suppress(errors.Unavailable):
        await rig.kube.patch(RAY_CLUSTER, NAMESPACE, CLUSTER, patch)
        return True
    return False


def has(room: EvidenceStore, workers: int) -> bool:
    """Return whether the RayCluster has so many workers."""
    pods = [pod.label for pod in room.living("Pod", NAMESPACE)]
    return (
        sum(
            each.get(labels.CLUSTER) == CLUSTER and each.get(labels.GROUP) == GROUP for each in pods
        )
        == workers
    )


async def watch(rig: Rig, figures: Figures) -> None:
    """Note restarts of raybus' containers until cancelled."""
    while True:
        with suppress(errors.Unavailable):
            for pod in await raybus.pods(rig):
                restarts = sum(each.restart_count for each in pod.status.container_statuses)
                figures.restarts[pod.metadata.name] = max(
                    restarts, figures.restarts.get(pod.metadata.name, 0)
                )
        await asyncio.sleep(1)


def count_pods(room: EvidenceStore, figures: Figures) -> None:
    """Count what there ever was."""
    pods = {each.object.metadata.uid: each.object for each in room.seen if each.kind == "Pod"}
    figures.made = sum(pod.label.get(labels.CLUSTER) == CLUSTER for pod in pods.values())
    clusters = {
        each.object.metadata.uid: each.object for each in room.seen if each.kind == "RayCluster"
    }
    figures.clusters = sum(
        each.metadata.namespace == SERVICE_NAMESPACE for each in clusters.values()
    )
    figures.heads = sum(pod.label.get(labels.NODE_TYPE) == HEAD for pod in pods.values())


@asynccontextmanager
async def scaled(rig: Rig) -> AsyncGenerator[None]:
    """A RayCluster of one worker beside the service."""
    body = a_cluster(CLUSTER, a_group(GROUP, maxReplicas=max(SIZES)))
    for group in (body["spec"]["headGroupSpec"], *body["spec"]["workerGroupSpecs"]):
        # Nothing is served here: what is served has a claim to twenty times as much of the two processors.
        group["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "10m"
    async with running(rig, body, within=1500) as cluster:
        await cluster.wait_for(**{GROUP: 1})
        yield


def _spread(seconds: list[float]) -> str:
    return f"{min(seconds, default=0):.1f} to {max(seconds, default=0):.1f} s"
