"""`restart`, `set image` and `logs` on a real API server, with objects in made-up states and without a kubelet."""

from typing import Any

import msgspec
import pytest

from common import errors
from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.kube.client import JSON_PATCH, PatchRequest
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from integration.cli.conftest import CliNamespace
from raybus_cli.changing import edits
from support.builders import snapshots
from support.builders.snapshots import BLUE, NEW_IMAGE, OLD_IMAGE, a_cluster, a_config, a_pod
from support.tables import cases

pytestmark = [pytest.mark.integration]
KEY = "raybus.io/restartedAt"
COMMAND = ["sh", "-c", "a && b <c >d 'é'"]
"""The API server compares texts of a JSON patch as it encodes them, with some characters escaped."""


def _config(**fields: Any) -> Json:
    config = a_config(**fields)
    config["headGroupSpec"]["template"]["spec"]["containers"][0]["command"] = COMMAND
    return config


async def _at_rest(scope: CliNamespace) -> None:
    config = _config()
    service = snapshots.a_ready_service(config=config)
    await scope.settle(
        service, a_cluster(BLUE, config), pods=(a_pod(BLUE, "head"), a_pod(BLUE, "gpu", 1))
    )


async def _lone(scope: CliNamespace, **fields: Any) -> None:
    body = a_cluster("lone", _config(**fields))
    body["metadata"]["labels"] = {}
    body["metadata"]["annotations"] = {}
    await scope.put(RAY_CLUSTER, body)


async def _cluster(scope: CliNamespace) -> Body:
    return msgspec.json.decode(await scope.kube.get(RAY_CLUSTER, scope.namespace, "lone"))


def _templates(config: Json) -> list[Json]:
    return [each.template for each in edits.list_groups(config)]


async def test_a_restart_annotates_the_templates_and_shows_the_plan_first(
    scope: CliNamespace,
) -> None:
    await _at_rest(scope)
    before = await scope.service()
    done = scope.raybus("restart", "demo")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"RayService {scope.namespace}/demo: new cluster\n")
    assert done.out.endswith(
        "rayservice.ray.io/demo restarted ('raybus get rayservice demo -w' follows it)\n"
    )
    after = await scope.service()
    assert after["metadata"]["generation"] == before["metadata"]["generation"] + 1
    templates = _templates(after["spec"]["rayClusterConfig"])
    assert len({each["metadata"]["annotations"][KEY] for each in templates}) == 1
    assert templates[0]["spec"]["containers"][0]["command"] == COMMAND


async def test_a_second_restart_replaces_the_annotation(scope: CliNamespace) -> None:
    await _at_rest(scope)
    path = "/spec/rayClusterConfig/headGroupSpec/template/metadata"
    value = {"annotations": {KEY: "before", "a": "b"}, "labels": {"c": "d"}}
    patch = PatchRequest(
        body=[{"op": "add", "path": path, "value": value}], content_type=JSON_PATCH
    )
    await scope.kube.patch(RAY_SERVICE, scope.namespace, "demo", patch)
    assert scope.raybus("restart", "rayservice/demo").code == 0
    meta = _templates((await scope.service())["spec"]["rayClusterConfig"])[0]["metadata"]
    assert (meta["annotations"]["a"], meta["labels"]) == ("b", {"c": "d"})
    assert meta["annotations"][KEY] != "before"


@pytest.mark.parametrize("verb", [("restart", "demo"), ("set", "image", "demo", f"*={NEW_IMAGE}")])
async def test_a_dry_run_changes_nothing(scope: CliNamespace, verb: tuple[str, ...]) -> None:
    await _at_rest(scope)
    version = (await scope.service())["metadata"]["resourceVersion"]
    done = scope.raybus(*verb, "--dry-run")
    assert (done.code, done.err) == (0, "")
    assert done.out.endswith("(dry run: nothing is changed)\n")
    assert scope.raybus(*verb, "--dry-run", "-o", "json").data["outcome"] == "new cluster"
    assert scope.raybus(*verb, "--dry-run", "-o", "name").out == "rayservice.ray.io/demo\n"
    assert (await scope.service())["metadata"]["resourceVersion"] == version


async def test_images_are_set_where_they_are_named(scope: CliNamespace) -> None:
    await _at_rest(scope)
    assert scope.raybus("set", "image", "demo", f"gpu={NEW_IMAGE}").code == 0
    head, gpu = _templates((await scope.service())["spec"]["rayClusterConfig"])
    assert (head["spec"]["containers"][0]["image"], gpu["spec"]["containers"][0]["image"]) == (
        OLD_IMAGE,
        NEW_IMAGE,
    )


