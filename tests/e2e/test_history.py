"""The collector of KubeRay's history server beside real Ray: a RayCluster is deleted, and its logs are in an S3 store.

Only where a collector is at hand: `COLLECTOR` is the program `cmd/collector` of KubeRay's module `historyserver`. The store is versitygw, which keeps
each object as a file of its pod.
"""

import os
import shutil
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final

import msgspec
import pytest
import pytest_asyncio

from common.api.opaque import Json
from localcluster import binaries
from localcluster.demo import demo_cluster
from localcluster.driver import ClusterRecord
from localcluster.images import builder
from localcluster.progress import Progress
from support.servers.programs import prepared
from support.waiting import eventually_true

from .conftest import DEPLOY, Rig
from .greeter import show
from .ray_cluster import NAMESPACE, a_cluster, a_group, running

COLLECTOR: Final = os.environ.get("COLLECTOR", "")
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.ondemand,
    pytest.mark.skipif(not COLLECTOR, reason="COLLECTOR names no collector of KubeRay"),
]

IMAGE: Final = "registry.invalid/raybus/history:dev"
STAGE: Final = f"""
# seconds: 5
FROM ${{DEBIAN}} AS history
LABEL raybus.image="{IMAGE}"
COPY --from=binaries /collector /usr/local/bin/collector
COPY --from=binaries /versitygw /usr/local/bin/versitygw
USER 1000:100
ENTRYPOINT ["/usr/local/bin/collector"]
"""
STORE: Final = "store"
PORT: Final = 7070
BUCKET: Final = "history"
KEY, SECRET = "raybus", "open-sesame"
STORE_COMMAND: Final = (
    f"mkdir -p /data/objects /data/meta && exec versitygw --access {KEY} --secret {SECRET} --port :{PORT} --region here"
    " posix --sidecar /data/meta /data/objects"
)
OPTIONS: Final = {
    "STORAGE_BACKEND": "s3",
    "STORAGE_ROOT_DIR": "ray",
    "S3_BUCKET": BUCKET,
    "S3_REGION": "here",
    "S3_ENDPOINT": f"http://{STORE}.{NAMESPACE}.svc:{PORT}",
    "S3FORCE_PATH_STYLE": "true",
    "S3DISABLE_SSL": "true",
    "AWS_ACCESS_KEY_ID": KEY,
    "AWS_SECRET_ACCESS_KEY": SECRET,
}
WORK: Final = """
@ray.remote(num_cpus=1)
def work():
    print('a line of a task on a worker')
ray.get(work.remote())
print('done')
"""
TERMINATION: Final = 30
"""Seconds for which a collector may send remaining logs at its end."""


@pytest.fixture(scope="module")
def image(known: ClusterRecord, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Bring an image with the collector and the store to the node."""
    folder = tmp_path_factory.mktemp("history")
    shutil.copytree(DEPLOY / "images", folder / "deploy/images")
    dockerfile = folder / builder.DOCKERFILE
    dockerfile.write_text(dockerfile.read_text() + STAGE)
    programs = {"collector": Path(COLLECTOR), "versitygw": prepared(binaries.S3_STORE)}
    found = builder.ensure(
        ["history"], progress=Progress.to_stderr(), files=programs, checkout=folder
    )
    demo_cluster.load_images([each.path for each in found.values()], known.name)


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def store(rig: Rig, image: None) -> AsyncGenerator[None]:
    """Run an S3 store."""
    manifest = "\n---\n".join(msgspec.json.encode(each).decode() for each in store_objects())
    await rig.kubectl.run("apply", "-f", "-", stdin=manifest)
    try:
        await rig.kubectl.run(
            "wait", "-n", NAMESPACE, f"pod/{STORE}", "--for=condition=Ready", "--timeout=60s"
        )
        yield
    finally:
        await rig.kubectl.run("delete", "pod,service", STORE, "-n", NAMESPACE, "--grace-period=1")


def store_objects() -> list[Json]:
    """Return the store's pod and its Service."""
    metadata: Json = {"name": STORE, "namespace": NAMESPACE, "labels": {"app": STORE}}
    container: Json = {
        "name": STORE,
        "image": IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", STORE_COMMAND],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "readinessProbe": {"tcpSocket": {"port": PORT}, "periodSeconds": 1},
    }
    pod: Json = {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]}
    service = {"selector": {"app": STORE}, "ports": [{"port": PORT}]}
    return [
        {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod},
        {"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": service},
    ]


def a_collected_cluster(name: str) -> Json:
    """Return a RayCluster with the collector in its head and its worker."""
    env = [{"name": key, "value": value} for key, value in OPTIONS.items()]
    options = {"collectorOptions": {"image": IMAGE, "env": env}}
    manifest = a_cluster(name, a_group("workers"), historyServerOptions=options)
    spec = manifest["spec"]
    for group in (spec["headGroupSpec"], *spec["workerGroupSpecs"]):
        group["template"]["spec"]["terminationGracePeriodSeconds"] = TERMINATION
    return manifest


async def objects(rig: Rig) -> list[str]:
    """Return the keys of all objects in the bucket."""
    command = (
        "exec",
        "-n",
        NAMESPACE,
        STORE,
        "--",
        "find",
        f"/data/objects/{BUCKET}",
        "-type",
        "f",
    )
    return [
        each.removeprefix(f"/data/objects/{BUCKET}/")
        for each in (await rig.kubectl.run(*command)).splitlines()
    ]


async def read(rig: Rig, key: str) -> str:
    return await rig.kubectl.run(
        "exec", "-n", NAMESPACE, STORE, "--", "cat", f"/data/objects/{BUCKET}/{key}"
    )


async def test_the_logs_of_a_deleted_cluster_are_in_the_store(rig: Rig, store: None) -> None:
    async with running(rig, a_collected_cluster("recorded")) as cluster:
        await cluster.wait_for(workers=1)
        assert await cluster.run(WORK) == "done"
    left = await rig.kubectl.run(
        "get", "raycluster,pod", "-n", NAMESPACE, "-l", "ray.io/cluster=recorded", "-o", "name"
    )
    assert not left, "the cluster is gone"

    async def has_metadata() -> bool:
        return any(key.startswith("ray/cluster-metadata/") for key in await objects(rig))

    await eventually_true(has_metadata, within=30, what="the record of the cluster")
    found = await objects(rig)
    show(f"{len(found)} objects in the store:", *sorted(found)[:60])
    prefix = f"ray/cluster-history/raycluster/{NAMESPACE}/recorded/"
    logs = [
        key.removeprefix(prefix).split("/")
        for key in found
        if key.startswith(prefix) and "/logs/" in key
    ]
    assert len({node for _, node, *_ in logs}) == 2, "of the head and of the worker"
    names = [path[-1] for path in logs]
    assert {"gcs_server.out", "raylet.out", "dashboard.log"} <= {*names}
    assert names.count("raylet.out") == 2
    outputs = [
        key
        for key in found
        if key.startswith(prefix) and "/logs/worker-" in key and key.endswith(".out")
    ]
    texts = [await read(rig, key) for key in outputs]
    assert any("a line of a task on a worker" in each for each in texts)
