"""The same upgrades through one real gateway, under load, with real services, API server and NATS.

    cd tests && python -m integration.gateways.run --gateway contour --logs DIR

The gateway is the released controller with its data plane, and each request passes through it. Pods
and Ray's dashboards are simulated: an HTTP server answers at the address of each pod. The
measurements are printed on standard output as JSON.
"""

import argparse
import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from chaos import stack
from chaos.stack import BACKGROUND, Stack
from common import errors
from common.api.opaque import Body, Json
from common.kube.client import PatchRequest
from common.kube.resources import (
    EVENT,
    GATEWAY,
    GATEWAY_CLASS,
    HTTP_ROUTE,
    POD,
    RAY_SERVICE,
    UPGRADE_POLICY,
    Resource,
)
from integration.events.kills import SERVICES
from integration.gateways.backends import Backends
from integration.gateways.load import Client, LoadAnswer, connected
from integration.gateways.probe import MIRROR_PERCENT, PORT, Probe, split
from integration.gateways.report import Mirroring, Phase, Preview, Report
from integration.gateways.routes import RouteHistory, find_shares
from integration.isolated import isolate, log_progress, print_result
from support.builders.ray_service import (
    a_cluster_config,
    a_group,
    a_ray_service,
    a_serve_config,
    a_strategy,
)
from support.fakes.api_feed import ApiFeed
from support.gateways.catalogue import GATEWAYS
from support.gateways.program import GatewayGround, GatewayProgram
from support.servers.programs import prepared
from support.waiting import eventually_true

TIMEOUT: Final = 180.0
METRICS_PORT: Final = 18080
"""Port of the pods' metrics. Ray's own, 8080, is taken by a gateway in the same network."""
PORTS: Final = {
    "gcs-server": 6379,
    "dashboard": 8265,
    "metrics": METRICS_PORT,
    "serve": PORT,
}
STEP_SECONDS: Final = 6
NAME: Final = "demo"
BLUE: Final = "blue"
HOST: Final = "demo.example"
HEADER: Final = ("x-raybus-version", "next")
PAUSED_AT: Final = 25
POLICY: Final[Json] = {
    "mirror": {"percent": MIRROR_PERCENT, "duration": "15s"},
    "steps": [{"weight": PAUSED_AT, "pause": {}}, {"weight": 100}],
    "preview": {"header": {"name": HEADER[0], "value": HEADER[1]}},
}
SETTLE_SECONDS: Final = 3.0
"""Load before and after each upgrade."""
MAX_ERRORS: Final = 5
STRANGER: Final = "stranger"
"""A Gateway of a class that no controller serves."""
_VOLATILE: Final = ("managedFields", "uid", "resourceVersion", "ownerReferences")


