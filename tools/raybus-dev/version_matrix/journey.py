"""What a user does with raybus, on the versions of one row, in a network of its own.

    python -m version_matrix.journey --row kubernetes-1.31 --logs DIR

The API server, its controllers and scheduler, etcd and NATS (users, TLS) are real, and the services
are processes with the rights of `deploy`. Pods are simulated (kwok); Ray heads are simulated, or
real with a row that names a version of Ray. The Gateway controller is simulated. A user creates a
RayCluster, a RayJob and a RayService, and upgrades the RayService in steps. The outcome goes to
standard output as JSON.
"""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec

from bench import heads
from common.api.opaque import Body, Json
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import (
    EVENT,
    GATEWAY_CLASS,
    HTTP_ROUTE,
    NAMESPACE,
    RAY_CLUSTER,
    RAY_JOB,
    RAY_SERVICE,
)
from integration.isolated import isolate, log_progress, print_result
from localcluster import binaries, processes
from localcluster.api import read_manifests
from localcluster.binaries import Binaries
from localcluster.control_plane import ControlPlane
from localcluster.settings import GATEWAY_API, LocalSettings
from raybus_cli.doctor.check import Check, CheckState
from raybus_cli.up.programs import BusAccess
from support import manifests
from support.builders.ray_service import a_ray_service, a_serve_config, a_strategy
from support.manifests import BASE, DEPLOY
from support.servers.fleet import Fleet, Ground, services_with_own_rights
from support.servers.gateway_controller import GatewayController
from support.servers.programs import prepared
from support.servers.relayed import secured_nats
from support.waiting import eventually_true
from version_matrix import rows
from version_matrix.head_pods import HeadPods
from version_matrix.rows import RowOutcome, VersionRow

USERS: Final = "users"
"""Namespace of the user's objects."""
SIMULATED_SECONDS: Final = 120.0
RAY_SECONDS: Final = 600.0
"""Timeout in seconds of a step with real Ray: a head takes a minute to start on two processors."""
RIGHTS: Final = (
    "Namespace",
    "ServiceAccount",
    "ClusterRole",
    "ClusterRoleBinding",
    "Role",
    "RoleBinding",
)
GATEWAY_CLASS_NAME: Final = "fast"
POD_ROUTE: Final = ("ip", "route", "del", "local", "10.0.0.0/8", "dev", "lo")
QUICK: Final = "python -c 'print(6 * 7)'"


