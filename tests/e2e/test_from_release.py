"""raybus is upgraded from the release 0.1.0 to this build and back under load.

Each time a RayService is being upgraded in steps.

`make e2e-rolling`; the figures go to build/from-release.txt. The images of 0.1.0 are built from its
commit by its own Dockerfile, and its own manifests install them. 0.1.0 has four services: the
upgrade adds job-reconciler, with the CRDs of its kinds, and the way back removes it. The commands
are those of docs/installation.md.
"""

import asyncio
import os
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec
import pytest
import pytest_asyncio
import yaml

from common import errors
from localcluster.demo import demo_cluster, tally
from localcluster.demo.cluster_state import RAYBUS_NAMESPACE
from localcluster.demo.tally import LoadAnswer, UpgradeWindow
from localcluster.driver import ClusterRecord
from support import first_release, manifests
from support.waiting import eventually_true

from . import other_images, raybus, upgrade_status
from .conftest import DEPLOY, OVERLAY, Rig
from .greeter import Greeter, Options, serving_in_steps, settle, show
from .other_images import OtherBuild

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.rolling]

FIGURES: Final = Path(__file__).parents[2] / "build" / "from-release.txt"
OPTIONS: Final = Options(interval=15)
RATE: Final = 10.0
"""Short requests a second, as in the test of rolled services."""
NEW_CRDS: Final = ("rayjobs.ray.io", "raycronjobs.ray.io")
"""The CRDs that 0.1.0 lacks."""
NEW_OBJECTS: Final = "deployment,service,serviceaccount,poddisruptionbudget"
"""The kinds of the objects of job-reconciler in the namespace of raybus."""
LOCAL: Final = DEPLOY / "overlays" / "local"
READY_SECONDS: Final = 240


class Figures(msgspec.Struct, kw_only=True):
    """What the run showed."""

    answers: list[LoadAnswer] = []
    window: UpgradeWindow = UpgradeWindow()
    seconds: dict[str, float] = {}
    """Seconds from the first command of each replacement until only its pods run, all ready."""
    shares: dict[str, tuple[int, int]] = {}
    """The new cluster's percentage of the traffic when each replacement began and ended."""
    promoted: list[float] = []
    """Seconds from each changed RayService to the end of the old cluster's pods."""
    clusters: set[str] = set()
    """RayClusters of the RayService that ever existed."""
    ray_pods: dict[str, int] = {}
    """Restarts of the containers of each Ray pod, by its name and uid."""
    restarts: dict[str, int] = {}
    """Restarts of the containers of each pod of raybus, by its name."""

    def __str__(self) -> str:
        counted = tally.count(self.answers, self.window)
        p99 = {phase.phase: phase.p99_ms for phase in counted.phases}
        rows = [
            f"requests {counted.requests}, failed {counted.failed}, sent again {counted.retried}",
            f"p99 of short requests {p99['before']} ms before, {p99['during']} ms meanwhile, "
            f"{p99['after']} ms after",
            *(
                f"{name}: {seconds:.1f} s, share of the new cluster {self.shares.get(name)} %"
                for name, seconds in self.seconds.items()
            ),
            f"upgrades promoted: {[round(seconds, 1) for seconds in self.promoted]} s",
            f"RayClusters {len(self.clusters)}, Ray pods {len(self.ray_pods)}, "
            f"their restarts {sum(self.ray_pods.values())}",
            f"restarts of raybus's containers {sum(self.restarts.values())} in "
            f"{len(self.restarts)} pods",
        ]
        return "\n    ".join(rows)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def release(
    rig: Rig, known: ClusterRecord, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Path]:
    """Install 0.1.0 in place of the rig's raybus; provide the overlay that was applied."""
    checkout = tmp_path_factory.mktemp("checkout")
    first_release.unpack(checkout)
    build = OtherBuild(
        name=f"the release {first_release.VERSION}",
        tag="first-release",
        checkout=checkout,
        services=first_release.SERVICES,
    )
    archives = other_images.archives(build, tmp_path_factory.mktemp("images"))
    demo_cluster.load_images(archives, known.name)
    overlay = tmp_path_factory.mktemp("overlay")
    write_overlay(overlay, checkout, build)
    remove = ("--ignore-not-found", "--timeout=180s")
    await rig.kubectl.run("delete", "-k", str(OVERLAY), *remove)
    await rig.kubectl.run("delete", "crd", *NEW_CRDS, *remove)
    try:
        crds = str(checkout / "deploy/crds")
        await rig.kubectl.run("apply", "--server-side", "--force-conflicts", "-k", crds)
        await install(rig, overlay, first_release.SERVICES)
        yield overlay
    finally:
        await rig.kubectl.run("delete", "namespace", RAYBUS_NAMESPACE, *remove)
        await rig.scenario().install()


def write_overlay(folder: Path, checkout: Path, build: OtherBuild) -> None:
    """Write an overlay of the release's own manifests with the images that the node has."""
    names = [build.image(service).rpartition(":")[0] for service in build.services]
    content = {
        "resources": [os.path.relpath(checkout / "deploy/overlays/local", folder.resolve())],
        "images": [{"name": name, "newTag": build.tag} for name in names],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(content))


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def service(rig: Rig, release: Path) -> AsyncGenerator[Greeter]:
    """A RayService with upgrades in steps, which 0.1.0 has started."""
    async with serving_in_steps(rig, OPTIONS) as greeter:
        yield greeter


