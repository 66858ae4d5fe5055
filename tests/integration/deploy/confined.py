"""The overlay `namespaced` at work, and gone again: five real services with its very rights, each
as its own ServiceAccount.

They run outside the cluster's network, so the rights of the API server's proxy are added in the
watched namespace. Run in a network of its own (`bench.pod_network`), where one process plays all
Ray heads; prints what came of it as JSON:

    python -m integration.deploy.confined KUBECTL
"""

import asyncio
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from bench import heads, rig
from bench.rig import ALONE, Rig
from common import errors
from common.api.opaque import Body, Json
from common.kube.client import PatchRequest
from common.kube.resources import CONFIG_MAP, POD, RAY_CLUSTER, RAY_JOB, RAY_SERVICE
from integration.isolated import isolate, log_progress, print_result
from localcluster import processes
from localcluster.api import read_manifests
from localcluster.binaries import GATEWAY_CRDS
from raybus_cli.up.programs import BusAccess
from support import leftovers
from support.audit_log import ACCOUNT, Line
from support.builders.ray_service import a_cluster_config, a_ray_service, a_strategy
from support.manifests import NAMESPACE
from support.servers.fleet import services_with_own_rights
from support.servers.gateway_controller import GatewayController
from support.servers.programs import prepared
from support.servers.relayed import secured_nats
from support.waiting import eventually_true

WATCHED: Final = "default"
OVERLAY: Final = Path(__file__).parent / "namespaced_with_proxy"
"""The overlay `namespaced` with the rights of the API server's proxy, through which these services
reach Ray.
"""
TIMEOUT: Final = 180.0
ROUTES: Final = {"Gateway", "HTTPRoute", "GRPCRoute"}

KINDS: Final = f"{leftovers.USERS_KINDS},gateways,httproutes"

Uids = dict[str, str]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    watched: str
    """The namespaces that the overlay names."""
    accounts: list[str]
    """The client of the request."""
    outside: list[str]
    """What was asked for outside the namespace and raybus' own."""
    refused: list[str]
    """What the API server refused for want of a right."""
    strangers: list[str]
    """Pods of a RayCluster in a namespace that is not watched."""
    upgraded: bool
    lost: list[str]
    """What users had before raybus was taken away, and not, or not the same, afterwards."""
    left: list[str]
    """What raybus left behind, whatever its kind."""
    held: list[str]
    """Objects that cannot be deleted after the steps of the documentation."""


class Run:
    """One run."""

    def __init__(self, found: Rig, kubectl: str) -> None:
        self._rig = found
        self._kubectl = kubectl

    async def execute(self, bus: BusAccess) -> Report:
        """Carry out the run."""
        config = await self._settings()
        await self._rig.kube.create(RAY_CLUSTER, ALONE, _a_cluster("elsewhere"))
        logs, watched = self._rig.work / "logs", config["RAYBUS_WATCH_NAMESPACES"]
        logs.mkdir()
        async with services_with_own_rights(
            self._rig.control_plane, bus, logs, log_progress, watched=watched
        ):
            await self._rig.kube.create(RAY_CLUSTER, WATCHED, _a_cluster("plain"))
            await self._until_state("plain", "ready")
            await self._rig.kube.create(RAY_JOB, WATCHED, _a_job("waits"))
            await self._rig.kube.create(RAY_JOB, WATCHED, _a_job("ends"))
            await self._until_waiting("waits")
            await self._until_waiting("ends")
            await self._delete_job("ends")
            await self._rig.kube.create(RAY_SERVICE, WATCHED, _a_service())
            first = await self._until_active(other_than="")
            await self._change_image("rayproject/ray:2.53.0")
            second = await self._until_active(other_than=first)
        strangers = await self._pods(ALONE)
        asked = list(_asked(self._rig.control_plane.audit_log))
        before = await leftovers.uids(self.run, WATCHED, KINDS)
        await self.run("delete", "-k", str(OVERLAY), "--ignore-not-found", "--timeout=60s")
        after = await leftovers.uids(self.run, WATCHED, KINDS)
        return Report(
            watched=config["RAYBUS_WATCH_NAMESPACES"],
            accounts=sorted({each.user.username.removeprefix(ACCOUNT) for each in asked}),
            outside=sorted({str(each) for each in asked if _is_outside(each)}),
            refused=sorted(
                {str(each) for each in asked if each.response_status.code in {401, 403}}
            ),
            strangers=sorted(strangers),
            upgraded=second != first,
            lost=sorted(each for each, uid in before.items() if after.get(each) != uid),
            left=await leftovers.of_raybus(self.run),
            held=await self._held(),
        )

    async def install(self) -> None:
        """Install the overlay as a user does."""
        await self.run("apply", "-k", str(OVERLAY))

    async def run(self, *arguments: str) -> str:
        """Run kubectl as the administrator."""
        done = await processes.run(
            [self._kubectl, "--kubeconfig", str(self._rig.kubeconfig), *arguments]
        )
        assert done.code == 0, done.errors
        return done.output

    async def _settings(self) -> dict[str, str]:
        maps: list[Body] = msgspec.json.decode(await self._rig.kube.list(CONFIG_MAP, NAMESPACE))[
            "items"
        ]
        return next(
            each["data"] for each in maps if each["metadata"]["name"].startswith("raybus-config-")
        )

    async def _change_image(self, image: str) -> None:
        patch = PatchRequest(body={"spec": {"rayClusterConfig": _a_config(image)}})
        await self._rig.kube.patch(RAY_SERVICE, WATCHED, "demo", patch)

    async def _until_state(self, cluster: str, state: str) -> None:
        async def is_so() -> bool:
            body: Body = msgspec.json.decode(
                await self._rig.kube.get(RAY_CLUSTER, WATCHED, cluster)
            )
            return body.get("status", {}).get("state") == state

        await eventually_true(is_so, within=TIMEOUT, what=f"RayCluster {cluster} being {state}")

    async def _until_waiting(self, job: str) -> None:
        """Wait until a RayJob has a cluster that is ready, and waits for its user."""

        async def is_waiting() -> bool:
            body: Body = msgspec.json.decode(await self._rig.kube.get(RAY_JOB, WATCHED, job))
            return body.get("status", {}).get("jobDeploymentStatus") == "Waiting"

        await eventually_true(is_waiting, within=TIMEOUT, what=f"RayJob {job} waiting")

    async def _delete_job(self, job: str) -> None:
        """Delete a RayJob, and wait until its finalizer is gone."""
        await self._rig.kube.delete(RAY_JOB, WATCHED, job)

        async def is_gone() -> bool:
            with suppress(errors.NotFound):
                await self._rig.kube.get(RAY_JOB, WATCHED, job)
                return False
            return True

        await eventually_true(is_gone, within=TIMEOUT, what=f"the end of RayJob {job}")

    async def _until_active(self, *, other_than: str) -> str:
        name = ""

        async def serves() -> bool:
            nonlocal name
            body: Body = msgspec.json.decode(await self._rig.kube.get(RAY_SERVICE, WATCHED, "demo"))
            status: Json = body.get("status", {})
            name = status.get("activeServiceStatus", {}).get("rayClusterName", "")
            is_alone = not status.get("pendingServiceStatus", {}).get("rayClusterName", "")
            return status.get("serviceStatus") == "Running" and is_alone and name != other_than

        await eventually_true(serves, within=TIMEOUT, what="a cluster that serves")
        return name

    async def _pods(self, namespace: str) -> Uids:
        pods: list[Body] = msgspec.json.decode(await self._rig.kube.list(POD, namespace))["items"]
        return {f"Pod {each['metadata']['name']}": each["metadata"]["uid"] for each in pods}

    async def _held(self) -> list[str]:
        """Release the objects that no operator reconciles any more, as in docs/installation.md.

        Delete all objects, and return those that remain.
        """
        kubectl = f"{self._kubectl} --kubeconfig {self._rig.kubeconfig}"
        done = await processes.run(["bash", "-c", leftovers.release().replace("kubectl", kubectl)])
        assert done.code == 0, done.errors
        await self.run(
            "delete", "rayservices,rayjobs,rayclusters", "--all", "-n", WATCHED, "--wait=false"
        )

        async def is_empty() -> bool:
            return not await self._pods(WATCHED)

        await eventually_true(is_empty, within=60, what="the pods going with their owners")
        found = await self.run(
            "get",
            "rayservices,rayjobs,rayclusters",
            "-n",
            WATCHED,
            "-o",
            "name",
            "--ignore-not-found",
        )
        return found.split()


