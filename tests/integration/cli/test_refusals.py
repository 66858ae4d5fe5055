"""No kubeconfig, no cluster, no rights, no CRDs: one line each, with what to do."""

import asyncio
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
import yaml

from common.api.opaque import Body
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import RAY_SERVICE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from integration.cli.conftest import CliNamespace
from localcluster.control_plane import ControlPlane
from support.builders import snapshots

pytestmark = [pytest.mark.integration]

CRDS = Path(__file__).parents[3] / "deploy" / "crds"


def _with_token(kubeconfig: Path, token: str, to: Path) -> Path:
    document = yaml.safe_load(kubeconfig.read_text())
    document["users"][0]["user"] = {"token": token}
    to.write_text(yaml.safe_dump(document))
    return to


def test_no_kubeconfig(tmp_path: Path, scope: CliNamespace) -> None:
    done = scope.raybus("list", kubeconfig=tmp_path / "none")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"error: there is no kubeconfig {tmp_path / 'none'}: name one with --kubeconfig, or set KUBECONFIG\n"
    )


def test_an_unknown_context(scope: CliNamespace) -> None:
    done = scope.raybus("list", "--context", "mars")
    assert done.code == 1
    assert done.err.startswith(
        "error: context 'mars' is not in the kubeconfig; choose one with --context (known: "
    )


def test_a_cluster_that_does_not_answer(scope: CliNamespace, tmp_path: Path) -> None:
    document = yaml.safe_load(scope.kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:9"
    (tmp_path / "away").write_text(yaml.safe_dump(document))
    done = scope.raybus("get", "rayservice", "demo", kubeconfig=tmp_path / "away")
    assert done.code == 1
    assert done.err.startswith("error: the API server at https://127.0.0.1:9 does not answer")
    assert done.err.endswith("is it up, and is the --context right?\n")
    assert len(done.err.splitlines()) == 1


def test_a_stranger(scope: CliNamespace, tmp_path: Path) -> None:
    done = scope.raybus(
        "list", kubeconfig=_with_token(scope.kubeconfig, "wrong", tmp_path / "stranger")
    )
    assert done.code == 1
    assert (
        done.err
        == "error: the cluster does not know your user (Unauthorized): log in again, or choose another --context\n"
    )


async def guest(scope: CliNamespace, to: Path, *kinds: str) -> Path:
    """Return the kubeconfig of a user that may read some kinds of ray.io in the namespace, and nothing else."""
    await scope.kube.create(SERVICE_ACCOUNT, scope.namespace, {"metadata": {"name": "guest"}})
    if kinds:
        rules = [{"apiGroups": ["ray.io"], "resources": list(kinds), "verbs": ["get", "list"]}]
        await scope.kube.create(
            ROLE, scope.namespace, {"metadata": {"name": "guest"}, "rules": rules}
        )
        binding: Body = {
            "metadata": {"name": "guest"},
            "subjects": [{"kind": "ServiceAccount", "name": "guest"}],
        }
        binding["subjects"][0]["namespace"] = scope.namespace
        binding["roleRef"] = {"apiGroup": ROLE.group, "kind": ROLE.kind, "name": "guest"}
        await scope.kube.create(ROLE_BINDING, scope.namespace, binding)
    path = SERVICE_ACCOUNT.path(scope.namespace, "guest", "token")
    answer = yaml.safe_load(await scope.kube.request("POST", path, body={"spec": {}}))
    return _with_token(scope.kubeconfig, answer["status"]["token"], to)


async def test_a_user_with_few_rights_sees_what_is_allowed_and_the_rights_that_are_missing(
    scope: CliNamespace, tmp_path: Path
) -> None:
    await scope.settle(
        snapshots.a_ready_service(), snapshots.a_cluster(snapshots.BLUE, snapshots.a_config())
    )
    reader = await guest(scope, tmp_path / "guest", "rayservices", "rayclusters")
    shown = scope.raybus("get", "rayservice", "demo", "-o", "wide", kubeconfig=reader)
    assert (shown.code, shown.err) == (0, "")
    assert "demo-blue  active" in shown.out
    assert "Not readable: pods: " in shown.out
    kept = scope.raybus("history", "demo", kubeconfig=reader)
    assert kept.code == 0
    assert kept.err.startswith("Not readable: controllerrevisions: ")
    for verb, what in (("pause", "cannot patch"), ("undo", "no earlier spec")):
        done = scope.raybus(verb, "demo", kubeconfig=reader)
        assert (done.code, done.out) == (1, "")
        assert what in done.err.splitlines()[-1]


async def test_somebody_without_rights(scope: CliNamespace, tmp_path: Path) -> None:
    reader = await guest(scope, tmp_path / "guest")
    done = scope.raybus("list", kubeconfig=reader)
    assert done.code == 1
    assert 'cannot list resource "rayservices"' in done.err
    assert done.err.endswith("see what you may do with 'kubectl auth can-i --list'\n")
    assert len(done.err.splitlines()) == 1


@pytest.fixture
async def bare(tmp_path: Path) -> AsyncGenerator[Path]:
    """Run a control plane without our CRDs."""
    async with ControlPlane.started(tmp_path / "bare") as running:
        yield running.kubeconfig


async def test_status_outlives_an_api_server_that_is_away_for_a_while(tmp_path: Path) -> None:
    async with ControlPlane.started(tmp_path / "own", crds=CRDS) as own:
        kube = await KubeClient.connect(kubeconfig=own.kubeconfig, user_agent="raybus-test")
        service = snapshots.a_ready_service()
        service["status"] |= {
            "observedGeneration": 1,
            "activeServiceStatus": {"rayClusterStatus": {}},
        }
        made = {
            "apiVersion": "ray.io/v1",
            "kind": "RayService",
            "metadata": {"name": "demo"},
            "spec": service["spec"],
        }
        await kube.create(RAY_SERVICE, "default", made)
        await own.stop_api_server()
        command = [
            str(Path(sys.executable).with_name("raybus")),
            "status",
            "demo",
            "--kubeconfig",
            str(own.kubeconfig),
        ]
        asked = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        assert asked.stderr is not None
        assert "does not answer" in (await asked.stderr.readline()).decode()
        await own.start_api_server()
        patch = PatchRequest(body={"status": service["status"]}, subresource="status")
        await kube.patch(RAY_SERVICE, "default", "demo", patch)
        out, output = await asked.communicate()
        await kube.close()
    assert asked.returncode == 0, output
    assert out.decode() == "RayService default/demo Ready: 3 endpoints, RayCluster unknown serves\n"


async def test_no_crds(scope: CliNamespace, bare: Path) -> None:
    done = scope.raybus("list", kubeconfig=bare)
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "error: the cluster does not serve ray.io/v1: install the CRDs with "
        "'kubectl apply --server-side -k deploy/crds'\n"
    )
