"""Each overlay on a clean API server: installed as a user does, installed again, and removed.

Users keep their own objects.
"""

import json
from pathlib import Path

import pytest
import yaml

from localcluster import processes
from localcluster.control_plane import ControlPlane
from support import leftovers
from support.builders.ray_service import a_cluster_config, a_ray_service
from support.manifests import DEPLOY, NAMESPACE, Document

pytestmark = [pytest.mark.integration]

KUBERAY = "ray-system"
"""Namespace in which the overlay `migration` expects KubeRay."""
USERS = "team-a"


class Cluster:
    """A cluster as kubectl shows it."""

    def __init__(self, kubectl: Path, control_plane: ControlPlane) -> None:
        self._kubectl = [str(kubectl), "--kubeconfig", str(control_plane.kubeconfig)]

    async def run(self, *arguments: str) -> str:
        """Run a command that must succeed."""
        done = await processes.run([*self._kubectl, *arguments])
        assert done.code == 0, done.errors
        return done.output

    async def apply(self, folder: str) -> list[str]:
        """Apply a folder, strictly, and return its lines."""
        command = ["apply", "--validate=strict", "-k", str(DEPLOY / folder)]
        done = await processes.run([*self._kubectl, *command])
        assert (done.code, done.errors) == (0, "")
        return done.output.splitlines()

    async def contents(self, folder: str) -> dict[str, Document]:
        """Return the objects of a folder, without the fields that the API server and controllers
        set.

        kubectl's output is no substitute: it reports some kinds as configured each time, since it
        sends their lists as a whole.
        """
        found = json.loads(await self.run("get", "-k", str(DEPLOY / folder), "-o", "json"))["items"]
        return {f"{each['kind']} {each['metadata']['name']}": _essence(each) for each in found}

    async def delete(self, folder: str) -> None:
        """Delete the objects of a folder, as in docs/installation.md."""
        await self.run("delete", "-k", str(DEPLOY / folder), "--ignore-not-found", "--timeout=60s")

    async def release(self) -> None:
        """Handle finalizers as the page describes."""
        command = leftovers.release().replace("kubectl", " ".join(self._kubectl))
        done = await processes.run(["bash", "-c", command])
        assert done.code == 0, done.errors


def _essence(body: Document) -> Document:
    metadata = {
        "labels": body["metadata"].get("labels"),
        "generation": body["metadata"].get("generation"),
    }
    return {
        **{name: value for name, value in body.items() if name != "status"},
        "metadata": metadata,
    }


async def add_users_objects(cluster: Cluster, folder: Path) -> None:
    """Create objects of users, with the finalizers that raybus sets while it works."""
    service = a_ray_service()
    service["metadata"] |= {"namespace": USERS, "finalizers": ["ray.io/rayservice-finalizer"]}
    metadata = {
        "name": "mine",
        "namespace": USERS,
        "finalizers": ["ray.io/gcs-ft-redis-cleanup-finalizer"],
    }
    spec = a_cluster_config()
    mine = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": spec}
    other = {
        **mine,
        "metadata": {**metadata, "name": "other", "finalizers": ["example.com/theirs"]},
    }
    (folder / "users.yaml").write_text(yaml.safe_dump_all([service, mine, other]))
    await cluster.run("create", "namespace", USERS)
    await cluster.run("apply", "-f", str(folder / "users.yaml"))


@pytest.mark.long_running
@pytest.mark.parametrize("overlay", ["local", "production", "namespaced", "migration", "openshift"])
async def test_an_installation_comes_and_goes(
    overlay: str, kubectl_binary: Path, tmp_path: Path
) -> None:
    async with ControlPlane.started(tmp_path / "cluster") as control_plane:
        cluster = Cluster(kubectl_binary, control_plane)
        if overlay == "migration":
            await cluster.run("create", "namespace", KUBERAY)
        folders = ("crds", "admission", f"overlays/{overlay}")
        for folder in folders:
            assert {line.rpartition(" ")[2] for line in await cluster.apply(folder)} == {"created"}
        contents = [await cluster.contents(folder) for folder in folders]
        again = {
            line.rpartition(" ")[2] for folder in folders for line in await cluster.apply(folder)
        }
        assert again <= {"unchanged", "configured"}
        assert [await cluster.contents(folder) for folder in folders] == contents
        await add_users_objects(cluster, tmp_path)
        before = await leftovers.uids(cluster.run, USERS, "rayservices,rayclusters")
        for folder in reversed(folders[1:]):
            await cluster.delete(folder)
        assert await leftovers.of_raybus(cluster.run) == []
        assert await leftovers.uids(cluster.run, USERS, "rayservices,rayclusters") == before


async def test_what_is_released_can_be_deleted_and_others_keep_their_hold(
    kubectl_binary: Path, tmp_path: Path
) -> None:
    async with ControlPlane.started(tmp_path / "cluster", crds=DEPLOY / "crds") as control_plane:
        cluster = Cluster(kubectl_binary, control_plane)
        await add_users_objects(cluster, tmp_path)
        await cluster.release()
        await cluster.run("delete", "rayservices,rayclusters", "--all", "-n", USERS, "--wait=false")
        left = await leftovers.uids(cluster.run, USERS, "rayservices,rayclusters")
        assert list(left) == ["RayCluster other"]


def test_the_page_names_our_namespace() -> None:
    assert f"-n {NAMESPACE} " in (DEPLOY.parent / "docs" / "installation.md").read_text()