def _asked(log: Path) -> Iterator[Line]:
    """Yield the requests of the services to the API server."""
    decode = msgspec.json.Decoder(Line).decode
    for line in log.read_bytes().splitlines():
        asked = decode(line)
        if asked.user.username.startswith(ACCOUNT):
            yield asked


def _is_outside(asked: Line) -> bool:
    return asked.object_ref.namespace not in {WATCHED, NAMESPACE}


def _a_config(image: str = "rayproject/ray:2.52.0") -> Json:
    return a_cluster_config(image=image, enableInTreeAutoscaling=True)


def _a_service() -> Body:
    body = a_ray_service(
        config=_a_config(),
        upgradeStrategy=a_strategy(surge=100, step=50, interval=1),
        rayClusterDeletionDelaySeconds=0,
        annotations={"raybus.io/drain-timeout": "1s"},
    )
    del body["metadata"]["namespace"]
    return body


def _a_job(name: str) -> Body:
    spec = {
        "entrypoint": "python main.py",
        "submissionMode": "InteractiveMode",
        "shutdownAfterJobFinishes": True,
        "rayClusterSpec": _a_config(),
    }
    return {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": name}, "spec": spec}


def _a_cluster(name: str) -> Body:
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": _a_config(),
    }


@asynccontextmanager
async def _gateway(found: Rig) -> AsyncGenerator[None]:
    """Simulate the controller of a Gateway during a block."""
    async with found.control_plane.api() as api:
        held = read_manifests(prepared(GATEWAY_CRDS))
        await api.apply_definitions(
            [each for each in held if each["spec"]["names"]["kind"] in ROUTES]
        )
    async with asyncio.TaskGroup() as group:
        task = group.create_task(GatewayController(found.kube, WATCHED).run())
        yield
        task.cancel()


async def run(kubectl: str) -> Report:
    """Start everything, and run it."""
    async with AsyncExitStack() as stack:
        found = await stack.enter_async_context(rig.fresh())
        await stack.enter_async_context(heads.played())
        await stack.enter_async_context(_gateway(found))
        secured = await stack.enter_async_context(secured_nats(found.work / "nats"))
        run = Run(found, kubectl)
        await run.install()
        return await run.execute(BusAccess(url=secured.server.url, credentials=found.work / "nats"))


def main() -> None:
    """Enter the network of our own and print what was found."""
    isolate("integration.deploy.confined")
    (kubectl,) = sys.argv[1:]
    print_result(asyncio.run(run(kubectl)))


if __name__ == "__main__":
    main()
