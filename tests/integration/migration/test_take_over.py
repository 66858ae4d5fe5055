"""raybus takes over RayServices and RayJobs that KubeRay left.

Nothing happens to a service at rest or to a job, and an upgrade continues where it was. The way
back needs KubeRay's operator itself: `rehearsal.py` and `job_rehearsal.py` go both ways.
"""

from collections.abc import Sequence

import pytest

from common import names
from common.api.opaque import Body, Json
from common.runtime.key import Key
from integration.migration import cast_of, jobs_of_cast
from integration.migration.conftest import KubeRayNamespace, working
from support.kuberay import objects, trees
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]


@pytest.mark.parametrize("name", jobs_of_cast.RECORDED)
async def test_taking_over_a_job_changes_nothing(legacy: KubeRayNamespace, name: str) -> None:
    before = await legacy.inherit(f"job-{name}")
    drivers = {service: len(head.jobs.posts) for service, head in legacy.serve.heads.items()}
    async with working(legacy) as reconcilers:
        await reconcilers.have_reconciled(
            [], keys(legacy, before, "RayCluster"), keys(legacy, before, "RayJob")
        )
        after = await legacy.read()
    sides = (trees.stable(some) for some in (before, after))
    assert list(objects.differences(*sides)) == []
    assert jobs_of_cast.changes(before, after, (name,)) == []
    for service, head in legacy.serve.heads.items():
        assert len(head.jobs.posts) == drivers.get(service, 0), "a driver was run again"
        assert head.jobs.stops == []
    assert all("/status" in each for each in reconcilers.own.writes()), reconcilers.own.writes()


async def test_a_job_that_kuberay_began_ends_here(legacy: KubeRayNamespace) -> None:
    before = await legacy.inherit("job-http")
    job = next(each for each in before if each["kind"] == "RayJob")
    status: Json = job["status"]

    async def is_complete() -> bool:
        found = next(each for each in await legacy.read() if each["kind"] == "RayJob")
        return found["status"]["jobDeploymentStatus"] == "Complete"

    head = legacy.serve.head(names.head_service(status["rayClusterName"]))
    async with working(legacy):
        head.jobs.end(status["jobId"])
        await eventually_true(is_complete, within=60, every=0.2, what="the end of the RayJob")
    assert len(head.jobs.posts) == 1


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
