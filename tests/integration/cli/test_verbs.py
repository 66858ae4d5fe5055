"""Each verb as a user runs it, on a real API server with objects in made-up states."""

import json
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path

import pytest
import yaml

from common.api.opaque import Body
from common.kube.resources import RAY_SERVICE
from common.settings import Settings
from integration.cli.conftest import CliNamespace
from raybus_cli.events import run
from raybus_cli.kubeconfig import KubeAccess
from support.builders import snapshots
from support.builders.snapshots import (
    BLUE,
    GREEN,
    READY,
    STEPS,
    UPGRADING,
    a_cluster,
    a_condition,
    a_config,
    a_pod,
    a_side,
)
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]


def _ready(**fields: object) -> Body:
    service = snapshots.a_ready_service(**fields)
    service["status"]["observedGeneration"] = 1
    return service


def _upgrading(*conditions: Body, weight: int = 30) -> Body:
    service = snapshots.a_service(
        READY,
        *(conditions or (UPGRADING,)),
        active=a_side(BLUE, capacity=90, weight=100 - weight, moved=12),
        pending=a_side(GREEN, capacity=weight, weight=weight, moved=12),
        config=a_config(snapshots.NEW_IMAGE),
        upgradeStrategy=STEPS,
    )
    service["status"]["observedGeneration"] = 1
    return service


async def _at_rest(scope: CliNamespace) -> None:
    await scope.settle(
        _ready(), a_cluster(BLUE, a_config()), pods=(a_pod(BLUE, "head"), a_pod(BLUE, "gpu", 1))
    )
    await scope.front(BLUE)


async def _in_steps(scope: CliNamespace, *conditions: Body) -> None:
    old, new = a_cluster(BLUE, a_config()), a_cluster(GREEN, a_config(snapshots.NEW_IMAGE))
    await scope.settle(
        _upgrading(*conditions), old, new, pods=(a_pod(BLUE, "head"), a_pod(GREEN, "head"))
    )


async def test_get_shows_the_tree_of_an_upgrade(scope: CliNamespace) -> None:
    await _in_steps(scope)
    await scope.record_event("TrafficMoved", "70/30")
    done = scope.raybus("get", "rayservice", "demo")
    assert done.code == 0
    head = dict(
        line.split(maxsplit=1)
        for line in done.out.partition("\n\n")[0].splitlines()
        if ": " in line
    )
    assert (head["Name:"], head["Namespace:"], head["Status:"]) == (
        "demo",
        scope.namespace,
        "Upgrading",
    )
    assert head["Upgrade:"].startswith("step 3 of 10")
    assert "demo-green  pending  ██████░░░░░░░░░░░░░░  30 %" in done.out
    assert "TrafficMoved: 70/30" in done.out
    assert "\x1b" not in done.out


@pytest.mark.parametrize("output", ["json", "yaml"])
async def test_get_is_data_for_programs(scope: CliNamespace, output: str) -> None:
    await _in_steps(scope)
    done = scope.raybus("get", "rayservice", "demo", "-o", output)
    found = json.loads(done.out) if output == "json" else yaml.safe_load(done.out)
    assert [(each["name"], each["role"], each["weight"]) for each in found["clusters"]] == [
        (BLUE, "active", 70),
        (GREEN, "pending", 30),
    ]


async def test_list_shows_both_kinds(scope: CliNamespace) -> None:
    await _at_rest(scope)
    done = scope.raybus("list", "-A", "-o", "wide")
    assert done.code == 0
    assert [scope.namespace, "demo", "Ready"] in [
        line.split()[:3] for line in done.out.splitlines()
    ]
    assert [scope.namespace, BLUE] in [line.split()[:2] for line in done.out.splitlines()]
    assert (
        scope.raybus("list", "-o", "name").out
        == f"rayservice.ray.io/demo\nraycluster.ray.io/{BLUE}\n"
    )


async def test_get_shows_a_cluster_and_its_service(scope: CliNamespace) -> None:
    await _at_rest(scope)
    done = scope.raybus("get", f"raycluster/{BLUE}", "rayservice/demo", "-o", "json")
    cluster, service = done.data["items"]
    assert (cluster["service"], cluster["role"], service["name"]) == ("demo", "active", "demo")
    assert [(each["name"], len(each["pods"])) for each in cluster["groups"]] == [
        ("head", 1),
        ("gpu", 1),
    ]
    missing = scope.raybus("get", "raycluster", "nobody")
    problem = f'rayclusters.ray.io "nobody" not found in namespace "{scope.namespace}"'
    assert (missing.code, missing.err) == (
        1,
        f"error: {problem}; see what there is with 'raybus list -A'\n",
    )


