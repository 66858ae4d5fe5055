"""Ray's own autoscaler, in the sidecar that we inject, scales a real cluster up and down with the rights that we give it."""

import asyncio

import msgspec
import pytest

from common.api.opaque import Json
from common.kube.resources import POD
from raybus_cli.demo.world import PodList
from support.waiting import eventually_true

from .conftest import Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")

NAMESPACE = "default"
IMAGE = "docker.io/rayproject/ray:2.60.0"


def a_template(name: str) -> Json:
    resources = {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "3Gi"}}
    container = {"name": name, "image": IMAGE, "imagePullPolicy": "IfNotPresent", "resources": resources}
    return {"spec": {"terminationGracePeriodSeconds": 2, "containers": [container]}}


def a_cluster(name: str) -> Json:
    params = {"num-cpus": "1", "object-store-memory": "100000000"}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "rayVersion": "2.60.0",
            "enableInTreeAutoscaling": True,
            "autoscalerOptions": {"idleTimeoutSeconds": 5, "resources": {"requests": {"cpu": "50m"}}},
            "headGroupSpec": {"rayStartParams": {**params, "num-cpus": "0"}, "template": a_template("ray-head")},
            "workerGroupSpecs": [
                {
                    "groupName": "small",
                    "replicas": 0,
                    "minReplicas": 0,
                    "maxReplicas": 1,
                    "rayStartParams": params,
                    "template": a_template("ray-worker"),
                }
            ],
        },
    }


async def workers(rig: Rig, *, ready: bool) -> int:
    body = await rig.kube.list(POD, NAMESPACE, label_selector="ray.io/cluster=elastic,ray.io/node-type=worker")
    pods = msgspec.json.decode(body, type=PodList).items
    return sum(pod.is_running_and_ready for pod in pods) if ready else len(pods)


async def request(rig: Rig, cpus: int) -> None:
    """Ask the autoscaler for processors, as a user's program does."""
    program = f"import ray; ray.init(log_to_driver=False); ray.autoscaler.sdk.request_resources(num_cpus={cpus})"
    selector = ("-n", NAMESPACE, "-l", "ray.io/cluster=elastic,ray.io/node-type=head")
    head = await rig.kubectl.run("get", "pod", *selector, "-o", "name")
    await rig.kubectl.run("exec", "-n", NAMESPACE, head.strip(), "-c", "ray-head", "--", "python", "-c", program)


async def test_ray_scales_a_cluster_up_and_down(rig: Rig) -> None:
    await rig.kubectl.run("apply", "-f", "-", stdin=msgspec.json.encode(a_cluster("elastic")).decode())
    try:
        async with asyncio.timeout(300):
            wait = ("wait", "-n", NAMESPACE, "raycluster/elastic", "--for=condition=HeadPodReady", "--timeout=180s")
            await rig.kubectl.run(*wait)
            await request(rig, 1)
            await eventually_true(lambda: workers(rig, ready=True), within=120, what="a worker")
            await request(rig, 0)

            async def is_idle() -> bool:
                return await workers(rig, ready=False) == 0

            await eventually_true(is_idle, within=120, what="an empty group")
    finally:
        await rig.kubectl.run("delete", "raycluster", "elastic", "-n", NAMESPACE, "--wait=false")
