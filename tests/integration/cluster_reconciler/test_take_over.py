"""We take running clusters over from KubeRay, and nothing happens to them (spec raycluster §1, §9.3; case 82).

The way back needs KubeRay's operator itself: `tests/golden/kuberay/dump.py` goes both ways.
"""

from functools import partial
from pathlib import Path

import msgspec
import pytest

from common import labels
from common.api.opaque import Body
from common.kube.client import JSON_PATCH, PatchRequest
from common.kube.resources import RAY_CLUSTER
from common.runtime.key import Key
from integration.cluster_reconciler.conftest import Live, running
from localcluster.control_plane import ControlPlane
from support.kuberay import goldens, objects, restoring
from support.kuberay.settings import SETTINGS, Setting, of_name

LASTING = [each for each in SETTINGS if each.name != "mtls"]
"""Certificates follow the addresses of pods, which are new ones here: `dump.py` takes over the very pods."""
pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("scheduler_kinds")]


@pytest.mark.acceptance("raycluster", 82)
@pytest.mark.parametrize("setting", LASTING, ids=lambda setting: setting.name)
async def test_taking_over_changes_nothing(
    control_plane: ControlPlane, tmp_path: Path, setting: Setting
) -> None:
    prepare = partial(restoring.leave, setting=setting)
    bus = tmp_path if setting.name == "plain" else None
    async with running(control_plane, setting.config(), bus=bus, prepare=prepare) as live:
        before = await objects.read(live.kube, live.namespace)
        await all_seen(live, setting)
        after = await objects.read(live.kube, live.namespace)
        pods = f"/api/v1/namespaces/{live.namespace}/pods"
        gangs = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{live.namespace}/podgroups"
        # a gang gets the room of its autoscaler's container
        rewritten = [f"PUT {gangs}/ray-elastic-pg"] if setting.name == "volcano" else []
        patched = [f"PATCH {pods}/{each}" for each in refreshed(before)]
        assert sorted(live.own.writes()) == sorted([*patched, *rewritten])
        assert objects.differences(unrefreshed(before), unrefreshed(after)) == []
        assert await live.reasons() == set()


@pytest.mark.parametrize("name", ["multi-host", "everything"])
async def test_what_was_taken_over_is_reconciled(control_plane: ControlPlane, name: str) -> None:
    setting = of_name("plain")
    async with running(
        control_plane, setting.config(), prepare=partial(restoring.leave, setting=setting)
    ) as live:
        await all_seen(live, setting)
        old = await pod_uids(live, name)
        change: Body = {"op": "replace", "path": "/spec/workerGroupSpecs/1/replicas", "value": 3}
        patch = PatchRequest(body=[change], content_type=JSON_PATCH)
        await live.kube.patch(RAY_CLUSTER, live.namespace, name, patch)
        await live.eventually(
            partial(has_more, live, name, old), "a pod is added, and none is lost"
        )


async def all_seen(live: Live, setting: Setting) -> None:
    """Wait until every cluster was reconciled, and again after all that the first reconciles may have enqueued."""

    async def seen(times: int) -> bool:
        keys = [Key(live.namespace, name) for name in goldens.clusters(setting)]
        return all(live.reconciles.ended[key] >= times for key in keys)

    await live.eventually(partial(seen, 1), "every cluster is reconciled")
    for name in goldens.clusters(setting):
        live.app.controller.queue.add(Key(live.namespace, name))
    await live.eventually(partial(seen, 2), "every cluster is reconciled again")


def refreshed(some: list[Body]) -> list[str]:
    """Return the head pods with a hash that must be written anew: of clusters that are made anew when their spec changes."""
    anew = {
        each["metadata"]["name"]
        for each in some
        if each["kind"] == "RayCluster"
        and each["spec"].get("upgradeStrategy", {}).get("type") == "Recreate"
    }
    return [
        each["metadata"]["name"]
        for each in some
        if each["kind"] == "Pod"
        and each["metadata"]["labels"][labels.NODE_TYPE] == labels.HEAD
        and each["metadata"]["labels"][labels.CLUSTER] in anew
    ]


def unrefreshed(some: list[Body]) -> dict[str, Body]:
    """Return all objects as they are, versions and statuses included, but for what is refreshed."""
    found = {
        f"{each['apiVersion']} {each['kind']} {each['metadata']['name']}": each for each in some
    }
    for name in refreshed(some):
        pod = msgspec.json.decode(msgspec.json.encode(found[f"v1 Pod {name}"]))
        pod["metadata"] |= {"resourceVersion": "", "managedFields": []}
        pod["metadata"]["annotations"][labels.KUBERAY_VERSION] = ""
        found[f"v1 Pod {name}"] = pod
    return found


async def pod_uids(live: Live, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in await live.pods(f"{labels.CLUSTER}={name}")}


async def has_more(live: Live, name: str, old: set[str]) -> bool:
    return await pod_uids(live, name) > old