async def test_the_api_server_judges_a_selector(scope: CliNamespace) -> None:
    await _at_rest(scope)
    marked = scope.raybus(
        "get", "rayclusters", "-l", "ray.io/originated-from-cr-name in (demo)", "-o", "name"
    )
    assert (marked.code, marked.out) == (0, f"raycluster.ray.io/{BLUE}\n")
    done = scope.raybus("list", "-l", "a in (")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("error: --selector 'a in (' is no label selector (")


async def test_an_empty_namespace_is_reported(scope: CliNamespace) -> None:
    done = scope.raybus("list")
    assert (done.code, done.out) == (0, "")
    assert "No RayService, RayCluster, RayJob or RayCronJob in namespace" in done.err


async def test_status_is_done_when_the_spec_serves(scope: CliNamespace) -> None:
    await _at_rest(scope)
    done = scope.raybus("status", "demo", "--timeout", "10s")
    assert (done.code, done.err) == (0, "")
    assert "Ready: 3 endpoints, RayCluster demo-blue serves" in done.out


async def test_status_names_what_it_waits_for_and_times_out(scope: CliNamespace) -> None:
    await _in_steps(scope)
    done = scope.raybus("status", "demo", "--timeout", "2s")
    assert (done.code, done.out) == (3, "")
    assert " s  Upgrading: Both" in done.err
    assert "not within 2 s: Upgrading" in done.err


async def test_status_fails_at_once_when_an_upgrade_stalls(scope: CliNamespace) -> None:
    await _in_steps(
        scope, UPGRADING, a_condition("UpgradeStalled", reason="QuotaExceeded", message="no quota")
    )
    done = scope.raybus("status", "demo", "--timeout", "60s", "-o", "json")
    assert done.code == 1
    assert done.data["course"] == "failed"


async def test_controls_write_annotations_and_nothing_else(scope: CliNamespace) -> None:
    await _in_steps(scope)
    generation = (await scope.service())["metadata"]["generation"]
    for verb, annotation, value in (
        ("pause", "raybus.io/pause", "true"),
        ("resume", "raybus.io/pause", None),
        ("promote", "raybus.io/promote", str(generation)),
        ("abort", "raybus.io/abort", str(generation)),
        ("retry", "raybus.io/abort", None),
    ):
        done = scope.raybus(verb, "demo")
        assert (done.code, done.err) == (0, ""), verb
        held = (await scope.service())["metadata"]
        assert held.get("annotations", {}).get(annotation) == value, verb
        assert held["generation"] == generation


async def test_a_control_without_an_upgrade_is_one_line(scope: CliNamespace) -> None:
    await _at_rest(scope)
    done = scope.raybus("abort", "demo")
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        "error: RayService demo has no upgrade to abort; 'raybus undo demo' restores the spec before this one\n"
    )


async def test_history_and_undo_go_back_to_the_old_cluster(scope: CliNamespace) -> None:
    await _in_steps(scope)
    shown, _, upgrades = scope.raybus("history", "demo").out.partition("\n\n")
    assert [line.split()[1] for line in shown.splitlines()[1:]] == [BLUE, GREEN]
    assert upgrades == f"Upgrade from {BLUE} to {GREEN}: in progress\n"
    done = scope.raybus("undo", "demo")
    assert (done.code, done.err) == (0, "")
    image = (await scope.service())["spec"]["rayClusterConfig"]["headGroupSpec"]["template"][
        "spec"
    ]["containers"][0]
    assert image["image"] == snapshots.OLD_IMAGE
    assert scope.raybus("undo", "demo", "--to-revision", "7").code == 1


async def test_plan_sees_the_object_as_the_api_server_would_store_it(
    scope: CliNamespace, tmp_path: Path
) -> None:
    await _at_rest(scope)
    manifest = tmp_path / "demo.yaml"
    body = _ready()
    manifest.write_text(
        yaml.safe_dump({"apiVersion": "ray.io/v1", "kind": "RayService", **_written(body)})
    )
    version = (await scope.service())["metadata"]["resourceVersion"]
    assert scope.raybus("plan", "-f", str(manifest)).out.startswith(
        f"RayService {scope.namespace}/demo: nothing\n"
    )
    body["spec"]["rayClusterConfig"] = a_config(snapshots.NEW_IMAGE)
    text = yaml.safe_dump({"apiVersion": "ray.io/v1", "kind": "RayService", **_written(body)})
    done = scope.raybus("plan", "-f", "-", "-o", "json", stdin=text)
    assert (done.code, done.data["outcome"]) == (0, "new cluster")
    assert [each["field"] for each in done.data["differences"]] == [
        "spec.rayClusterConfig.headGroupSpec.template.spec.containers[0].image"
    ]
    assert (await scope.service())["metadata"]["resourceVersion"] == version


