"""Every object that we make of a manifest is KubeRay's, field for field, as read back from a real API server.

The expected side are the objects that KubeRay's own operator made on such a server (`tests/golden/kuberay`); what
`support.kuberay.objects.comparable` leaves out is all that may differ. Spec raycluster §8-§12, §17.
"""

import asyncio
from pathlib import Path

import pytest

from common.api.opaque import Body
from integration.cluster_reconciler.conftest import Live, running
from localcluster.control_plane import ControlPlane
from support.kuberay import goldens, objects
from support.kuberay.certifying import certify
from support.kuberay.placing import place
from support.kuberay.settings import SETTINGS, Setting

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("scheduler_kinds")]

TIMEOUT = 60.0
GANG = "/scheduling.volcano.sh/v1beta1 PodGroup ray-elastic-pg/spec/minResources"
INTENDED = {
    # a cluster without a head keeps the hash of its spec on its workers
    "plain": {f"/v1 Pod recreate worker g {index}/metadata/annotations" for index in (0, 1)},
    # a gang has room for the autoscaler's container, too
    "volcano": {f"{GANG}/cpu", f"{GANG}/memory"},
}
"""Where objects differ on purpose (docs/kuberay-map.md)."""


@pytest.mark.acceptance("raycluster", 116, 117)
@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
async def test_our_objects_are_kuberays(
    control_plane: ControlPlane, tmp_path: Path, setting: Setting
) -> None:
    bus = (
        tmp_path if setting.name == "plain" else None
    )  # once through watcher and NATS: what they trim is not missed
    async with (
        running(control_plane, setting.config(), bus=bus) as live,
        asyncio.TaskGroup() as group,
    ):
        others = [group.create_task(each(live.kube, live.namespace)) for each in (place, certify)]
        users = goldens.users(setting.folder)
        await live.apply_all(users)
        theirs = goldens.everything(setting, namespace=live.namespace)
        intended = INTENDED.get(setting.name, set())
        await until_equal(live, objects.comparable(theirs), intended)
        assert goldens.strays(await objects.read(live.kube, live.namespace), users) == []
        for each in others:
            each.cancel()


def test_a_difference_is_seen() -> None:
    """The comparison cannot be blind: each object, and each leaf of one, is missed when it is away."""
    theirs = objects.comparable(goldens.load(SETTINGS[0], "everything", namespace="ns"))
    kinds = sorted(body["kind"] for body in theirs.values())
    assert kinds == [
        *["Ingress"],
        *["Pod"] * 5,
        *["RayCluster", "Role", "RoleBinding", "Secret"],
        *["Service"] * 3,
        *["ServiceAccount"],
    ]
    for key, body in theirs.items():
        rest = {other: each for other, each in theirs.items() if other != key}
        assert objects.differences(theirs, rest) == [objects.missing(f"/{key}", body)]
        changed = {
            **theirs,
            key: {**body, "metadata": {**body["metadata"], "labels": {"another": "label"}}},
        }
        assert objects.differences(theirs, changed)


async def until_equal(live: Live, theirs: dict[str, Body], intended: set[str]) -> None:
    """Wait until our objects differ from KubeRay's only as intended; else fail with the differences."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + TIMEOUT
    while True:
        ours = objects.comparable(goldens.owned(await objects.read(live.kube, live.namespace)))
        found = objects.differences(theirs, ours)
        if {each.partition(": ")[0] for each in found} == intended:
            return
        if loop.time() > deadline:
            raise AssertionError("\n".join(found))
        await asyncio.sleep(0.3)
