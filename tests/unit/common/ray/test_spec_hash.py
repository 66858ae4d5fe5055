"""Spec hashes equal KubeRay's, byte for byte; the vectors were made by running its Go types (spec rayservice, appendix A)."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from common.api.opaque import Json
from common.ray import spec_hash
from support.tables import cases

GOLDEN = Path(__file__).parents[3] / "golden" / "spec_hash"


class Vector(msgspec.Struct, frozen=True, kw_only=True):
    """A spec as a user may write it, and Go's result for it."""

    spec: Json
    hash: str
    name: str = ""
    json: str = ""


def _vectors(file: str) -> list[Vector]:
    return msgspec.json.decode((GOLDEN / file).read_bytes(), type=list[Vector])


def a_spec(**group: Any) -> Json:
    template = {"spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.52.0"}]}}
    return {
        "headGroupSpec": {"template": template},
        "workerGroupSpecs": [{"groupName": "g", "template": template, **group}],
    }


@pytest.mark.acceptance("raycluster", 84)
@pytest.mark.acceptance("rayservice", 17)
@pytest.mark.parametrize(
    "vector", [pytest.param(vector, id=vector.name) for vector in _vectors("named.json")]
)
def test_a_known_spec_has_the_text_and_hash_that_kuberay_gives_it(vector: Vector) -> None:
    spec = {field: value for field, value in vector.spec.items() if field != "suspend"}
    assert spec_hash.canonical_json(spec) == vector.json
    assert spec_hash.service_goal_hash(vector.spec) == vector.hash


@pytest.mark.parametrize(
    "vector", [pytest.param(each, id=str(n)) for n, each in enumerate(_vectors("generated.json"))]
)
def test_a_random_spec_over_all_fields_has_the_hash_that_kuberay_gives_it(vector: Vector) -> None:
    assert spec_hash.cluster_spec_hash(vector.spec) == vector.hash


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"replicas": 3}, id="replicas, which the autoscaler moves"),
        pytest.param({"minReplicas": 1, "maxReplicas": 9}, id="bounds"),
        pytest.param({"scaleStrategy": {"workersToDelete": ["a"]}}, id="workers to delete"),
        pytest.param({"unknown": 1}, id="a field that the types do not know"),
        pytest.param({"suspend": None}, id="null, which means absent"),
    ],
)
def test_what_others_change_at_run_time_leaves_the_hash_alone(change: Json) -> None:
    assert spec_hash.cluster_spec_hash(a_spec(**change)) == spec_hash.cluster_spec_hash(a_spec())


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"groupName": "h"}, id="another name"),
        pytest.param({"numOfHosts": 2}, id="hosts"),
        pytest.param({"priority": 0}, id="an API server default that was not there before"),
        pytest.param({"rayStartParams": {}}, id="empty parameters instead of none"),
    ],
)
def test_any_other_change_changes_the_hash(change: Json) -> None:
    assert spec_hash.cluster_spec_hash(a_spec(**change)) != spec_hash.cluster_spec_hash(a_spec())


def test_only_a_service_passes_over_suspend() -> None:
    suspended = {**a_spec(), "suspend": True}
    assert spec_hash.cluster_spec_hash(suspended) != spec_hash.cluster_spec_hash(a_spec())
    assert spec_hash.service_goal_hash(suspended) == spec_hash.service_goal_hash(a_spec())


def test_the_first_groups_hash_like_the_spec_before_a_group_was_appended() -> None:
    before = a_spec()
    after: Json = {
        **before,
        "workerGroupSpecs": [*before["workerGroupSpecs"], {"groupName": "new", "template": {}}],
    }
    assert spec_hash.service_goal_hash(after) != spec_hash.service_goal_hash(before)
    assert spec_hash.service_goal_hash(after, worker_groups=1) == spec_hash.service_goal_hash(
        before
    )


def test_hashing_leaves_the_spec_as_it_is() -> None:
    spec = a_spec(replicas=3, scaleStrategy={"workersToDelete": ["a"]})
    text = msgspec.json.encode(spec)
    spec_hash.service_goal_hash(spec, worker_groups=0)
    assert msgspec.json.encode(spec) == text


@cases(
    ("pod", "fault", "field"),
    {
        "type": ({"hostNetwork": "yes"}, "Expected `bool | null`, got `str`", "hostNetwork"),
        "quantity": ({"overhead": {"cpu": "1x"}}, "'1x' is not a quantity", "overhead[...]"),
        "list": ({"containers": {}}, "Expected `array | null`, got `object`", "containers"),
    },
)
def test_data_that_does_not_fit_its_type_is_named_by_its_path(
    pod: Json, fault: str, field: str
) -> None:
    with pytest.raises(msgspec.ValidationError) as problem:
        spec_hash.cluster_spec_hash({"headGroupSpec": {"template": {"spec": pod}}})
    assert str(problem.value).startswith(fault)
    assert f"at `$.headGroupSpec.template.spec.{field}`" in str(problem.value)
