"""The end of a cluster whose GCS keeps its state in Redis (spec raycluster §25, cases 29-38)."""

from typing import Any

import pytest

from cluster_reconciler.config import Config
from common import labels
from common.api.ray_cluster import RayCluster
from common.kube.resources import JOB, RAY_CLUSTER
from scenario.cluster_reconciler.world import World, a_running_world
from support.builders.ray_cluster import a_ray_cluster

REDIS: dict[str, Any] = {"redisAddress": "redis:6379"}


def a_tolerant_cluster(**fields: Any) -> RayCluster:
    return a_ray_cluster(gcs_fault_tolerance_options=REDIS, **fields)


async def a_dying_world(**fields: Any) -> World:
    """Return a world whose cluster was deleted, with its pods Terminating."""
    world = await a_running_world(a_tolerant_cluster(**fields))
    world.kube.graceful_pods = True
    await world.app.ports.kube.delete(RAY_CLUSTER, "ns", "c")
    await world.settle()
    return world


def is_there(world: World) -> bool:
    return ("RayCluster", "ns", "c") in world.kube.objects


@pytest.mark.acceptance("raycluster", 29)
async def test_the_finalizer_comes_before_anything_else() -> None:
    world = World()
    world.apply(a_tolerant_cluster())
    await world.look()
    assert world.kube.writes() == ["patch RayCluster c"]
    assert world.cluster().metadata.finalizers == [labels.GCS_FT_FINALIZER]
    await world.settle()
    assert len(world.names()) == 4


@pytest.mark.acceptance("raycluster", 34)
async def test_without_cleanup_there_is_no_finalizer() -> None:
    world = World(Config(cleans_up_redis=False))
    world.apply(a_tolerant_cluster())
    await world.settle()
    assert world.cluster().metadata.finalizers == []


@pytest.mark.acceptance("raycluster", 30)
async def test_pods_go_first_and_no_job_comes_while_the_head_is_there() -> None:
    world = await a_dying_world()
    assert [text for text in world.kube.writes() if text.startswith("deletecollection")] == [
        f"deletecollection Pod {labels.CLUSTER}=c,{labels.NODE_TYPE}=head",
        f"deletecollection Pod {labels.CLUSTER}=c,{labels.NODE_TYPE}=worker",
    ]
    assert world.kube.all(JOB, "ns") == []
    assert is_there(world)


@pytest.mark.parametrize("condition", ["Complete", "Failed", "FailureTarget"])
@pytest.mark.acceptance("raycluster", 31, 32)
async def test_the_cluster_goes_when_the_job_has_ended_in_any_way(condition: str) -> None:
    world = await a_dying_world()
    world.finish_deletions()
    await world.settle()
    assert "CreatedRedisCleanupJob" in world.reasons()
    assert is_there(world)
    world.kube.set_status(JOB, "ns", "c-redis-cleanup", {"conditions": [{"type": condition, "status": "True"}]})
    await world.settle()
    assert not is_there(world)


@pytest.mark.parametrize(("annotation", "seconds"), [("5", 5), ("0", 300), ("x", 300), (None, 300)])
@pytest.mark.acceptance("raycluster", 33)
async def test_a_job_that_never_ends_does_not_hold_the_cluster_for_ever(annotation: str | None, seconds: int) -> None:
    annotations = {labels.GCS_FT_DELETION_TIMEOUT: annotation} if annotation else {}
    world = await a_dying_world(annotations=annotations)
    world.finish_deletions()
    await world.settle()
    await world.pass_time(seconds - 1)
    assert is_there(world)
    await world.pass_time(1)
    assert not is_there(world)
    assert "ForceDeletedStuckCluster" in world.reasons()


@pytest.mark.parametrize(("annotation", "is_kept"), [("9" * 15, True), ("9" * 5000, False)])
async def test_a_timeout_beyond_all_clocks_breaks_nothing(annotation: str, is_kept: bool) -> None:
    """As in KubeRay what is no number of 64 bits counts as absent."""
    world = await a_dying_world(annotations={labels.GCS_FT_DELETION_TIMEOUT: annotation})
    world.finish_deletions()
    await world.settle()
    await world.pass_time(300)
    assert is_there(world) is is_kept