class Service:
    """A RayService of the run."""

    def __init__(self, found: Stack, name: str, strategy: Json) -> None:
        self.name = name
        self._kube = found.kube
        self._strategy = strategy
        self._version = 0

    async def begin(self) -> None:
        """Create the RayService, and wait until it serves."""
        spec: Json = {"upgradeStrategy": self._strategy} if self._strategy else {}
        body = a_ray_service(name=self.name, **spec, **self._build_spec())
        body["metadata"] = {"name": self.name}
        await self._kube.create(RAY_SERVICE, BACKGROUND, body)
        await self.until(
            lambda status: status.get("serviceStatus") == "Running", f"{self.name} serving"
        )

    async def upgrade(self) -> str:
        """Change cluster and Serve config; return the name of the cluster that serves now."""
        active = find_active(await self.status())
        self._version += 1
        changed = self._build_spec()
        await self._patch(
            {"spec": {"rayClusterConfig": changed["config"], "serveConfigV2": changed["serve"]}}
        )
        return active

    async def annotate(self, **annotations: str | None) -> None:
        """Set annotations `raybus.io/…` (an underscore stands for a dash); None removes one."""
        written = {f"raybus.io/{key.replace('_', '-')}": text for key, text in annotations.items()}
        await self._patch({"metadata": {"annotations": written}})

    async def body(self) -> Json:
        return msgspec.json.decode(await self._kube.get(RAY_SERVICE, BACKGROUND, self.name))

    async def status(self) -> Json:
        return (await self.body()).get("status", {})

    async def until(self, holds: Callable[[Json], bool], what: str) -> Json:
        """Wait until a condition holds for the status, and return that status."""
        status: Json = {}

        async def is_so() -> bool:
            nonlocal status
            try:
                status = await self.status()
            except errors.Retryable:
                return False
            return holds(status)

        try:
            await eventually_true(is_so, within=TIMEOUT, every=0.1, what=what)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; status {status}") from failure
        return status

    async def until_promoted(self, old: str) -> str:
        """Wait until another cluster serves alone; return its name."""
        status = await self.until(
            lambda status: find_active(status) not in {"", old} and not find_pending(status),
            f"the promotion in {self.name}",
        )
        return find_active(status)

    async def until_share(self, percent: int) -> None:
        """Wait until the pending cluster gets at least so many percent of the traffic."""
        await self.until(
            lambda status: (
                status.get("pendingServiceStatus", {}).get("trafficRoutedPercent", 0) >= percent
            ),
            f"{percent} percent of the traffic of {self.name}",
        )

    def _build_spec(self) -> dict[str, Any]:
        head = [{"name": name, "containerPort": port} for name, port in PORTS.items()]
        group = a_group(minReplicas=1, replicas=1)
        group["template"]["spec"]["containers"][0]["ports"] = head[2:]
        config = a_cluster_config(
            group, image=f"rayproject/ray:2.{50 + self._version}.0", enableInTreeAutoscaling=True
        )
        config["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] = head
        return {
            "config": config,
            "serve": a_serve_config(message=f"v{self._version}"),
            "rayClusterDeletionDelaySeconds": 5,
        }

    async def _patch(self, body: Body) -> None:
        await self._kube.patch(RAY_SERVICE, BACKGROUND, self.name, PatchRequest(body=body))


def find_active(status: Json) -> str:
    return status.get("activeServiceStatus", {}).get("rayClusterName", "")


def find_pending(status: Json) -> str:
    return status.get("pendingServiceStatus", {}).get("rayClusterName", "")


class Trial:
    """The upgrades of one run, and what they showed."""

    def __init__(self, found: Stack, program: GatewayProgram, client: Client) -> None:
        self._found = found
        self._program = program
        self._client = client
        self.backends = Backends(found.heads)
        self.history = RouteHistory()
        self.statuses: dict[str, Json] = {}
        self.phases: list[Phase] = []
        strategy = a_strategy(surge=50, step=25, interval=STEP_SECONDS, gateway_class=program.name)
        self.service = Service(found, NAME, strategy)
        self.probe = Probe(found.kube, client, self.backends, f"{NAME}-gateway")

    async def begin(self) -> None:
        """Start the service, and wait until the gateway answers its requests."""
        await self.service.begin()
        try:
            await self.probe.until_answered(HOST)
        finally:
            await self.record("Gateway", GATEWAY, f"{NAME}-gateway")
            await self.record("HTTPRoute at rest", HTTP_ROUTE, f"{NAME}-httproute")

    async def upgrade_in_steps(self) -> None:
        """Upgrade in steps of 25 percent."""
        async with self._measured("in steps", HOST) as answers:
            began = time.time()  # noqa: TID251  (that of the watches)
            old = await self.service.upgrade()
            await self.service.until_share(50)
            await asyncio.sleep(1.0)
            await self.record("HTTPRoute with two weights", HTTP_ROUTE, f"{NAME}-httproute")
            new = await self.service.until_promoted(old)
        moments = self.history.of(f"{NAME}-httproute", since=began)
        self.phases[-1] = msgspec.structs.replace(
            self.phases[-1], shares=find_shares(moments, new, answers)
        )

    async def roll_back(self) -> None:
        """Abort an upgrade at 50 percent."""
        async with self._measured("rollback at 50 %", HOST):
            old = await self.service.upgrade()
            await self.service.until_share(50)
            generation = (await self.service.body())["metadata"]["generation"]
            await self.service.annotate(abort=str(generation))
            await self.service.until(
                lambda status: find_active(status) == old and not find_pending(status),
                "the rollback",
            )

    async def preview_and_mirror(self) -> tuple[Preview, Mirroring]:
        """Upgrade by a policy that mirrors requests and shows a preview."""
        policy = {
            "apiVersion": UPGRADE_POLICY.api_version,
            "kind": UPGRADE_POLICY.kind,
            "metadata": {"name": "previewed"},
            "spec": POLICY,
        }
        await self._found.kube.create(UPGRADE_POLICY, BACKGROUND, policy)
        await self.service.annotate(upgrade_policy="previewed")
        async with self._measured("preview and mirror", HOST) as answers:
            began = time.time()  # noqa: TID251
            old = await self.service.upgrade()
            await self._record_mirror()
            await self.service.until_share(PAUSED_AT)
            await asyncio.sleep(SETTLE_SECONDS)
            await self.record("HTTPRoute of the preview", HTTP_ROUTE, f"{NAME}-httproute-preview")
            preview = await self._preview(find_pending(await self.service.status()))
            await self._resume()
            await self.service.until_promoted(old)
        mirroring = await self._find_copies(answers, began)
        await self.service.annotate(upgrade_policy=None)
        return preview, mirroring

    async def upgrade_at_once(self) -> None:
        """Upgrade blue/green behind a route to the Serve Service, which raybus does not write."""
        service = Service(self._found, BLUE, {})
        await service.begin()
        backend = {"name": f"{BLUE}-serve-svc", "port": PORT}
        host = await self.probe.route(BLUE, {"backendRefs": [backend]})
        await self.probe.until_answered(host, BLUE)
        async with self._measured("blue/green", host):
            old = await service.upgrade()
            await service.until_promoted(old)

    async def record_more(self) -> None:
        """Record the statuses of routes that the gateway cannot follow in full."""
        gateway: Body = {
            "apiVersion": GATEWAY.api_version,
            "kind": GATEWAY.kind,
            "metadata": {"name": STRANGER},
            "spec": {
                "gatewayClassName": STRANGER,
                "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}],
            },
        }
        await self._found.kube.create(GATEWAY, BACKGROUND, gateway)
        await self.probe.route("two-parents", split(100), parents=(f"{NAME}-gateway", STRANGER))
        missing = {"backendRefs": [{"name": "missing", "port": PORT}]}
        await self.probe.route("missing-backend", missing)
        await asyncio.sleep(SETTLE_SECONDS)
        await self.record("HTTPRoute with two parents", HTTP_ROUTE, "two-parents")
        await self.record("HTTPRoute without its backend", HTTP_ROUTE, "missing-backend")
        await self.record("HTTPRoute with a mirror", HTTP_ROUTE, "mirrored")
        await self.record("HTTPRoute with a session", HTTP_ROUTE, "sticky")
        await self.record("HTTPRoute after 20 writes", HTTP_ROUTE, "probe")
        await self.record("GatewayClass", GATEWAY_CLASS, self._program.name, namespace=None)

    async def record(
        self, situation: str, resource: Resource, name: str, *, namespace: str | None = BACKGROUND
    ) -> None:
        """Record an object with its status, if it exists."""
        try:
            body = msgspec.json.decode(await self._found.kube.get(resource, namespace, name))
        except errors.NotFound:
            return
        body["metadata"] = {
            key: value for key, value in body["metadata"].items() if key not in _VOLATILE
        }
        self.statuses[situation] = body

    @asynccontextmanager
    async def _measured(self, name: str, host: str) -> AsyncGenerator[list[LoadAnswer]]:
        """Send load for the length of a block, and note its result as a phase."""
        began = time.monotonic()
        log_progress(f"{name} begins")
        async with self._client.load(host) as answers:
            await asyncio.sleep(SETTLE_SECONDS)
            yield answers
            await asyncio.sleep(SETTLE_SECONDS)
        failures = [answer for answer in answers if answer.error]
        phase = Phase(
            name=name,
            seconds=round(time.monotonic() - began, 1),
            requests=len(answers),
            failed=len(failures),
            errors=[failure.error for failure in failures[:MAX_ERRORS]],
        )
        self.phases.append(phase)
        log_progress(f"{name}: {phase.failed} of {phase.requests} failed {phase.errors[:2]}")

    async def _record_mirror(self) -> None:
        """Record the route of the mirror while it exists; raybus may make none."""
        name = f"{NAME}-httproute-mirror"

        async def is_decided() -> bool:
            status = await self.service.status()
            share = status.get("pendingServiceStatus", {}).get("trafficRoutedPercent", 0)
            return bool(share or self.history.of(name))

        await eventually_true(is_decided, within=TIMEOUT, every=0.1, what="a mirror or a step")
        await asyncio.sleep(SETTLE_SECONDS)
        await self.record("HTTPRoute of the mirror", HTTP_ROUTE, name)

    async def _preview(self, new: str) -> Preview:
        """Ask with and without the header."""
        asked = 40
        with_header = [
            await self._client.ask(HOST, headers={HEADER[0]: HEADER[1]}) for _ in range(asked)
        ]
        without = [await self._client.ask(HOST) for _ in range(asked)]
        return Preview(
            with_header=asked,
            with_header_at_new=sum(answer.cluster == new for answer in with_header),
            without_header=asked,
            without_header_at_new=sum(answer.cluster == new for answer in without),
        )

    async def _resume(self) -> None:
        """Approve the pause as a user does."""
        command = [sys.executable, "-m", "raybus_cli.main", "resume", NAME, "-n", BACKGROUND]
        environment = os.environ | {"KUBECONFIG": str(self._found.control_plane.kubeconfig)}
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=sys.stderr.fileno()
        )
        assert await process.wait() == 0, "raybus resume failed"

    async def _find_copies(self, answers: list[LoadAnswer], began: float) -> Mirroring:
        appeared, gone = self.history.life(f"{NAME}-httproute-mirror", since=began)
        meanwhile = [
            answer
            for answer in answers
            if appeared and appeared + SETTLE_SECONDS <= answer.began < gone - SETTLE_SECONDS
        ]
        copies = sum(len(self.backends.takers[answer.number]) > 1 for answer in meanwhile)
        events = msgspec.json.decode(await self._found.kube.list(EVENT, BACKGROUND))["items"]
        reasons = {event["reason"] for event in events if "Mirror" in event["reason"]}
        return Mirroring(
            asked_percent=MIRROR_PERCENT,
            requests=len(meanwhile),
            copies=copies,
            reasons=sorted(reasons),
        )


