"""`raybus undo` and `raybus history` on a real API server, after the old cluster was deleted."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from pathlib import Path
from typing import Any

import msgspec
import pytest

from common import labels
from common.api.opaque import Body
from common.kube.client import PatchRequest
from common.kube.resources import CONTROLLER_REVISION, RAY_CLUSTER, RAY_SERVICE
from integration.service_reconciler.conftest import Live
from integration.service_reconciler.test_life import active, is_complete
from localcluster.control_plane import ControlPlane
from support.builders.ray_service import a_cluster_config, a_serve_config

pytestmark = [pytest.mark.integration]
IMAGES = [f"rayproject/ray:2.5{number}.0" for number in range(2, 6)]


class User:
    """A user with a kubeconfig."""

    def __init__(self, live: Live, kubeconfig: Path) -> None:
        self._live = live
        self._kubeconfig = kubeconfig

    async def raybus(self, *arguments: str) -> str:
        """Run a command; return what it printed."""
        program = str(Path(sys.executable).with_name("raybus"))
        where = ("-n", self._live.namespace, "--kubeconfig", str(self._kubeconfig))
        running = await asyncio.create_subprocess_exec(
            program, *arguments, *where, stdout=PIPE, stderr=PIPE
        )
        out, errors = await running.communicate()
        assert running.returncode == 0, errors.decode()
        return out.decode()

    async def history(self) -> list[tuple[int, str, str, bool]]:
        """Return number, cluster, image and whether it is current, of each stored spec."""
        found: list[Any] = msgspec.json.decode(await self.raybus("history", "demo", "-o", "json"))
        return [
            (each["number"], each["cluster"], each["image"], each["isCurrent"]) for each in found
        ]


async def goals(live: Live) -> list[Body]:
    """Read the records of specs, oldest first."""
    found = [each for each in await live.found(CONTROLLER_REVISION) if "spec" in each["data"]]
    return sorted(found, key=lambda each: each["revision"])


async def upgrade(live: Live, image: str, message: str = "v1") -> str:
    """Upgrade the service to another image and wait for the old cluster's deletion; return the new
    cluster.
    """
    old = active((await live.service())["status"])
    await live.patch(
        rayClusterConfig=a_cluster_config(image=image),
        serveConfigV2=a_serve_config(message=message),
    )
    return await at_rest(live, old)


async def at_rest(live: Live, old: str = "") -> str:
    """Wait until another cluster serves alone."""
    new = active(
        await live.until(lambda s: is_complete(s) and active(s) != old, "another cluster serves")
    )
    await live.eventually(RAY_CLUSTER, [new])
    return new


async def test_a_spec_comes_back_although_its_cluster_is_gone(
    live: Live, control_plane: ControlPlane
) -> None:
    user = User(live, control_plane.kubeconfig)
    await live.apply(rayClusterDeletionDelaySeconds=1)
    await at_rest(live)
    green = await upgrade(live, IMAGES[1], "v2")
    assert await user.history() == [(1, "", IMAGES[0], False), (2, green, IMAGES[1], True)]

    version = (await live.service())["metadata"]["resourceVersion"]
    tried = await user.raybus("undo", "demo", "--dry-run")
    assert tried.startswith(f"RayService {live.namespace}/demo: new cluster\n")
    assert "rayservice.ray.io/demo rolled back (dry run: nothing is changed; " in tried
    assert tried.endswith("would be restored from revision 1: a new cluster starts)\n")
    assert (await live.service())["metadata"]["resourceVersion"] == version

    done = await user.raybus("undo", "demo")
    assert "spec.rayClusterConfig.headGroupSpec.template.spec.containers[0].image" in done
    blue = await at_rest(live, green)
    assert live.serve.head(f"{blue}-head-svc").puts[-1]["applications"][0]["runtime_env"][
        "env_vars"
    ] == {"MESSAGE": "v1"}
    assert await user.history() == [(2, "", IMAGES[1], False), (3, blue, IMAGES[0], True)]


async def test_as_many_are_kept_as_the_user_sets_and_they_are_deleted_with_the_service(
    live: Live,
) -> None:
    service = await live.apply(rayClusterDeletionDelaySeconds=1)
    noted = PatchRequest(body={"metadata": {"annotations": {labels.HISTORY_LIMIT: "1"}}})
    await live.kube.patch(RAY_SERVICE, live.namespace, "demo", noted)
    await at_rest(live)
    for image in IMAGES[1:3]:
        await upgrade(live, image)
    held = await goals(live)
    assert [each["revision"] for each in held] == [2, 3]
    assert {each["metadata"]["ownerReferences"][0]["uid"] for each in held} == {
        service["metadata"]["uid"]
    }
    await live.kube.delete(RAY_SERVICE, live.namespace, "demo")
    await live.eventually(RAY_SERVICE, [])
    await live.eventually(CONTROLLER_REVISION, [])
