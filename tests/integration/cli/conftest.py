"""The command line on a real API server: a namespace with objects in made-up states, without any reconciler."""

import json
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
import pytest
from typer.testing import CliRunner, Result

from common import errors, labels
from common.api.opaque import Body, Json
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import (
    CONTROLLER_REVISION,
    EVENT,
    NAMESPACE,
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from common.ray import spec_hash
from localcluster.control_plane import ControlPlane
from raybus_cli import main
from support.builders import snapshots


class Done(msgspec.Struct, frozen=True):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """Return its standard output, read as JSON."""
        return json.loads(self.out)


class CliNamespace:
    """A namespace, and the command line pointed at it."""

    def __init__(self, kube: KubeClient, kubeconfig: Path, namespace: str) -> None:
        self.kube = kube
        self.kubeconfig = kubeconfig
        self.namespace = namespace

    def raybus(self, *arguments: str, stdin: str = "", kubeconfig: Path | None = None) -> Done:
        """Run the command line without a terminal, in a thread of its own, for it has an event loop of its own."""
        env = {"KUBECONFIG": str(kubeconfig or self.kubeconfig), "COLUMNS": "160", "NO_COLOR": "1"}
        place = (
            ()
            if "-A" in arguments or arguments[0] in {"doctor", "lint"}
            else ("-n", self.namespace)
        )
        command = [*arguments, *place]

        def run() -> Result:
            return CliRunner().invoke(main.build(arguments[0]), command, input=stdin, env=env)

        with ThreadPoolExecutor(max_workers=1) as pool:
            done = pool.submit(run).result()
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Done(done.exit_code, done.stdout, done.stderr)

    async def put(self, resource: Resource, body: Body) -> Body:
        """Create an object with the status that it has."""
        made: Body = {key: value for key, value in body.items() if key != "status"}
        meta: Json = {
            key: value for key, value in body["metadata"].items() if key not in _SERVER_OWNED
        }
        made["metadata"] = {**meta, "namespace": self.namespace}
        made |= {"apiVersion": resource.api_version, "kind": resource.kind}
        stored: Body = msgspec.json.decode(await self.kube.create(resource, self.namespace, made))
        if "status" not in body:
            return stored
        patch = PatchRequest(body={"status": body["status"]}, subresource="status")
        return msgspec.json.decode(
            await self.kube.patch(resource, self.namespace, meta["name"], patch)
        )

    async def service(self, name: str = "demo") -> Body:
        """Read a RayService."""
        return msgspec.json.decode(await self.kube.get(RAY_SERVICE, self.namespace, name))

    async def settle(self, service: Body, *clusters: Body, pods: tuple[Body, ...] = ()) -> None:
        """Create a RayService with its clusters, their pods, Services and records."""
        for each in clusters:
            made = await self.put(RAY_CLUSTER, each)
            name = made["metadata"]["name"]
            stamp = {
                labels.SPEC_HASH: spec_hash.service_goal_hash(made["spec"])
            }  # of the spec with the server's defaults
            patch = PatchRequest(body={"metadata": {"annotations": stamp}})
            await self.kube.patch(RAY_CLUSTER, self.namespace, name, patch)
            record = snapshots.a_revision(name, service["spec"]["serveConfigV2"])
            record["metadata"]["labels"] = {
                "ray.io/cluster": name,
                "raybus.io/record": "serve-config",
            }
            record["metadata"]["ownerReferences"][0] |= {
                "uid": made["metadata"]["uid"],
                "apiVersion": "ray.io/v1",
            }
            await self.put(CONTROLLER_REVISION, record)
        for each in pods:
            each["spec"]["schedulerName"] = "nobody"
            await self.put(POD, each)
        await self.put(RAY_SERVICE, service)

    async def record_event(self, reason: str, note: str, **fields: Any) -> None:
        """Write an Event as a controller does."""
        body = snapshots.an_event(reason, note, **fields)
        body["metadata"]["name"] = f"{reason.lower()}-{uuid4().hex[:5]}"
        body |= {"action": "Test", "reportingController": "test", "reportingInstance": "test"}
        body["eventTime"] = body["eventTime"].replace("Z", ".000000Z")
        body["regarding"]["namespace"] = self.namespace
        await self.put(EVENT, body)

    async def front(self, cluster: str) -> None:
        """Create the RayService's two Services as they select a cluster."""
        for name in ("demo-serve-svc", "demo-head-svc"):
            body = snapshots.a_selector_service(cluster, name)
            marks = {
                "ray.io/originated-from-cr-name": "demo",
                "ray.io/originated-from-crd": "RayService",
            }
            body["metadata"]["labels"] = marks
            await self.put(SERVICE, body)


_SERVER_OWNED = {"uid", "resourceVersion", "generation", "creationTimestamp", "finalizers"}


@pytest.fixture
async def scope(control_plane: ControlPlane) -> AsyncGenerator[CliNamespace]:
    """Make a namespace of its own."""
    kube = await KubeClient.connect(kubeconfig=control_plane.kubeconfig, user_agent="raybus-test")
    namespace = f"cli-{uuid4().hex[:8]}"
    await kube.create(NAMESPACE, None, {"metadata": {"name": namespace}})
    try:
        yield CliNamespace(kube, control_plane.kubeconfig, namespace)
    finally:
        with suppress(errors.RaybusError):
            await kube.delete(NAMESPACE, None, namespace)
        await kube.close()
