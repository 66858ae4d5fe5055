"""The steps of the demo, in order.

Each step can be repeated, so a second run on the same cluster is quick.
"""

import asyncio
import time
from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path

import msgspec

from common import errors, names
from common.kube.client import KubeClient
from localcluster.demo import demo_cluster, tally
from localcluster.demo.cluster_state import (
    LOAD_POD,
    NAMESPACE,
    SERVICE,
    DemoState,
    Kubectl,
    Watcher,
)
from localcluster.demo.demo_cluster import LateGateway, Load
from localcluster.demo.tally import DemoReceipt, StepDuration, UpgradeWindow
from localcluster.demo.view import DemoFrame, View

GATEWAY_CLASS = "eg"
ANSWER_ATTEMPTS = 30
"""Number of failed requests to a ready service, one per second, after which the demo fails."""
SHARE_OVER = 3.0
"""Traffic shares in the live view are computed from the answers of this many last seconds."""


class DemoStrategy(StrEnum):
    """How traffic moves to the new cluster."""

    BLUE_GREEN = "blue-green"
    """All traffic moves at once, when the Serve Service selects the new cluster."""
    INCREMENTAL = "incremental"
    """Traffic moves step by step, by the weights of an HTTPRoute."""


FOLDERS = {
    DemoStrategy.BLUE_GREEN: ("demo/v1", "demo/v2"),
    DemoStrategy.INCREMENTAL: ("demo/incremental-v1", "demo/incremental-v2"),
}
"""Folders with the manifests of version 1 and version 2, by strategy."""


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a run of the demo.

    `least_requests` is the minimum number of requests for a valid result.
    """

    manifests: Path
    """The folder `deploy` of the checkout."""
    overlay: Path | None = None
    """Kustomize overlay that installs raybus; None for the overlay `local`."""
    least_requests: int = 3000
    load: Load = Load()
    before_seconds: float = 8.0
    after_seconds: float = 5.0
    strategy: DemoStrategy = DemoStrategy.BLUE_GREEN
    timeout: float = 300.0
    """Seconds that a cluster may take to become ready, and an old cluster to be deleted."""


class Scenario:
    """One run of the demo on a running cluster."""

    def __init__(self, plan: DemoOptions, kubectl: Kubectl, kube: KubeClient, view: View) -> None:
        self._plan = plan
        self._kubectl = kubectl
        self._view = view
        self._started = time.monotonic()
        self._step = ""
        self.steps: list[StepDuration] = []
        self._window = UpgradeWindow()
        self._watch = Watcher(kube, on_update=self._draw)

    async def install(self) -> None:
        """Install raybus and wait until all its pods are ready."""
        with self._show_step("install raybus"):
            overlay = self._plan.overlay or self._plan.manifests / "overlays/local"
            await self._kubectl.run(
                "apply", "--server-side", "-k", str(self._plan.manifests / "crds")
            )
            await self._kubectl.run("apply", "-k", str(overlay))
            await self._watch.wait(
                "raybus getting ready", _raybus_is_ready, timeout=self._plan.timeout
            )

    async def serve(self) -> None:
        """Remove the objects of an earlier run, and start version 1 of the RayService."""
        with self._show_step("remove an earlier run"):
            if await self._has_namespace():
                what = ("rayservice,pod", "-n", NAMESPACE, SERVICE, LOAD_POD)
                await self._kubectl.run("delete", *what, "--ignore-not-found", "--wait=false")
            await self._watch.wait(
                "an earlier run going away", _is_empty, timeout=self._plan.timeout
            )
        with self._show_step("version 1 gets ready"):
            await self._kubectl.run("apply", "-k", str(self._find_manifest(1)))
            await self._watch.wait(
                "version 1 getting ready", _is_serving, timeout=self._plan.timeout
            )

    async def wait_for_answer(self) -> str:
        """Send requests to the RayService through the API server; return the first good answer.

        Raises `Unavailable` after `ANSWER_ATTEMPTS` requests.
        """
        # With a Gateway there is no Service for all clusters, but one for each cluster.
        selected = (
            SERVICE if self._plan.strategy is DemoStrategy.BLUE_GREEN else self._watch.state.active
        )
        path = (
            f"/api/v1/namespaces/{NAMESPACE}/services/{names.serve_service(selected)}:8000/proxy/"
        )
        problem = ""
        with self._show_step("first answer"):
            for _ in range(ANSWER_ATTEMPTS):
                try:
                    return (await self._kubectl.run("get", "--raw", path)).strip()
                except errors.Rejected as failure:
                    problem = str(failure)
                await self._watch.observe_for(1.0)
        raise errors.Unavailable(f"{NAMESPACE}/{SERVICE} is ready but does not answer: {problem}")

    async def wait_for_gateway(self, late: LateGateway | None) -> None:
        """Wait for the command that adds a gateway, then check that the GatewayClass exists.

        If `late` is None, only check. Raises `Rejected` if the command failed, `InvalidSpec` if the
        class does not exist.
        """
        if late is not None:
            with self._show_step("Envoy Gateway gets ready"):
                while not late.has_ended:
                    self._step = f"Envoy Gateway gets ready ({late.activity})"
                    await self._watch.observe_for(1.0)
                late.expect_success()
        await self._expect_a_gateway()

    async def run_upgrade(self) -> DemoReceipt:
        """Upgrade to version 2 under load, and return the result.

        The upgrade ends when the old cluster is deleted. An error is not raised but recorded as
        `problem` of the result.
        """
        await self._start_load()
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(self._watch.read_load(self._kubectl))
            problem: str | None = None
            old = self._watch.state.active
            try:
                await self._run_under_load(old)
            except errors.RaybusError as failure:
                problem = str(failure)
            await self._stop_load()
            await reading
        figures = tally.count(self._watch.answers, self._window)
        if problem is None and figures.requests < self._plan.least_requests:
            problem = (
                f"only {figures.requests} requests were sent; {self._plan.least_requests} were "
                "wanted"
            )
        return DemoReceipt(
            ok=problem is None and figures.failed == 0,
            problem=problem,
            service=f"{NAMESPACE}/{SERVICE}",
            old_cluster=old,
            new_cluster=self._watch.state.active,
            traffic=figures,
            steps=self.steps,
        )

    async def _run_under_load(self, old: str) -> None:
        with self._show_step("load on version 1"):
            await self._watch.wait(
                "the first answer", lambda _: bool(self._watch.answers), timeout=60
            )
            await self._watch.observe_for(self._plan.before_seconds)
        with self._show_step("version 2 gets ready, traffic moves"):
            # The load's pod reports wall-clock times.
            self._window = UpgradeWindow(began=time.time())  # noqa: TID251
            await self._kubectl.run("apply", "-k", str(self._find_manifest(2)))
            await self._watch.wait(
                "version 2 taking over", lambda w: _has_moved(w, old), timeout=self._plan.timeout
            )
        with self._show_step("the old cluster goes"):
            await self._watch.wait(
                "the old cluster going", lambda w: _is_gone(w, old), timeout=self._plan.timeout
            )
            # As above.
            self._window = msgspec.structs.replace(self._window, ended=time.time())  # noqa: TID251
        with self._show_step("load on version 2"):
            await self._watch.observe_for(self._plan.after_seconds)
            missing = self._plan.least_requests - len(self._watch.answers)
            await self._watch.observe_for(max(0.0, missing / self._plan.load.rate))

    async def _start_load(self) -> None:
        with self._show_step("start the load"):
            text = await self._kubectl.run("kustomize", str(self._plan.manifests / "demo/load"))
            await self._kubectl.run(
                "apply", "-f", "-", stdin=demo_cluster.set_load(text, await self._load())
            )
            await self._watch.wait("the load starting", _load_runs, timeout=120)

    async def _expect_a_gateway(self) -> None:
        if self._plan.strategy is DemoStrategy.BLUE_GREEN:
            return
        try:
            await self._kubectl.run("get", "gatewayclass", GATEWAY_CLASS)
        except errors.Rejected as problem:
            raise errors.InvalidSpec(
                f"this cluster has no GatewayClass {GATEWAY_CLASS}: take it down with 'raybus "
                "cluster down', "
                f"then run this again with --driver built"
            ) from problem

    async def _load(self) -> Load:
        """Return the options of the load. Through a Gateway, requests are not retried."""
        if self._plan.strategy is DemoStrategy.BLUE_GREEN:
            return self._plan.load
        where = ("gateway", f"{SERVICE}-gateway", "-n", NAMESPACE)
        await self._kubectl.run("wait", *where, "--for=condition=Programmed", "--timeout=60s")
        address = await self._kubectl.run(
            "get", *where, "-o", "jsonpath={.status.addresses[0].value}"
        )
        return msgspec.structs.replace(self._plan.load, url=f"http://{address}/", retry="none")

    def _find_manifest(self, number: int) -> Path:
        return self._plan.manifests / FOLDERS[self._plan.strategy][number - 1]

    async def _stop_load(self) -> None:
        await self._kubectl.run(
            "delete", "pod", "-n", NAMESPACE, LOAD_POD, "--wait=false", "--ignore-not-found"
        )

    async def _has_namespace(self) -> bool:
        return bool(
            await self._kubectl.run(
                "get", "namespace", NAMESPACE, "--ignore-not-found", "-o", "name"
            )
        )

    @contextmanager
    def _show_step(self, name: str) -> Generator[None]:
        self._step = name
        began = time.monotonic()
        try:
            yield
        finally:
            self.steps.append(StepDuration(name=name, seconds=round(time.monotonic() - began, 1)))

    def _draw(self, watch: Watcher) -> None:
        now = time.time()  # noqa: TID251  (compared with the load's own wall clock)
        self._view.draw(
            DemoFrame(
                step=self._step,
                elapsed=time.monotonic() - self._started,
                state=watch.state,
                share=tally.compute_shares(watch.answers, since=now - SHARE_OVER),
                figures=tally.count(watch.answers, self._window),
            )
        )


def _raybus_is_ready(state: DemoState) -> bool:
    running = [pod for pod in state.raybus if pod.status.phase != "Succeeded"]
    return len(running) >= 5 and all(pod.is_running_and_ready for pod in running)


def _is_empty(state: DemoState) -> bool:
    return state.service is None and not state.clusters and not state.pods


def _is_serving(state: DemoState) -> bool:
    return (
        state.service is not None
        and state.service.is_ready
        and not state.service.is_upgrading
        and bool(state.active)
    )


def _load_runs(state: DemoState) -> bool:
    return state.load is not None and state.load.is_running_and_ready


def _has_moved(state: DemoState, old: str) -> bool:
    return bool(state.active) and state.active != old and not state.pending


def _is_gone(state: DemoState, old: str) -> bool:
    return old not in state.clusters and not any(
        pod.metadata.labels.get("ray.io/cluster") == old for pod in state.pods
    )
