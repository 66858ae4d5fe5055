"""The whole life of a cluster as one text: each write and Event, in order, and what the status says after each chapter."""

import re

from scenario.cluster_reconciler.world import World
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.golden import Golden


async def test_a_clusters_life(golden: Golden) -> None:
    world = World()
    world.kube.graceful_pods = True
    story: list[str] = []

    async def chapter(title: str) -> None:
        await world.settle()
        await world.pass_time(1)
        world.kubelet()
        await world.settle()
        world.finish_deletions()
        await world.settle()
        world.kubelet()
        await world.settle()
        story.extend([f"== {title}", *(f"   {line}" for line in world.trace), f"   -> {_summary(world)}"])
        world.trace.clear()
        world.clock.advance(60)

    world.apply(a_ray_cluster())
    await chapter("created with three workers")
    world.apply(a_ray_cluster(groups=[a_group(replicas=5)]))
    await chapter("scaled to five")
    world.apply(a_ray_cluster(groups=[a_group(replicas=1)]))
    await chapter("scaled to one")
    world.fail(world.names("worker")[0])
    await chapter("the worker fails")
    world.fail(world.names("head")[0])
    await chapter("the head fails")
    world.apply(a_ray_cluster(groups=[a_group(replicas=1)], suspend=True))
    await chapter("suspended")
    world.apply(a_ray_cluster(groups=[a_group(replicas=1)], suspend=False))
    await chapter("resumed")
    await world.pass_time(300)
    await chapter("nothing happens for 300 seconds")
    golden.check("cluster_reconciler/life.txt", _without_suffixes("\n".join(story) + "\n"))


def _without_suffixes(text: str) -> str:
    """Number the pods in the order in which they appear, in place of the drawn parts of their names."""
    known: dict[str, str] = {}
    return re.sub(
        r"(?<=-head-|orker-)[a-z0-9]{5}(?= |$)",
        lambda m: known.setdefault(m[0], f"#{len(known)}"),
        text,
        flags=re.MULTILINE,
    )


def _summary(world: World) -> str:
    status = world.cluster().status
    held = [kind for kind, (value, _) in world.conditions().items() if value == "True"]
    return f"state {status.state or 'none'}, workers {status.ready_worker_replicas}/{status.desired_worker_replicas}, {' '.join(held)}"
