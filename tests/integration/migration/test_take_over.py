"""We take RayServices over that KubeRay left: at rest nothing happens to them, an upgrade goes on from where it stands.

The way back needs KubeRay's operator itself: `rehearsal.py` goes both ways.
"""

from collections.abc import Sequence

import pytest

from common.api.opaque import Body, Json
from common.runtime.key import Key
from integration.migration import cast_of
from integration.migration.conftest import KubeRayNamespace, working
from support.kuberay import objects, trees
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]


def keys(legacy: KubeRayNamespace, some: Sequence[Body], kind: str) -> list[Key]:
    return [
        Key(legacy.namespace, each["metadata"]["name"]) for each in some if each["kind"] == kind
    ]


@pytest.mark.parametrize("name", [cast_of.BLUE_GREEN, cast_of.STEPS])
async def test_taking_over_a_service_at_rest_changes_nothing(
    legacy: KubeRayNamespace, name: str
) -> None:
    before = await legacy.inherit(name)
    async with working(legacy) as reconcilers:
        await reconcilers.have_reconciled(
            keys(legacy, before, "RayService"), keys(legacy, before, "RayCluster")
        )
        after = await legacy.read()
    sides = (trees.stable(some) for some in (before, after))
    found = [each for each in objects.differences(*sides) if cast_of.is_theirs(each)]
    assert found == []
    for head in legacy.serve.heads.values():
        assert all(put == head.puts[0] for put in head.puts), "another Serve config was sent"
    for each in reconcilers.own.writes():
        assert "httproutes" in each or "controllerrevisions" in each or "/status" in each, each


async def test_an_upgrade_goes_on_from_where_it_stands(legacy: KubeRayNamespace) -> None:
    name = cast_of.MOVING
    before = await legacy.inherit(name)
    began = share_of(before, name)
    assert 0 < began < 100
    seen: list[int] = []

    async def is_over() -> bool:
        status = status_of(await legacy.read(), name)
        pending: Json = status.get("pendingServiceStatus") or {}
        seen.extend(
            [int(pending.get("trafficRoutedPercent") or 0)] if pending.get("rayClusterName") else []
        )
        return not pending.get("rayClusterName")

    async with working(legacy):
        await eventually_true(is_over, within=120, every=0.2, what="the end of the upgrade")
        after = await legacy.read()
    assert seen[0] >= began
    assert seen == sorted(seen), "the traffic went back"
    assert cast_of.lost(before, after) == []
    pending = status_of(before, name)["pendingServiceStatus"]["rayClusterName"]
    assert status_of(after, name)["activeServiceStatus"]["rayClusterName"] == pending


def status_of(some: Sequence[Body], name: str) -> Json:
    found = (
        each for each in some if (each["kind"], each["metadata"]["name"]) == ("RayService", name)
    )
    return next(found).get("status", {})


def share_of(some: Sequence[Body], name: str) -> int:
    return cast_of.share(status_of(some, name))
