"""raybus in containers by docker-compose.yml, on a Docker engine and a real API server."""

import shutil
import subprocess
from collections.abc import AsyncGenerator, Generator
from pathlib import Path
from typing import Final, TypeVar

import msgspec
import pytest
import pytest_asyncio
from testcontainers.compose import DockerCompose

from common import labels
from common.api.core import Pod
from common.api.meta import Items, ObjectMeta
from common.kube.client import KubeClient
from common.kube.resources import LEASE, POD, RAY_CLUSTER, RAY_JOB, RAY_SERVICE, Resource
from common.runtime import ownership
from localcluster.control_plane import ControlPlane
from localcluster.demo.demo_cluster import RAYBUS_IMAGES
from localcluster.images import builder
from localcluster.progress import Progress
from raybus_cli.doctor.facts import Lease
from support.builders.ray_service import a_cluster_config, a_ray_service
from support.manifests import DEPLOY, ROOT, SERVICES
from support.servers import docker
from support.servers.docker import Engine
from support.waiting import eventually_true

PROJECT: Final = "raybus-test"
FILES: Final = ("docker-compose.yml", "examples/python/docker-compose.yml")
PARTS: Final = ("nats", "provisioner", *SERVICES, "subscriber")
NAMESPACE: Final = "default"
UP_SECONDS: Final = 180.0
ObjectT = TypeVar("ObjectT")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of this folder."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.containers)


class Installation:
    """The containers of raybus and of the example subscriber, and the API server."""

    def __init__(self, engine: Engine, compose: DockerCompose, control_plane: ControlPlane) -> None:
        self.engine = engine
        self.compose = compose
        self.control_plane = control_plane

    def up(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `docker compose up --wait`."""
        command = [*self.compose.docker_compose_command(), "up", "--wait", *arguments]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=UP_SECONDS
        )

    def health(self) -> dict[str, str]:
        """Return the health of each container by its name; the subscriber has no health check."""
        return {
            str(container.Name): str(container.Health or container.State)
            for container in self.compose.get_containers()
        }

    def crash(self, service: str) -> None:
        """Kill the process of a service's container."""
        self.engine.crash(str(self.compose.get_container(service).ID))

    def started_at(self, service: str) -> str:
        """Return when the process of a service's container started, as a text that sorts."""
        container = str(self.compose.get_container(service, include_all=True).ID)
        return self.engine.run("inspect", "--format", "{{.State.StartedAt}}", container)

    def has_reported(self, *words: str) -> bool:
        """Return whether the subscriber has written a line with all the words."""
        out, _ = self.compose.get_logs("subscriber")  # its lines have the name of the container
        return any(all(word in line.split() for word in words) for line in out.splitlines())

    def list_leftovers(self) -> list[str]:
        """Return the containers, volumes and networks of the project."""
        own = ["--quiet", "--filter", f"label=com.docker.compose.project={PROJECT}"]
        listed = [
            self.engine.run(*kind, "ls", *own) for kind in (["container"], ["volume"], ["network"])
        ]
        return "".join(listed).split()


class Named(msgspec.Struct, frozen=True):
    """An object of which the name matters."""

    metadata: ObjectMeta


class Users:
    """Users of the installation, who reach the API server."""

    def __init__(self, kube: KubeClient, installation: Installation) -> None:
        self.kube = kube
        self._installation = installation

    async def until_served(self, name: str, *, within: float = 60.0) -> None:
        """Create a RayService and a RayJob, and wait for all that raybus does first.

        That is a RayCluster with its pods for each, and an event about the job.
        """
        await self.kube.create(RAY_SERVICE, NAMESPACE, a_ray_service(name=f"{name}-service"))
        spec = {"entrypoint": "true", "rayClusterSpec": a_cluster_config()}
        job = {"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": f"{name}-job"}}
        await self.kube.create(RAY_JOB, NAMESPACE, {**job, "spec": spec})
        for owner in (f"{name}-service", f"{name}-job"):
            await self._until_pods_run(owner, within=within)

        async def is_reported() -> bool:
            return self._installation.has_reported(f"{name}-job", "job.submitted")

        await eventually_true(is_reported, within=within, what=f"the event of {name}-job")

    async def _until_pods_run(self, owner: str, *, within: float) -> None:
        """Wait until the head and the worker of the owner's RayCluster run."""

        async def run() -> bool:
            origin = f"{labels.ORIGIN_NAME}={owner}"
            clusters = await self._list(RAY_CLUSTER, Named, origin)
            chosen = ",".join(cluster.metadata.name for cluster in clusters)
            pods = await self._list(POD, Pod, f"{labels.CLUSTER} in ({chosen})") if chosen else []
            return [pod.status.phase for pod in pods] == ["Running", "Running"]

        await eventually_true(run, within=within, what=f"the pods of {owner}")

    async def _list(self, resource: Resource, kind: type[ObjectT], selector: str) -> list[ObjectT]:
        body = await self.kube.list(resource, NAMESPACE, label_selector=selector)
        return msgspec.json.decode(body, type=Items[kind]).items

    async def read_partitions(self, service: str) -> list[frozenset[int]]:
        """Return the partitions that each replica of a service holds."""
        leases = msgspec.json.decode(await self.kube.list(LEASE, NAMESPACE), type=Items[Lease])
        return [
            ownership.parse_partitions(lease.metadata.annotations.get(labels.PARTITIONS, ""))
            or frozenset()
            for lease in leases.items
            if lease.metadata.labels.get(labels.REPLICA_OF) == service
        ]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Generator[Engine]:
    """Provide an engine without images."""
    with docker.engine(tmp_path_factory.mktemp("engine")) as provided:
        yield provided


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def installation(
    engine: Engine, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Installation]:
    """Run an API server and load the images; no container runs yet."""
    folder = tmp_path_factory.mktemp("containers")
    engine.load(builder.ensure(RAYBUS_IMAGES, progress=Progress.to_stderr(), checkout=ROOT))
    with pytest.MonkeyPatch.context() as environment:
        async with ControlPlane.started(
            folder / "control-plane", crds=DEPLOY / "crds", scheduler=True, kwok_nodes=1
        ) as control_plane:
            kubeconfig = folder / "kubeconfig"
            shutil.copyfile(control_plane.kubeconfig, kubeconfig)
            kubeconfig.chmod(0o644)
            environment.setenv("KUBECONFIG", str(kubeconfig))
            environment.setenv("COMPOSE_PROJECT_NAME", PROJECT)
            compose = DockerCompose(ROOT, compose_file_name=list(FILES))
            try:
                yield Installation(engine, compose, control_plane)
            finally:
                compose.stop()


@pytest_asyncio.fixture
async def users(installation: Installation) -> AsyncGenerator[Users]:
    kube = await KubeClient.connect(
        kubeconfig=installation.control_plane.kubeconfig, user_agent="raybus-test"
    )
    try:
        yield Users(kube, installation)
    finally:
        await kube.close()