async def run(options: argparse.Namespace, work: Path) -> Report:
    """Carry out the run."""
    program = GATEWAYS[options.gateway]
    crds = [prepared(name) for name in program.crds]
    async with (
        stack.started(
            work,
            options.logs,
            log_progress,
            is_audited=False,
            gateway_crds=crds,
            metrics_port=METRICS_PORT,
        ) as found,
        connected(program.url) as client,
    ):
        ground = GatewayGround(
            control_plane=found.control_plane,
            kube=found.kube,
            work=work,
            logs=options.logs,
            namespace=BACKGROUND,
            gateway=f"{NAME}-gateway",
        )
        async with program.start(program, ground):
            for service in SERVICES:
                found.fleet.scale(service, 1)
            await found.fleet.ready()
            log_progress("all services are ready")
            trial = Trial(found, program, client)
            pods = ApiFeed(found.kube, {POD.kind: POD}, namespace=BACKGROUND)
            routes = ApiFeed(found.kube, {HTTP_ROUTE.kind: HTTP_ROUTE}, namespace=BACKGROUND)
            async with asyncio.TaskGroup() as group:
                following = [
                    group.create_task(pods.follow(0, trial.backends)),
                    group.create_task(routes.follow(0, trial.history)),
                ]
                try:
                    return await _carry_out(trial, program)
                finally:
                    (options.logs / "statuses.json").write_bytes(
                        msgspec.json.format(msgspec.json.encode(trial.statuses))
                    )
                    for task in following:
                        task.cancel()


