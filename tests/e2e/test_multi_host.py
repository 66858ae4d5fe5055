"""Groups with replicas that span several hosts, on real Ray; and a group that is added to a cluster which runs."""

import msgspec
import pytest

from common import labels
from common.api.core import Pod

from .conftest import Rig
from .ray_cluster import a_cluster, a_group, running, spread

pytestmark = pytest.mark.asyncio(loop_scope="session")


def places(pods: list[Pod]) -> list[tuple[str, str]]:
    """Return each pod's replica index and host index."""
    found = [pod.metadata.labels for pod in pods]
    return sorted((each[labels.REPLICA_INDEX], each[labels.HOST_INDEX]) for each in found)


def replicas(pods: list[Pod]) -> set[str]:
    return {pod.metadata.labels[labels.REPLICA_NAME] for pod in pods}


@pytest.mark.ondemand
async def test_a_lost_host_replaces_its_replica_and_a_new_group_disturbs_nobody(rig: Rig) -> None:
    slices = a_group("slices", numOfHosts=2)
    manifest = a_cluster("hosts", slices)
    async with running(rig, manifest) as cluster:
        await cluster.wait_for(slices=2)
        before = await cluster.pods(group="slices")
        assert places(before) == [("0", "0"), ("0", "1")]
        assert len(replicas(before)) == 1
        head = spread(await cluster.pods(group="headgroup"))

        await cluster.kill(before[0])
        await cluster.wait_for(slices=2)
        after = await cluster.pods(group="slices")
        assert places(after) == [("0", "0"), ("0", "1")]
        assert replicas(after).isdisjoint(replicas(before))
        assert {pod.metadata.uid for pod in after}.isdisjoint({pod.metadata.uid for pod in before})

        running_before = spread(await cluster.pods())
        manifest["spec"]["workerGroupSpecs"].append(a_group("added"))
        await cluster.apply(manifest)
        await cluster.wait_for(slices=2, added=1)
        assert running_before.items() <= spread(await cluster.pods()).items()
        assert head.items() <= running_before.items()
        nodes = "import json; print(json.dumps(sum(node['Alive'] for node in ray.nodes())))"
        alive = await cluster.run(nodes)
        assert msgspec.json.decode(alive) == 4
