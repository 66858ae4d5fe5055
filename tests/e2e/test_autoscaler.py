"""Ray's own autoscaler, in the sidecar that we inject, scales a real cluster up and down with the rights that we give it."""

import pytest

from .conftest import Rig
from .ray_cluster import a_cluster, a_group, running

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.mark.parametrize("version", [pytest.param("v1", marks=pytest.mark.ondemand), "v2"])
async def test_ray_scales_a_cluster_up_and_down(rig: Rig, version: str) -> None:
    options = {
        "idleTimeoutSeconds": 5,
        "version": version,
        "resources": {"requests": {"cpu": "50m"}},
    }
    group = a_group("small", replicas=0, maxReplicas=1)
    manifest = a_cluster(
        f"elastic-{version}", group, enableInTreeAutoscaling=True, autoscalerOptions=options
    )
    async with running(rig, manifest) as cluster:
        await cluster.wait_for()
        await cluster.run("ray.autoscaler.sdk.request_resources(num_cpus=1)")
        await cluster.wait_for(small=1)
        await cluster.run("ray.autoscaler.sdk.request_resources(num_cpus=0)")
        await cluster.wait_for(small=0)