async def _carry_out(trial: Trial, program: GatewayProgram) -> Report:
    await trial.begin()
    log_progress("the gateway answers")
    await trial.probe.begin()
    delays = await trial.probe.measure_delays()
    first_use = await trial.probe.measure_first_use()
    session = await trial.probe.measure_session()
    copies = await trial.probe.measure_mirror()
    log_progress(f"{first_use} {session} {copies}")
    await trial.upgrade_in_steps()
    await trial.roll_back()
    preview, mirroring = await trial.preview_and_mirror()
    log_progress(f"{preview} {mirroring}")
    await trial.upgrade_at_once()
    await trial.record_more()
    return Report(
        gateway=program.name,
        version=program.version,
        phases=trial.phases,
        delays=delays,
        first_use=first_use,
        copies=copies,
        preview=preview,
        mirroring=mirroring,
        session=session,
        statuses=trial.statuses,
    )


def main() -> None:
    """Enter a network of our own and print what was measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gateway", choices=sorted(GATEWAYS), required=True)
    parser.add_argument(
        "--logs", type=Path, required=True, metavar="DIR", help="where the logs of the processes go"
    )
    options = parser.parse_args()
    isolate("integration.gateways.run")
    with tempfile.TemporaryDirectory(prefix="raybus-gateways-") as work:
        print_result(asyncio.run(run(options, Path(work))))


if __name__ == "__main__":
    main()