class Journey:
    """Creates and upgrades the objects of one user."""

    def __init__(self, kube: KubeClient, row: VersionRow, real_heads: HeadPods | None) -> None:
        self._kube = kube
        self._heads = real_heads
        self._limit = RAY_SECONDS if row.ray else SIMULATED_SECONDS
        self._ray_version = row.ray or "2.60.0"
        self.seconds: dict[str, float] = {}
        self.weights: list[int] = []

    async def run(self) -> None:
        """Carry out all steps."""
        with self._measure_step("RayCluster"):
            await self._create(RAY_CLUSTER, "cluster", self._build_config("v1"))
            await self._until_cluster("cluster")
        await self._kube.delete(RAY_CLUSTER, USERS, "cluster")
        with self._measure_step("RayJob"):
            await self._run_job()
        with self._measure_step("RayService"):
            await self._kube.create(RAY_SERVICE, USERS, self._build_service("v1"))
            first = await self._until_active(other_than="")
            await self._check_answer(first, "v1")
        with self._measure_step("upgrade"):
            patch = PatchRequest(body={"spec": self._build_service("v2")["spec"]})
            await self._kube.patch(RAY_SERVICE, USERS, "service", patch)
            second = await self._until_active(other_than=first)
            await self._check_answer(second, "v2")
        assert [weight for weight in self.weights if 0 < weight < 100], "the traffic took no step"

    async def read_refusal(self, part: str) -> str:
        """Create the RayService, and return the Event with which raybus refuses it."""
        await self._kube.create(RAY_SERVICE, USERS, self._build_service("v1"))
        notes: list[str] = []

        async def is_refused() -> bool:
            body = await self._kube.list(EVENT, USERS)
            events = msgspec.json.decode(body)["items"]
            notes[:] = [event["note"] for event in events if part in event.get("note", "")]
            return bool(notes)

        await eventually_true(is_refused, within=self._limit, what=f"an Event with {part!r}")
        log_progress(notes[0])
        return notes[0]

    @contextmanager
    def _measure_step(self, step: str) -> Any:
        began = time.monotonic()
        yield
        self.seconds[step] = round(time.monotonic() - began, 1)
        log_progress(f"{step}: {self.seconds[step]:.1f} s")

    async def _create(self, resource: Any, name: str, spec: Json) -> None:
        body: Body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await self._kube.create(resource, USERS, body)

    async def _until_cluster(self, name: str) -> None:
        async def is_ready() -> bool:
            status = (await self._read(RAY_CLUSTER, name)).get("status", {})
            is_up = self._heads is None or self._heads.find(name) is not None
            return status.get("state") == "ready" and is_up

        await eventually_true(is_ready, within=self._limit, what=f"RayCluster {name} being ready")

    async def _run_job(self) -> None:
        spec = {
            "entrypoint": QUICK,
            "submissionMode": "HTTPMode",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": self._build_config("v1"),
        }
        await self._create(RAY_JOB, "job", spec)
        status: Json = {}

        async def is_complete() -> bool:
            nonlocal status
            status = (await self._read(RAY_JOB, "job")).get("status", {})
            return status.get("jobDeploymentStatus") in {"Complete", "Failed"}

        await eventually_true(is_complete, within=self._limit, what="the end of the RayJob")
        assert status.get("jobStatus") == "SUCCEEDED", status

    async def _until_active(self, *, other_than: str) -> str:
        name = ""

        async def serves() -> bool:
            nonlocal name
            status: Json = (await self._read(RAY_SERVICE, "service")).get("status", {})
            name = status.get("activeServiceStatus", {}).get("rayClusterName", "")
            is_alone = not status.get("pendingServiceStatus", {}).get("rayClusterName", "")
            await self._record_weight(other_than)
            return status.get("serviceStatus") == "Running" and is_alone and name != other_than

        await eventually_true(
            serves, within=self._limit, every=0.2, what=f"a cluster that serves after {other_than}"
        )
        return name

    async def _record_weight(self, old: str) -> None:
        """Record the percentage of the traffic that a cluster other than `old` gets."""
        body = await self._kube.list(HTTP_ROUTE, USERS)
        for route in msgspec.json.decode(body)["items"] if old else ():
            backends = [
                backend for rule in route["spec"]["rules"] for backend in rule["backendRefs"]
            ]
            new = sum(
                backend["weight"] for backend in backends if not backend["name"].startswith(old)
            )
            if self.weights[-1:] != [new] and len(backends) > 1:
                self.weights.append(new)

    async def _check_answer(self, cluster: str, message: str) -> None:
        """On a real head, check that the application answers with `message`."""
        if self._heads is None:
            return
        head = self._heads.find(cluster)
        assert head is not None, f"the head of {cluster} does not run"
        async with httpx.AsyncClient(trust_env=False, timeout=30) as client:
            answer = await client.get(f"http://{head.address}:8000/")
        assert (answer.status_code, answer.text) == (200, message)

    async def _read(self, resource: Any, name: str) -> Body:
        return msgspec.json.decode(await self._kube.get(resource, USERS, name))

    def _build_config(self, message: str) -> Json:
        container = {
            "name": "ray-head",
            "image": f"rayproject/ray:{self._ray_version}",
            "env": [{"name": "RELEASE", "value": message}],
        }
        head = {
            "rayStartParams": {"num-cpus": "2", "object-store-memory": "100000000"},
            "template": {"spec": {"containers": [container]}},
        }
        return {
            "rayVersion": self._ray_version,
            "headGroupSpec": head,
            "workerGroupSpecs": [],
            "enableInTreeAutoscaling": True,
        }

    def _build_service(self, message: str) -> Body:
        body = a_ray_service(
            name="service",
            config=self._build_config(message),
            serve=a_serve_config(import_path="echo:app", message=message),
            upgradeStrategy=a_strategy(
                surge=100, step=50, interval=1, gateway_class=GATEWAY_CLASS_NAME
            ),
            rayClusterDeletionDelaySeconds=0,
            annotations={"raybus.io/drain-timeout": "1s"},
        )
        del body["metadata"]["namespace"]
        return body


