"""The setting of a rehearsal: a namespace, the Gateway API, KubeRay's Deployment, and watches."""

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import msgspec

from bench.rig import BACKGROUND, Rig
from common import errors
from common.api.opaque import Body, Json
from common.kube.client import PatchRequest
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, NAMESPACE, RAY_SERVICE, Resource
from integration.isolated import log_progress
from localcluster.api import read_manifests
from localcluster.binaries import GATEWAY_CRDS
from support.kuberay import trees
from support.servers.gateway_controller import GatewayController
from support.servers.programs import prepared

DEPLOYMENT: Final = Resource(group="apps", kind="Deployment", plural="deployments")
HOME: Final = "ray-system"
"""The namespace of KubeRay's operator."""
KUBERAY: Final = "kuberay-operator"
GATEWAY_KINDS: Final = frozenset({GATEWAY.kind, HTTP_ROUTE.kind, GRPC_ROUTE.kind})
GATES: Final = "RayServiceIncrementalUpgrade=true,RayCronJob=true"
"""Feature gates that KubeRay and raybus have in a rehearsal."""
TIMEOUT: Final = 240.0
ATTEMPTS: Final = 5
Holds = Callable[[Json], bool]


class Stage:
    """The namespace, with what is watched in it."""

    def __init__(self, rig: Rig) -> None:
        self.rig = rig
        self.went_back: list[str] = []
        """Weights of pending clusters that decreased."""
        self._shares: dict[str, int] = {}

    async def create(self, resource: Resource, body: Body) -> None:
        """Create an object as a user does."""
        await self.rig.kube.create(
            resource,
            BACKGROUND,
            {**body, "metadata": {**body["metadata"], "namespace": BACKGROUND}},
        )

    async def change(self, name: str, spec: Body) -> None:
        """Change some fields of a RayService."""
        await self.rig.kube.patch(RAY_SERVICE, BACKGROUND, name, PatchRequest(body={"spec": spec}))

    async def snapshot(self) -> list[Body]:
        """Read all objects; a busy API server may need several attempts."""
        for _ in range(ATTEMPTS):
            with suppress(errors.Unavailable):
                return await trees.read(self.rig.kube, BACKGROUND)
        return await trees.read(self.rig.kube, BACKGROUND)

    async def status(self, name: str) -> Json:
        """Read the status of a RayService, and record if traffic went back."""
        body: Body = msgspec.json.decode(await self.rig.kube.get(RAY_SERVICE, BACKGROUND, name))
        status: Json = {**body.get("status", {}), "isSeen": _is_seen(body)}
        pending: Json = status.get("pendingServiceStatus") or {}
        key, share = (
            f"{name} {pending.get('rayClusterName')}",
            int(pending.get("trafficRoutedPercent") or 0),
        )
        if pending.get("rayClusterName") and share < self._shares.get(key, 0):
            self.went_back.append(f"{key}: {self._shares[key]} became {share}")
        self._shares[key] = share
        return status

    async def until(self, name: str, holds: Holds, what: str) -> None:
        """Wait until something holds of a RayService's status."""
        began = time.monotonic()
        await self.until_read(partial(self.status, name), holds, f"{name}: {what}")
        log_progress(f"{name}: {what} ({time.monotonic() - began:.1f} s)")

    async def until_read(
        self, read: Callable[[], Awaitable[Json]], holds: Holds, what: str
    ) -> Json:
        """Read a status until something holds of it; return the status."""
        began = time.monotonic()
        while not holds(status := await read()):
            if time.monotonic() - began > TIMEOUT:
                log = (self.rig.work / "peer.log").read_text(errors="replace")[-2000:]
                raise AssertionError(f"not within {TIMEOUT:g} s: {what}; status {status}\n{log}")
            await asyncio.sleep(0.3)
        return status

    async def check(self) -> str:
        """Run `raybus migrate check` as a user does, while no operator works; return its output."""
        await self.rig.kube.patch(
            DEPLOYMENT, HOME, KUBERAY, PatchRequest(body={"spec": {"replicas": 0}})
        )
        argv = [
            sys.executable,
            "-m",
            "raybus_cli.main",
            "migrate",
            "check",
            "--kubeconfig",
            str(self.rig.kubeconfig),
        ]
        done = await asyncio.to_thread(
            subprocess.run, [*argv, "-o", "wide"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@asynccontextmanager
async def built(rig: Rig) -> AsyncGenerator[Stage]:
    """Build it for the length of a block."""
    async with rig.control_plane.api() as api:
        held = read_manifests(prepared(GATEWAY_CRDS))
        await api.apply_definitions(
            [each for each in held if each["spec"]["names"]["kind"] in GATEWAY_KINDS]
        )
    await rig.kube.create(NAMESPACE, None, {"metadata": {"name": HOME}})
    await rig.kube.create(DEPLOYMENT, HOME, _operator())
    async with asyncio.TaskGroup() as group:
        gateways = group.create_task(GatewayController(rig.kube, BACKGROUND).run())
        yield Stage(rig)
        gateways.cancel()


def _operator() -> Body:
    """Return the Deployment as KubeRay's chart makes it, with the flags that the rehearsal's operator has."""
    marks = {"app.kubernetes.io/name": KUBERAY, "app.kubernetes.io/component": KUBERAY}
    container: Body = {
        "name": KUBERAY,
        "image": "quay.io/kuberay/operator:nightly",
        "command": ["/manager"],
        "args": [
            f"--feature-gates={GATES}",
            "--enable-leader-election=true",
            "--use-kubernetes-proxy=true",
        ],
    }
    template: Body = {"metadata": {"labels": marks}, "spec": {"containers": [container]}}
    spec: Body = {"replicas": 1, "selector": {"matchLabels": marks}, "template": template}
    return {"metadata": {"name": KUBERAY, "labels": marks}, "spec": spec}


def _is_seen(body: Body) -> bool:
    return body.get("status", {}).get("observedGeneration") == body["metadata"]["generation"]