async def test_no_request_fails_while_raybus_is_upgraded_from_the_release_and_back(
    rig: Rig, release: Path, service: Greeter
) -> None:
    figures = Figures()
    try:
        async with (
            asyncio.timeout(1200),
            service.followed() as moments,
            service.under_load(rate=RATE, think="8", seconds=1800.0) as answers,
        ):
            figures.answers = answers
            await settle(answers, more=100)
            began = time.time()  # noqa: TID251  (compared with the load's wall clock)
            async with asyncio.TaskGroup() as group:
                watching = group.create_task(watch(rig, service, figures))
                await upgrade_meanwhile(rig, service, release, figures)
                await list_present(rig, service, figures)
                watching.cancel()
            ended = time.time()  # noqa: TID251  (as above)
            figures.window = UpgradeWindow(began=began, ended=ended)
            await settle(answers, more=100)
    finally:
        show("from the release and back:", figures)
        FIGURES.parent.mkdir(parents=True, exist_ok=True)
        FIGURES.write_text(f"{figures}\n")
    failed = [answer for answer in answers if answer.failed or answer.retries]
    assert not failed, "\n".join(map(str, [*failed[:40], *moments]))
    assert len(figures.clusters) == 3, "one RayCluster at first, and one for each upgrade"
    assert {name: count for name, count in figures.ray_pods.items() if count} == {}
    assert {name: count for name, count in figures.restarts.items() if count} == {}
    upgrade_status.expect_sound(moments, surge=OPTIONS.surge)
    # The pods of both builds ran in the middle of an upgrade, and it went on under the other one.
    assert all(0 < begun < 100 for begun, _ in figures.shares.values()), figures.shares
    assert len(answers) >= 1000, f"only {len(answers)} requests were sent"


async def upgrade_meanwhile(rig: Rig, service: Greeter, release: Path, figures: Figures) -> None:
    """Upgrade the RayService twice; replace raybus by this build in the first, back in the second."""
    for is_forward, name in ((True, "to this build"), (False, "back to 0.1.0")):
        began = time.monotonic()
        old = await service.upgrade()
        await service.wait_for_share(OPTIONS.step, within=400)
        share = await read_share(service)
        replaced = time.monotonic()
        if is_forward:
            await rig.kubectl.run("apply", "--server-side", "-k", str(DEPLOY / "crds"))
            await install(rig, LOCAL, manifests.SERVICES)
        else:
            await install(rig, release, first_release.SERVICES)
            await remove_new_service(rig)
        figures.seconds[name] = round(time.monotonic() - replaced, 1)
        figures.shares[name] = (share, await read_share(service))
        await service.wait_for_promotion(old, within=500)
        figures.promoted.append(time.monotonic() - began)
        show(name, figures.seconds[name], figures.shares[name])


async def read_share(service: Greeter) -> int:
    """Return the pending cluster's percentage of the traffic; 100 if no upgrade is in progress."""
    state = await service.state()
    assert state.service is not None
    pending = state.service.status.pending_service_status
    return pending.traffic_routed_percent or 0 if state.pending else 100


async def install(rig: Rig, overlay: Path, services: tuple[str, ...]) -> None:
    """Apply an overlay, and wait until every pod of its services runs its image and is ready."""
    await rig.kubectl.run("apply", "-k", str(overlay))
    for name in services:
        rollout = ("rollout", "status", f"deployment/{name}", f"--timeout={READY_SECONDS}s")
        await rig.kubectl.run("-n", RAYBUS_NAMESPACE, *rollout)
    await rig.kubectl.run(
        "-n", RAYBUS_NAMESPACE, "rollout", "status", "statefulset/nats", "--timeout=120s"
    )


async def remove_new_service(rig: Rig) -> None:
    """Delete the service that 0.1.0 does not know, with the command of docs/installation.md."""
    command = f"-n {RAYBUS_NAMESPACE} delete {NEW_OBJECTS} job-reconciler"
    assert f"$ kubectl {command}\n" in (manifests.ROOT / "docs/installation.md").read_text()
    await rig.kubectl.run(*command.split())

    async def is_gone() -> bool:
        pods = await raybus.pods(rig)
        parts = {pod.metadata.labels["app.kubernetes.io/name"] for pod in pods}
        return "job-reconciler" not in parts

    await eventually_true(is_gone, within=60, what="the end of job-reconciler's pod")


async def watch(rig: Rig, service: Greeter, figures: Figures) -> None:
    """Note RayClusters, Ray pods and restarts once a second until cancelled."""
    while True:
        with suppress(errors.Unavailable):
            await list_present(rig, service, figures)
        await asyncio.sleep(1)


async def list_present(rig: Rig, service: Greeter, figures: Figures) -> None:
    """Note the RayClusters and pods that exist now."""
    state = await service.state()
    figures.clusters |= set(state.clusters)
    for pod, noted, name in (
        *((pod, figures.ray_pods, f"{pod.metadata.name} {pod.metadata.uid}") for pod in state.pods),
        *((pod, figures.restarts, pod.metadata.name) for pod in await raybus.pods(rig)),
    ):
        count = sum(container.restart_count for container in pod.status.container_statuses)
        noted[name] = max(count, noted.get(name, 0))