async def run(row: VersionRow, work: Path, logs: Path) -> RowOutcome:
    """Start all servers and services, run the steps of the row, and return the outcome."""
    async with AsyncExitStack() as stack:
        if row.ray:
            await processes.run_checked("removing the route to simulated pods", POD_ROUTE)
        else:
            played = await stack.enter_async_context(heads.played())
            played.driver_seconds[QUICK] = 1.0
        control_plane = await stack.enter_async_context(
            ControlPlane.started(
                work / "cp",
                crds=DEPLOY / "crds",
                binaries=_find_programs(row),
                scheduler=True,
                kwok_nodes=1,
                completes_jobs=False,
            )
        )
        log_progress("the control plane runs")
        await _install(control_plane, row)
        kube = await KubeClient.connect(
            kubeconfig=control_plane.kubeconfig, user_agent="version-matrix"
        )
        stack.push_async_callback(kube.close)
        await _add_users(kube, row)
        gateways = GatewayController(kube, USERS)
        await stack.enter_async_context(_running(gateways.run))
        secured = await stack.enter_async_context(secured_nats(work / "nats"))
        bus = BusAccess(url=secured.server.url, credentials=work / "nats")
        if row.refusal and row.nats:
            sentence = await _read_refusal(row, control_plane, bus, logs)
            return RowOutcome(row=row.name, refusal=sentence)
        fleet = await stack.enter_async_context(
            services_with_own_rights(control_plane, bus, logs, log_progress)
        )
        log_progress("all services are ready")
        real_heads: HeadPods | None = None
        if row.ray:
            ray = LocalSettings.from_environment().cache_root / "ray" / row.ray
            pods = HeadPods(kube, USERS, ray, logs)
            real_heads = await stack.enter_async_context(pods.running())
        journey = Journey(kube, row, real_heads)
        if row.refusal:
            return RowOutcome(row=row.name, refusal=await journey.read_refusal(row.refusal))
        await journey.run()
        await _check_installation(control_plane, fleet)
        return RowOutcome(row=row.name, seconds=journey.seconds, weights=journey.weights)


def _find_programs(row: VersionRow) -> Binaries:
    versioned = binaries.map_kubernetes_programs(row.kubernetes)
    paths = {name: prepared(built) for name, built in versioned.items()}
    others = ("etcd", *binaries.SIMULATED_NODES)
    return Binaries(paths=paths | {name: prepared(name) for name in others})


async def _install(control_plane: ControlPlane, row: VersionRow) -> None:
    """Install the Gateway API, the rights and the admission policies of raybus.

    The other manifests of `overlays/production` are only validated: their pods would be simulated.
    """
    rights = (DEPLOY / "rights" / name for name in ("everywhere", "kubernetes-proxy"))
    documents = [document for folder in (BASE, *rights) for document in manifests.read(folder)]
    crds = (
        binaries.GATEWAY_CRDS
        if row.gateway_api == GATEWAY_API
        else f"gateway-crds-{row.gateway_api}"
    )
    async with control_plane.api() as api:
        await api.apply_definitions(
            [
                definition
                for definition in read_manifests(prepared(crds), kind="CustomResourceDefinition")
                if definition["spec"]["group"] == "gateway.networking.k8s.io"
            ]
        )
        for kind in RIGHTS:
            for document in manifests.of_kind(documents, kind):
                if kind in {"ServiceAccount", "Role", "RoleBinding"}:
                    document["metadata"].setdefault("namespace", manifests.NAMESPACE)
                await api.apply(document)
    kubectl = [str(prepared("kubectl")), "--kubeconfig", str(control_plane.kubeconfig)]
    for arguments in (
        ["apply", "-k", str(DEPLOY / "admission")],
        ["apply", "--dry-run=server", "-k", str(DEPLOY / "overlays" / "production")],
    ):
        await processes.run_checked("installing raybus", [*kubectl, *arguments])
    log_progress("the manifests are applied")


