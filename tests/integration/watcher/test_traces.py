"""Who changes an object knows its trace, and finds in it how the change came through the watcher and NATS to a reader."""

from pathlib import Path

import msgspec
import pytest

from common.api.meta import ObjectMeta
from common.bus import messages
from common.kube import resources
from common.kube.client import KubeClient, Patch
from common.observability import tracing
from common.observability.tracing import Line
from localcluster.control_plane import ControlPlane
from support.builders.manifests import a_ray_cluster
from support.servers.relayed import relayed
from support.waiting import eventually

pytestmark = [pytest.mark.integration]


class _Answer(msgspec.Struct, frozen=True):
    metadata: ObjectMeta


async def test_a_change_is_followed_to_a_reader(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "traces"
    monkeypatch.setenv("RAYBUS_TRACES", str(file))  # for the watcher's process

    def way(trace: str) -> dict[str, Line]:
        lines = file.read_bytes().splitlines() if file.exists() else []
        return {span.name: span for each in lines if (span := msgspec.json.decode(each, type=Line)).trace == trace}

    await kube.create(resources.RAY_CLUSTER, namespace, a_ray_cluster())
    with tracing.configured("reader", file=file, environment={}):
        async with relayed(tmp_path, control_plane.kubeconfig, namespace) as world:
            await world.until_synced(within=60.0)
            patch = Patch(body={"metadata": {"annotations": {"touched": "yes"}}})
            answer = await kube.patch(resources.RAY_CLUSTER, namespace, "demo", patch)
            meta = msgspec.json.decode(answer, type=_Answer).metadata
            trace = messages.trace_of(meta.uid, meta.resource_version)
            spans = trace.split("-")[1]
            await eventually(lambda: len(way(spans)) == 3, within=30.0, what="three spans")

    found = way(spans)
    assert found.keys() == {"watch", "publish", "receive"}
    assert found["watch"].attributes["object"] == f"RayCluster {namespace}/demo"
    assert {span.service for span in found.values()} == {"raybus-watcher", "raybus-reader"}
    assert found["publish"].parent == found["receive"].parent == found["watch"].span == trace.split("-")[2]
    assert found["watch"].begin <= found["watch"].end <= found["receive"].begin
