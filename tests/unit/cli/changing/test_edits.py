"""The fields that `restart` and `set image` change, and the patch for them."""

import copy

import pytest

from common import errors
from common.api.opaque import Json
from common.ray import spec_hash
from raybus_cli.changing import edits
from raybus_cli.changing.edits import FieldEdit
from support.builders.snapshots import NOW, OLD_IMAGE, a_config, a_gpu_group, at_rest
from support.tables import cases

AT = "2026-01-01T12:30:00Z"
KEY = "raybus.io/restartedAt"


def _config() -> Json:
    config = a_config(OLD_IMAGE, a_gpu_group(), a_gpu_group("cpu"))
    spec: Json = config["workerGroupSpecs"][0]["template"]["spec"]
    spec["containers"].append({"name": "exporter", "image": "exporter:1"})
    spec["initContainers"] = [{"name": "download", "image": "download:1"}]
    return config


def _set(*arguments: str) -> list[FieldEdit]:
    return edits.set_images(_config(), [edits.parse(each) for each in arguments])


def _applied(config: Json, found: list[FieldEdit]) -> Json:
    changed = copy.deepcopy(config)
    for each in found:
        at = changed
        for part in each.path[:-1]:
            at = at[part]  # pyright: ignore[reportArgumentType]  (a list is indexed by a number)
        at[each.path[-1]] = each.value  # pyright: ignore[reportArgumentType]
    return changed


def test_a_restart_annotates_every_template_and_so_needs_a_new_cluster() -> None:
    config = _config()
    changed = _applied(config, edits.restart(config, now=NOW))
    templates = [
        changed["headGroupSpec"]["template"],
        *(each["template"] for each in changed["workerGroupSpecs"]),
    ]
    assert [each["metadata"]["annotations"] for each in templates] == [{KEY: AT}] * 3
    assert spec_hash.service_goal_hash(changed) != spec_hash.service_goal_hash(config)


@pytest.mark.parametrize(
    "at", [0, 1, 2], ids=["the head", "a worker group", "another worker group"]
)
def test_the_annotation_of_each_template_enters_the_hash(at: int) -> None:
    config = _config()
    changed = _applied(config, [edits.restart(config, now=NOW)[at]])
    assert spec_hash.service_goal_hash(changed) != spec_hash.service_goal_hash(config)
    assert spec_hash.cluster_spec_hash(changed) != spec_hash.cluster_spec_hash(config)


@cases(
    ("metadata", "left"),
    {
        "empty metadata": ({}, {}),
        "labels": ({"labels": {"a": "b"}}, {"labels": {"a": "b"}}),
        "annotations": ({"annotations": {"a": "b"}}, {"annotations": {"a": "b", KEY: AT}}),
        "an earlier restart": ({"annotations": {KEY: "before"}}, {}),
        "null": ({"annotations": None}, {}),
    },
)
def test_what_a_template_has_stays(metadata: Json, left: Json) -> None:
    config = a_config()
    config["headGroupSpec"]["template"]["metadata"] = metadata
    changed = _applied(config, edits.restart(config, now=NOW))["headGroupSpec"]["template"][
        "metadata"
    ]
    assert changed == {"annotations": {KEY: AT}, **left}


def test_images_change_where_they_are_named() -> None:
    found = _set("head=ray:1", "gpu/exporter=exporter:2", "gpu/download=download:2")
    assert [(each.path, each.old, each.new) for each in found] == [
        (("headGroupSpec", "template", "spec", "containers", 0, "image"), OLD_IMAGE, "ray:1"),
        (
            ("workerGroupSpecs", 0, "template", "spec", "containers", 1, "image"),
            "exporter:1",
            "exporter:2",
        ),
        (
            ("workerGroupSpecs", 0, "template", "spec", "initContainers", 0, "image"),
            "download:1",
            "download:2",
        ),
    ]


def test_all_groups_get_the_image_in_their_ray_container() -> None:
    assert [each.path[:2] for each in _set("*=ray:1")] == [
        ("headGroupSpec", "template"),
        ("workerGroupSpecs", 0),
        ("workerGroupSpecs", 1),
    ]
    assert len(_set("*/exporter=exporter:2")) == 1


def test_an_image_that_is_there_already_is_no_edit() -> None:
    assert [each.new for each in _set(f"head={OLD_IMAGE}", "gpu=ray:1")] == ["ray:1"]


@cases(
    ("arguments", "message"),
    {
        "an unknown group": (
            ["tpu=ray:1"],
            "there is no group 'tpu'; groups: head, gpu, cpu, or *",
        ),
        "an unknown container": (["gpu/x=a"], "group 'gpu' has no container 'x'; containers: "),
        "a container of another group": (
            ["cpu/exporter=a"],
            "group 'cpu' has no container 'exporter'",
        ),
        "two images": (["*=ray:1", "gpu=ray:2"], "gpu gets two images, ray:1 and ray:2"),
        "nothing to do": ([f"*={OLD_IMAGE}"], "has that image already; nothing is changed"),
    },
)
def test_what_cannot_be_set_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(errors.Rejected) as refused:
        _set(*arguments)
    assert message in str(refused.value)


def test_the_patch_tests_the_object_and_its_spec_and_escapes_its_places() -> None:
    meta, config = at_rest().service.metadata, a_config()
    config["headGroupSpec"]["template"]["metadata"] = {"annotations": {"a": "b"}}
    body = edits.build_operations(
        meta, ("spec", "rayClusterConfig"), edits.restart(config, now=NOW)
    )
    assert body[:2] == [
        {"op": "test", "path": "/metadata/uid", "value": "uid-demo"},
        {"op": "test", "path": "/metadata/generation", "value": 2},
    ]
    place = (
        "/spec/rayClusterConfig/headGroupSpec/template/metadata/annotations/raybus.io~1restartedAt"
    )
    assert body[2] == {"op": "add", "path": place, "value": AT}
