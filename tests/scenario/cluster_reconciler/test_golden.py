"""The whole life of a cluster as one text: each write and Event, in order, and the status after each chapter."""

import re

from scenario.cluster_reconciler.harness import Harness
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.golden import Golden


async def test_a_clusters_life(golden: Golden) -> None:
    harness = Harness()
    harness.kube.graceful_pods = True
    lines: list[str] = []

    async def chapter(title: str) -> None:
        await harness.settle()
        await harness.pass_time(1)
        harness.kubelet()
        await harness.settle()
        harness.finish_deletions()
        await harness.settle()
        harness.kubelet()
        await harness.settle()
        lines.extend(
            [f"== {title}", *(f"   {line}" for line in harness.trace), f"   -> {_summary(harness)}"]
        )
        harness.trace.clear()
        harness.clock.advance(60)

    harness.apply(a_ray_cluster())
    await chapter("created with three workers")
    harness.apply(a_ray_cluster(groups=[a_group(replicas=5)]))
    await chapter("scaled to five")
    harness.apply(a_ray_cluster(groups=[a_group(replicas=1)]))
    await chapter("scaled to one")
    harness.fail(harness.names("worker")[0])
    await chapter("the worker fails")
    harness.fail(harness.names("head")[0])
    await chapter("the head fails")
    harness.apply(a_ray_cluster(groups=[a_group(replicas=1)], suspend=True))
    await chapter("suspended")
    harness.apply(a_ray_cluster(groups=[a_group(replicas=1)], suspend=False))
    await chapter("resumed")
    await harness.pass_time(300)
    await chapter("nothing happens for 300 seconds")
    golden.check("cluster_reconciler/life.txt", _without_suffixes("\n".join(lines) + "\n"))


def _without_suffixes(text: str) -> str:
    """Number the pods in the order in which they appear, in place of the drawn parts of their names."""
    known: dict[str, str] = {}
    return re.sub(
        r"(?<=-head-|orker-)[a-z0-9]{5}(?= |$)",
        lambda m: known.setdefault(m[0], f"#{len(known)}"),
        text,
        flags=re.MULTILINE,
    )


def _summary(harness: Harness) -> str:
    status = harness.cluster().status
    held = [kind for kind, (value, _) in harness.conditions().items() if value == "True"]
    return f"state {status.state or 'none'}, workers {status.ready_worker_replicas}/{status.desired_worker_replicas}, {' '.join(held)}"
