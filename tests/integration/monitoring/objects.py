"""The watched RayServices and RayClusters, and operations on them."""

from typing import Any, Final

import msgspec

from bench.rig import BACKGROUND
from common import errors, names
from common.api.opaque import Body, Json
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE
from support.builders.ray_service import (
    a_cluster_config,
    a_group,
    a_ray_service,
    a_serve_config,
    a_strategy,
)
from support.waiting import eventually_true

FIRST: Final = "rayproject/ray:2.52.0"
IMPORT_PATH: Final = "app:main"
TIMEOUT: Final = 180.0


def a_config(image: str) -> Json:
    """Return the spec of a cluster with a head and a worker."""
    return a_cluster_config(
        a_group(minReplicas=1, replicas=1), image=image, enableInTreeAutoscaling=True
    )


def a_service(
    name: str, *, interval: int | None, delay: int = 0, import_path: str = IMPORT_PATH, **more: Any
) -> Body:
    """Return a RayService that is upgraded in steps, `interval` seconds apart, or at once where that is None.

    `delay`: seconds until an old cluster is deleted.
    """
    if interval is not None:
        more["upgradeStrategy"] = a_strategy(surge=50, step=25, interval=interval)
    serve = a_serve_config(import_path=import_path)
    body = a_ray_service(
        name=name, config=a_config(FIRST), serve=serve, rayClusterDeletionDelaySeconds=delay, **more
    )
    del body["metadata"]["namespace"]
    return body


def a_cluster(name: str, *, port: int = 6379) -> Body:
    """Return a RayCluster; a port beyond 65535 is one that the API server refuses."""
    spec = a_cluster_config()
    spec["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"] = [
        {"name": "gcs-server", "containerPort": port}
    ]
    return {
        "apiVersion": RAY_CLUSTER.api_version,
        "kind": RAY_CLUSTER.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


async def change(kube: KubeClient, name: str, config: Json, *, serve: str = "") -> None:
    """Give a RayService another cluster spec, and another Serve config if there is one."""
    spec: Json = {"rayClusterConfig": config} | ({"serveConfigV2": serve} if serve else {})
    await _patch(kube, name, {"spec": spec})


async def annotate(kube: KubeClient, name: str, annotations: dict[str, str | None]) -> None:
    """Set annotations of a RayService; None takes one away."""
    await _patch(kube, name, {"metadata": {"annotations": annotations}})


async def _patch(kube: KubeClient, name: str, body: Json) -> None:
    """Patch a RayService; retry while the API server is late."""

    async def is_taken() -> bool:
        try:
            await kube.patch(RAY_SERVICE, BACKGROUND, name, PatchRequest(body=body))
        except errors.Retryable:
            return False
        return True

    await eventually_true(is_taken, what=f"a patch of RayService {name}")


async def until_served(kube: KubeClient, name: str, *, within: float, other_than: str = "") -> str:
    """Wait until a single cluster serves a RayService, other than `other_than`; return its name."""
    cluster = ""

    async def serves() -> bool:
        nonlocal cluster
        try:
            body: Body = msgspec.json.decode(await kube.get(RAY_SERVICE, BACKGROUND, name))
        except errors.Retryable:  # the API server of a busy machine is late at times
            return False
        status: Json = body.get("status", {})
        cluster = status.get("activeServiceStatus", {}).get("rayClusterName", "")
        is_alone = not status.get("pendingServiceStatus", {}).get("rayClusterName", "")
        return (
            status.get("serviceStatus") == "Running"
            and is_alone
            and cluster not in {"", other_than}
        )

    await eventually_true(
        serves,
        within=within,
        what=f"RayService {name} on a cluster other than {other_than or 'none'}",
    )
    return cluster


class Demo:
    """A RayService that is upgraded in steps repeatedly."""

    def __init__(self, kube: KubeClient, name: str) -> None:
        self.name = name
        self._kube = kube
        self._version = 0
        self._good = 0
        """Number of the newest version that serves."""
        self._cluster = ""

    async def begin(self) -> None:
        """Create the RayService, and wait until it serves."""
        annotations = {"raybus.io/drain-timeout": "1s"}
        await self._kube.create(
            RAY_SERVICE, BACKGROUND, a_service(self.name, interval=1, annotations=annotations)
        )
        self._cluster = await until_served(self._kube, self.name, within=TIMEOUT)

    async def upgrade(self, *, import_path: str = IMPORT_PATH) -> None:
        """Ask for a new cluster."""
        self._version += 1
        await self._ask(self._version, import_path)

    async def fix(self) -> None:
        """Give the requested version an application that starts."""
        await self._ask(self._version, IMPORT_PATH)

    async def revert(self) -> None:
        """Return to the serving version."""
        await self._ask(self._good, IMPORT_PATH)

    async def annotate(self, annotations: dict[str, str | None]) -> None:
        """Set annotations; None takes one away."""
        await annotate(self._kube, self.name, annotations)

    async def replace_rules(self) -> None:
        """Write the rules of its route as a tool does that has a manifest of its own."""
        rules = [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}]
        await self._kube.patch(
            HTTP_ROUTE,
            BACKGROUND,
            names.http_route(self.name),
            PatchRequest(body={"spec": {"rules": rules}}),
        )

    async def served(self) -> None:
        """Wait until the last requested version serves alone."""
        self._cluster = await until_served(
            self._kube, self.name, within=TIMEOUT, other_than=self._cluster
        )
        self._good = self._version

    async def at_rest(self) -> None:
        """Wait until one cluster serves alone, whichever it is."""
        self._cluster = await until_served(self._kube, self.name, within=TIMEOUT)

    async def _ask(self, version: int, import_path: str) -> None:
        serve = a_serve_config(import_path=import_path, message=f"v{version}")
        await change(
            self._kube, self.name, a_config(f"rayproject/ray:2.{52 + version}.0"), serve=serve
        )
