"""Ray objects decode leniently and write exactly (spec raycluster §1.2, §1.3; spec rayservice §2)."""

from datetime import UTC, datetime

import msgspec
import pytest

from common.api import go_types, meta, ray_cluster, ray_service
from common.api.meta import Condition
from common.api.ray_cluster import RayClusterStatus
from common.api.ray_service import ClusterServiceStatus

EMPTY_STATUS = b'{"desiredCPU":"0","desiredMemory":"0","desiredGPU":"0","desiredTPU":"0","head":{}}'


def test_an_empty_cluster_status_shows_its_quantities_and_head() -> None:
    assert msgspec.json.encode(RayClusterStatus()) == EMPTY_STATUS


def test_an_empty_side_of_a_service_shows_its_cluster_status() -> None:
    assert (
        msgspec.json.encode(ClusterServiceStatus()) == b'{"rayClusterStatus":' + EMPTY_STATUS + b"}"
    )


def test_a_condition_is_written_in_whole_seconds() -> None:
    moment = meta.whole_seconds(datetime(2026, 1, 2, 3, 4, 5, 678, tzinfo=UTC))
    condition = Condition(
        type="Ready", status="True", last_transition_time=moment, reason="Yes", message=""
    )
    assert msgspec.json.encode(condition) == (
        b'{"type":"Ready","status":"True","lastTransitionTime":"2026-01-02T03:04:05Z","reason":"Yes","message":""}'
    )


def test_unknown_fields_vanish_from_the_view_and_stay_in_the_raw_spec() -> None:
    spec = {"headGroupSpec": {"template": {"spec": {"x": 1}}, "y": 2}, "z": 3}
    cluster = ray_cluster.decode({"metadata": {"name": "c", "w": 4}, "spec": spec})
    assert cluster.raw_spec == spec
    assert cluster.spec.head_group_spec.template == {"spec": {"x": 1}}


def test_absent_and_empty_stay_apart() -> None:
    cluster = ray_cluster.decode(
        {"metadata": {}, "spec": {"headGroupSpec": {"rayStartParams": {}}}}
    )
    assert cluster.spec.head_group_spec.ray_start_params == {}
    assert cluster.spec.head_group_spec.labels is None
    assert cluster.spec.suspend is None


@pytest.mark.parametrize("number", [2, 2.0, "2"])
def test_a_number_may_be_written_oddly(number: object) -> None:
    cluster = ray_cluster.decode(
        {"metadata": {}, "spec": {"workerGroupSpecs": [{"replicas": number}]}}
    )
    assert cluster.spec.worker_group_specs is not None
    assert cluster.spec.worker_group_specs[0].replicas == 2


@pytest.mark.parametrize("size", ["1.5Gi", 1, 0.5])
def test_a_quantity_may_be_a_number(size: object) -> None:
    spec = {"gcsFaultToleranceOptions": {"storage": {"size": size}}}
    options = ray_cluster.decode({"metadata": {}, "spec": spec}).spec.gcs_fault_tolerance_options
    assert options is not None
    assert options.storage is not None
    assert options.storage.size == size


def test_a_spec_that_does_not_fit_fails_where_it_is_read_and_names_the_field() -> None:
    cluster = ray_cluster.decode({"metadata": {"name": "c"}, "spec": {"rayVersion": []}})
    with pytest.raises(msgspec.ValidationError, match=r"\$\.rayVersion"):
        _ = cluster.spec


def test_a_service_gives_its_cluster_spec_as_written() -> None:
    config = {"rayVersion": "2.52.0", "unknown": {"kept": True}}
    service = ray_service.decode({"metadata": {"name": "s"}, "spec": {"rayClusterConfig": config}})
    assert service.raw_cluster_config == config
    assert service.spec.ray_cluster_config.ray_version == "2.52.0"


def test_an_object_without_spec_and_status_decodes() -> None:
    service = ray_service.decode(b'{"metadata":{"name":"s"}}')
    assert service.raw_cluster_config == {}
    assert service.status.active_service_status == ClusterServiceStatus()


def test_go_pointers_values_and_lists_follow_from_the_python_types() -> None:
    types = {field.name: field.type for field in go_types.known()["ray/v1.WorkerGroupSpec"].fields}
    assert types["suspend"] == "*bool"
    assert types["numOfHosts"] == "int32"
    assert types["template"] == "core/v1.PodTemplateSpec"
    assert types["scaleStrategy"] == "ray/v1.ScaleStrategy"
    assert types["labels"] == "map[string]string"


def test_every_kubernetes_type_that_a_field_mentions_is_known() -> None:
    known = go_types.known()
    mentioned = {
        field.type.rpartition("]")[2].removeprefix("*")
        for kind in known.values()
        for field in kind.fields
    }
    built_in = {
        *("string", "bool", "int32", "int64", "float32", "quantity", "intOrString", "time"),
        "json",
    }
    assert mentioned - built_in <= set(known)
    schema = msgspec.json.decode(go_types.SCHEMA_FILE.read_bytes(), type=go_types.GoSchema)
    assert schema.version.startswith("v0.")