@cases(
    ("arguments", "code", "message"),
    {
        "an unknown group": (["tpu=ray:1"], 1, "there is no group 'tpu'; groups: head, gpu, or *"),
        "nothing to do": ([f"*={OLD_IMAGE}"], 1, "has that image already; nothing is changed"),
        "no image": (["head=Ray"], 2, "'Ray' is not an image reference"),
    },
)
async def test_what_cannot_be_set_is_one_line(
    scope: CliNamespace, arguments: list[str], code: int, message: str
) -> None:
    await _at_rest(scope)
    done = scope.raybus("set", "image", "demo", *arguments)
    assert (done.code, done.out, len(done.err.splitlines())) == (code, "", 1)
    assert message in done.err


async def test_the_api_server_refuses_a_patch_for_an_earlier_spec(scope: CliNamespace) -> None:
    await _at_rest(scope)
    meta = (await scope.service())["metadata"]
    found = edits.set_images(_config(), [edits.parse(f"*={NEW_IMAGE}")])
    for uid, generation in ((meta["uid"], meta["generation"] + 1), ("another", meta["generation"])):
        stale = ObjectMeta(name="demo", uid=uid, generation=generation)
        body = edits.build_operations(stale, ("spec", "rayClusterConfig"), found)
        with pytest.raises(errors.Rejected):
            await scope.kube.patch(
                RAY_SERVICE,
                scope.namespace,
                "demo",
                PatchRequest(body=body, content_type=JSON_PATCH),
            )
    assert (await scope.service())["metadata"]["generation"] == meta["generation"]


async def test_a_cluster_that_is_recreated_is_restarted(scope: CliNamespace) -> None:
    await _lone(scope, upgradeStrategy={"type": "Recreate"})
    done = scope.raybus("restart", "raycluster/lone")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"RayCluster {scope.namespace}/lone: recreated\n")
    assert all(
        KEY in each["metadata"]["annotations"]
        for each in _templates((await _cluster(scope))["spec"])
    )


async def test_a_cluster_that_is_not_recreated_is_refused_with_the_remedy(
    scope: CliNamespace,
) -> None:
    await _lone(scope)
    done = scope.raybus("restart", "raycluster/lone")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("error: spec.upgradeStrategy.type of RayCluster lone is not set")
    assert "set it to Recreate" in done.err


async def test_a_cluster_of_a_service_is_restarted_through_the_service(scope: CliNamespace) -> None:
    await _at_rest(scope)
    done = scope.raybus("restart", f"raycluster/{BLUE}")
    assert (done.code, done.out) == (1, "")
    assert "belongs to RayService demo" in done.err


@pytest.mark.parametrize(
    "verb", [("restart", "nobody"), ("set", "image", "nobody", "head=ray:1"), ("logs", "nobody")]
)
async def test_what_is_not_there_is_one_line(scope: CliNamespace, verb: tuple[str, ...]) -> None:
    done = scope.raybus(*verb)
    problem = f'rayservices.ray.io "nobody" not found in namespace "{scope.namespace}"'
    assert (done.code, done.out) == (1, "")
    assert done.err == f"error: {problem}; see what there is with 'raybus list -A'\n"


async def test_logs_of_a_pod_without_a_node_are_one_line(scope: CliNamespace) -> None:
    await _at_rest(scope)
    done = scope.raybus("logs", "demo")
    assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
    assert "see why with 'raybus explain'" in done.err


async def test_logs_of_all_pods_report_each_that_cannot_be_read(scope: CliNamespace) -> None:
    await _at_rest(scope)
    done = scope.raybus("logs", "demo", "--all")
    assert (done.code, done.out) == (1, "")
    assert [line.split()[2] for line in done.err.splitlines()] == [
        f"pod/{BLUE}-head-aaaaa/ray:",
        f"pod/{BLUE}-gpu-worker-00001/ray:",
    ]


async def test_logs_of_what_is_not_there_name_what_is(scope: CliNamespace) -> None:
    await _at_rest(scope)
    for options, message in (
        (("--group", "tpu"), "has no pod of group 'tpu'; groups with pods: head, gpu"),
        (("--pod", "gone"), "'raybus bundle demo' keeps the events"),
        (("--cluster", "pending"), "no upgrade is in progress"),
        (("-c", "x"), "containers: ray"),
    ):
        done = scope.raybus("logs", "demo", *options)
        assert (done.code, done.out, len(done.err.splitlines())) == (1, "", 1)
        assert message in done.err