async def _add_users(kube: KubeClient, row: VersionRow) -> None:
    """Create the users' namespace, and a GatewayClass that its controller has accepted.

    A row that raybus refuses gets no GatewayClass: an old Gateway API may lack its version.
    """
    await kube.create(NAMESPACE, None, {"metadata": {"name": USERS}})
    if row.refusal:
        return
    body: Body = {
        "apiVersion": GATEWAY_CLASS.api_version,
        "kind": GATEWAY_CLASS.kind,
        "metadata": {"name": GATEWAY_CLASS_NAME},
        "spec": {"controllerName": "example.org/gw"},
    }
    await kube.create(GATEWAY_CLASS, None, body)
    accepted = {
        "type": "Accepted",
        "status": "True",
        "reason": "Accepted",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    patch = PatchRequest(body={"status": {"conditions": [accepted]}}, subresource="status")
    await kube.patch(GATEWAY_CLASS, None, GATEWAY_CLASS_NAME, patch)


async def _read_refusal(
    row: VersionRow, control_plane: ControlPlane, bus: BusAccess, logs: Path
) -> str:
    """Start the watcher, and return the reason why it does not become ready."""
    ground = Ground(access=control_plane.access, bus=bus, work=logs, log_dir=logs)
    reason = ""
    async with Fleet(ground, log_progress).manned() as fleet:
        fleet.scale("watcher", 1)
        (watcher,) = fleet.of("watcher")

        async def is_refused() -> bool:
            nonlocal reason
            async with httpx.AsyncClient(trust_env=False) as client:
                with suppress(httpx.TransportError):
                    reason = (await client.get(f"http://127.0.0.1:{watcher.port}/readyz")).text
            return row.refusal in reason

        await eventually_true(is_refused, what=f"a refusal with {row.refusal!r}")
    log_progress(reason)
    return reason.strip()


@asynccontextmanager
async def _running(work: Callable[[], Any]) -> AsyncGenerator[None]:
    async with asyncio.TaskGroup() as group:
        task = group.create_task(work())
        try:
            yield
        finally:
            task.cancel()


async def _check_installation(control_plane: ControlPlane, fleet: Fleet) -> None:
    """Run `raybus doctor`; no check may fail, and the services must still be ready."""
    await fleet.ready()
    kubeconfig = ["--kubeconfig", str(control_plane.kubeconfig)]
    command = [sys.executable, "-m", "raybus_cli.main", "doctor", "-o", "json", *kubeconfig]
    done = await processes.run(command)
    checks = msgspec.json.decode(done.output or "[]", type=list[Check])
    failed = [f"{check.name}: {check.text}" for check in checks if check.state is CheckState.FAILED]
    assert checks, done.errors
    assert failed == []
    log_progress(f"raybus doctor: {len(checks)} checks, none failed")


def main() -> None:
    """Run the journey in a network namespace of its own, and print the outcome as JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--row", required=True, help="name of the row")
    parser.add_argument("--logs", type=Path, required=True, metavar="DIR", help="folder for logs")
    options = parser.parse_args()
    isolate("version_matrix.journey")
    (row,) = rows.find([options.row])
    options.logs.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="raybus-versions-") as work:
        print_result(asyncio.run(run(row, Path(work), options.logs)))


if __name__ == "__main__":
    main()