async def test_plan_of_a_new_service_is_its_first_cluster(scope: CliNamespace) -> None:
    text = yaml.safe_dump({"apiVersion": "ray.io/v1", "kind": "RayService", **_written(_ready())})
    done = scope.raybus("plan", "-f", "-", stdin=text)
    assert done.code == 0
    assert f"RayService {scope.namespace}/demo: created" in done.out
    assert scope.raybus("list", "-o", "name").out == ""


async def test_plan_of_a_bad_manifest_is_one_line(scope: CliNamespace, tmp_path: Path) -> None:
    done = scope.raybus("plan", "-f", str(tmp_path / "none.yaml"))
    assert (done.code, done.err) == (
        2,
        f"error: cannot read {tmp_path / 'none.yaml'}: No such file or directory; name a manifest with -f, or - for "
        "standard input\n",
    )
    done = scope.raybus("plan", "-f", "-", stdin="a: [")
    assert done.code == 2
    assert done.err.startswith("error: standard input:1: not YAML: ")


def _written(body: Body) -> Body:
    """Return what a user writes."""
    return {"metadata": {"name": "demo"}, "spec": body["spec"]}


async def test_what_is_not_there_is_one_line(scope: CliNamespace) -> None:
    done = scope.raybus("get", "rayservice", "nobody")
    assert (done.code, done.out) == (1, "")
    problem = f'rayservices.ray.io "nobody" not found in namespace "{scope.namespace}"'
    assert done.err == f"error: {problem}; see what there is with 'raybus list -A'\n"


def test_events_of_nobody_are_an_error(
    scope: CliNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def nothing(*_arguments: object) -> int:
        return 0

    def through(_place: KubeAccess, _namespace: str, read: run.ReadEvents) -> Awaitable[None]:
        return read(run.NatsAccess(Settings(service="subscriber")))

    monkeypatch.setattr(run, "run_through_forward", through)
    monkeypatch.setattr(run, "show", nothing)
    done = scope.raybus("events", "nobody")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(
        f'error: no events, and rayservices.ray.io "nobody" not found in namespace "{scope.namespace}"; '
    )


async def test_one_of_that_name_in_another_namespace_is_named(scope: CliNamespace) -> None:
    name = f"only-{scope.namespace}"
    body = snapshots.a_service()
    await scope.put(RAY_SERVICE, {**body, "metadata": {"name": name}})
    done = CliNamespace(scope.kube, scope.kubeconfig, "default").raybus(
        "status", f"rayservice/{name}"
    )
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f'error: rayservices.ray.io "{name}" not found in namespace "default"; found in {scope.namespace}: '
        f"add -n {scope.namespace}\n"
    )


def test_kubectl_finds_the_plugin(scope: CliNamespace) -> None:
    program = Path(sys.executable).with_name("kubectl-raybus")
    command = [
        str(program),
        "list",
        "--kubeconfig",
        str(scope.kubeconfig),
        "-n",
        scope.namespace,
        "-o",
        "name",
    ]
    assert (
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout
        == ""
    )


async def test_a_shell_and_kubectl_complete_the_names_of_services(
    scope: CliNamespace, tmp_path: Path
) -> None:
    await _at_rest(scope)
    document = yaml.safe_load(scope.kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = scope.namespace
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(document))
    programs = Path(sys.executable).parent
    env = {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
    }

    def typed(command: str) -> str:
        arguments = ["bash", "-c", command]
        return subprocess.run(
            arguments, env=env, check=True, capture_output=True, text=True, timeout=120
        ).stdout

    press = "COMP_WORDS=(raybus get rayservice de) COMP_CWORD=3; _raybus_completion raybus; echo ${COMPREPLY[@]}"

    async def is_completed() -> (
        bool
    ):  # where the API server takes too long there is nothing to complete with
        names = typed("kubectl_complete-raybus status ''").splitlines()
        return typed(f"source <(raybus completion bash); {press}") == "demo\n" and names == [
            "demo",
            ":4",
        ]

    await eventually_true(is_completed, what="the name completed")
