"""A case has only the fields of an older KubeRay's CRDs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from common.api.opaque import Json
from parity import older_crds
from parity.cases import Case

CONTAINERS = {"type": "array", "items": {"properties": {"image": {"type": "string"}}}}
SPEC = {"properties": {"suspend": {"type": "boolean"}, "containers": CONTAINERS}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a CRD of RayClusters that has two fields."""
    schema = {"openAPIV3Schema": {"properties": {"spec": SPEC}}}
    crd = {"spec": {"versions": [{"name": "v1", "schema": schema}]}}
    (tmp_path / "ray.io_rayclusters.yaml").write_text(yaml.safe_dump(crd))
    return tmp_path


def a_cluster(**spec: Any) -> Json:
    """Build a RayCluster."""
    return {"kind": "RayCluster", "metadata": {"labels": {"a": "b"}}, "spec": spec}


def test_unknown_fields_of_a_spec_go_and_other_objects_stay(folder: Path) -> None:
    pod = {"kind": "Pod", "spec": {"priority": 1}}
    newer = a_cluster(suspend=True, priority=1, containers=[{"image": "a", "restart": True}])
    case = older_crds.prune_case(Case(objects=[newer, pod]), folder)
    assert case.objects == [a_cluster(suspend=True, containers=[{"image": "a"}]), pod]


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (["spec", "suspend"], True, True),
        (["spec", "suspend"], None, None),
        (["spec", "containers", 0], {"image": "a", "restart": True}, {"image": "a"}),
        (["spec"], {"suspend": True, "priority": 1}, {"suspend": True}),
        (["metadata", "labels", "a"], "c", "c"),
    ],
)
def test_an_edit_has_a_pruned_value(
    folder: Path, path: list[str | int], value: Any, expected: Any
) -> None:
    step: Json = {"do": "edit", "path": path, "value": value}
    (steps,) = older_crds.prune_case(Case(rounds=[[step]]), folder).rounds
    assert steps == [{**step, "value": expected}]


@pytest.mark.parametrize("path", [["spec", "priority"], ["spec", "containers", 0, "restart"]])
def test_an_edit_of_an_unknown_field_is_left_out(folder: Path, path: list[str | int]) -> None:
    steps = [{"do": "edit", "path": path, "value": 1}, {"do": "run"}]
    assert older_crds.prune_case(Case(rounds=[steps]), folder).rounds == [[{"do": "run"}]]
