"""`explain`, `doctor` and `bundle` on a real API server, with objects in made-up states."""

import io
import tarfile
from pathlib import Path

import pytest

from common.api.opaque import Json
from common.kube.resources import POD
from integration.cli.conftest import CliNamespace
from support.builders import snapshots
from support.builders.snapshots import BLUE, a_cluster, a_condition, a_config, a_pod, a_side

pytestmark = [pytest.mark.integration]
NOT_READY = a_condition(
    "Ready", "False", reason="Initializing", message="RayService is initializing"
)
SECRET = "hunter2"


async def _starting(scope: CliNamespace) -> None:
    config = a_config()
    config["headGroupSpec"]["template"]["spec"]["containers"][0]["env"] = [
        {"name": "HF_TOKEN", "value": SECRET}
    ]
    service = snapshots.a_service(NOT_READY, pending=a_side(BLUE), endpoints=0, config=config)
    stuck = a_pod(BLUE, "gpu", 1, ready=False)
    stuck["spec"]["containers"][0]["env"] = [{"name": "HF_TOKEN", "value": SECRET}]
    waiting: Json = {"name": "ray", "image": "i", "imageID": "", "ready": False, "restartCount": 0}
    waiting["state"] = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    stuck["status"]["containerStatuses"] = [waiting]
    await scope.settle(service, a_cluster(BLUE, config), pods=(a_pod(BLUE, "head"), stuck))


async def test_explain_names_the_cause_and_the_remedy(scope: CliNamespace) -> None:
    await _starting(scope)
    await scope.record_event(
        "FailedMount",
        "no such volume",
        kind="Warning",
        about=("Pod", "demo-blue-head-aaaaa"),
        at=-(10**9),
    )
    done = scope.raybus("explain", "demo")
    assert (done.code, done.err) == (0, "")
    assert (
        '1. Pod demo-blue-gpu-worker-00001: cannot pull image "rayproject/ray:2.52.0" (container ray): no such image'
        in done.out
    )
    assert "imagePullSecrets" in done.out
    found = scope.raybus("explain", "demo", "-o", "json").data["findings"]
    assert found[0]["message"].startswith("Pod demo-blue-gpu-worker-00001")


async def test_doctor_of_a_cluster_without_raybus(scope: CliNamespace) -> None:
    done = scope.raybus("doctor", "-o", "json")
    states = {each["name"]: each["state"] for each in done.data}
    assert done.code == 1
    assert (states["CRD rayclusters.ray.io"], states["CRD rayservices.ray.io"]) == ("ok", "ok")
    assert (states["watcher"], states["leader"], states["your rights"]) == (
        "failed",
        "failed",
        "ok",
    )
    assert "→ install raybus" in scope.raybus("doctor").out


async def test_a_bundle_holds_everything_but_secrets(scope: CliNamespace, tmp_path: Path) -> None:
    await _starting(scope)
    await scope.put(POD, a_pod("other", "head"))
    target = tmp_path / "report.tar.gz"
    done = scope.raybus("bundle", "demo", "-f", str(target))
    assert done.code == 0
    with tarfile.open(fileobj=io.BytesIO(target.read_bytes()), mode="r:gz") as tar:
        files = {
            name: (tar.extractfile(name) or io.BytesIO()).read().decode() for name in tar.getnames()
        }
    held = {name.removeprefix("raybus-bundle-demo/") for name in files}
    assert {
        "rayservice.yaml",
        "rayclusters.yaml",
        f"{BLUE}/pods.yaml",
        "doctor.yaml",
        "version.txt",
    } <= held
    text = "".join(files.values())
    assert "HF_TOKEN" in text
    assert SECRET not in text


async def test_a_bundle_asks_for_the_log_of_each_container(
    scope: CliNamespace, tmp_path: Path
) -> None:
    await _starting(scope)
    pod = a_pod("nats", "head")
    name = pod["metadata"]["name"]
    pod["metadata"]["labels"] |= {"app.kubernetes.io/part-of": "raybus"}
    pod["spec"]["containers"] = [{"name": each, "image": "i"} for each in ("nats", "keeper")]
    await scope.put(POD, pod)
    target = tmp_path / "report.tar.gz"
    assert (
        scope.raybus(
            "bundle", "demo", "-f", str(target), "--raybus-namespace", scope.namespace
        ).code
        == 0
    )
    with tarfile.open(fileobj=io.BytesIO(target.read_bytes()), mode="r:gz") as tar:
        unseen = (tar.extractfile("raybus-bundle-demo/unseen.txt") or io.BytesIO()).read().decode()
    assert f"log of {name}, container nats: " in unseen  # no kubelet runs here
    assert f"log of {name}, container keeper: " in unseen
    assert "a container name must be specified" not in unseen


async def test_a_bundle_of_nobody_is_one_line(scope: CliNamespace, tmp_path: Path) -> None:
    done = scope.raybus("bundle", "nobody", "-f", str(tmp_path / "x.tar.gz"))
    assert (done.code, (tmp_path / "x.tar.gz").exists()) == (1, False)
    assert done.err.startswith('error: rayservices.ray.io "nobody" not found')
