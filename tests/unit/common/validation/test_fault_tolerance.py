"""Rules on GCS fault tolerance, S16-S23 and §4.2.1 (acceptance cases 8-10)."""

from typing import Any

import pytest

from common import labels
from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_container, a_head, a_ray_cluster, a_template
from support.tables import cases

WITH_ROCKSDB = BETA | {FeatureGate.EMBEDDED_STORAGE}


def a_head_with(*names: str, params: dict[str, str] | None = None, **container: Any) -> Json:
    env = [{"name": name, "value": "x"} for name in names]
    return a_head(
        template=a_template(a_container(env=env, **container)), ray_start_params=params or {}
    )


@cases(
    ("cluster", "message"),
    {
        "S16 / case 8: annotation and options, with any value of the annotation": (
            {"annotations": {labels.FT_ENABLED: "false"}, "gcs_fault_tolerance_options": {}},
            "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. "
            "Please use only GcsFaultToleranceOptions to configure GCS fault tolerance",
        ),
        "S17 / case 9: an address without fault tolerance": (
            {"head": a_head_with("RAY_REDIS_ADDRESS")},
            "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but GcsFaultToleranceOptions "
            "is not set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance",
        ),
        "S17: the annotation makes the address right": (
            {"head": a_head_with("RAY_REDIS_ADDRESS"), "annotations": {labels.FT_ENABLED: "TRUE"}},
            None,
        ),
        "S18 / case 10: a password as a param": (
            {
                "gcs_fault_tolerance_options": {},
                "head": a_head_with(params={"redis-password": "x"}),
            },
            "cannot set `redis-password` in rayStartParams when GcsFaultToleranceOptions is enabled - "
            "use GcsFaultToleranceOptions.RedisPassword instead",
        ),
        "S19: a password in the environment": (
            {"gcs_fault_tolerance_options": {}, "head": a_head_with("REDIS_PASSWORD")},
            "cannot set `REDIS_PASSWORD` env var in head Pod when GcsFaultToleranceOptions is enabled - "
            "use GcsFaultToleranceOptions.RedisPassword instead",
        ),
        "S20: an address in the environment": (
            {"gcs_fault_tolerance_options": {}, "head": a_head_with("RAY_REDIS_ADDRESS")},
            "cannot set `RAY_REDIS_ADDRESS` env var in head Pod when GcsFaultToleranceOptions is enabled - "
            "use GcsFaultToleranceOptions.RedisAddress instead",
        ),
        "S21: a storage namespace as an annotation": (
            {
                "gcs_fault_tolerance_options": {},
                "annotations": {labels.EXTERNAL_STORAGE_NAMESPACE: "n"},
            },
            "cannot set `ray.io/external-storage-namespace` annotation when GcsFaultToleranceOptions is enabled - "
            "use GcsFaultToleranceOptions.ExternalStorageNamespace instead",
        ),
        "S22: a volume for Redis": (
            {"gcs_fault_tolerance_options": {"storage": {}}},
            "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - "
            "it only applies to the 'rocksdb' backend",
        ),
        "S22: RocksDB with the gate off": (
            {"gcs_fault_tolerance_options": {"backend": "rocksdb"}},
            "the embedded RocksDB GCS fault tolerance backend (GcsFaultToleranceOptions.Backend: 'rocksdb') requires "
            "the GCSFaultToleranceEmbeddedStorage feature gate to be enabled",
        ),
        "S23: a user name as a param, without fault tolerance too": (
            {"head": a_head_with(params={"redis-username": "u"})},
            "cannot set redis username in rayStartParams or environment variables - "
            "use GcsFaultToleranceOptions.RedisUsername instead",
        ),
        "S23: a user name in the environment": (
            {"head": a_head_with("REDIS_USERNAME")},
            "cannot set redis username in rayStartParams or environment variables - "
            "use GcsFaultToleranceOptions.RedisUsername instead",
        ),
        "Redis needs no address": ({"gcs_fault_tolerance_options": {"backend": "redis"}}, None),
    },
)
def test_redis(cluster: Json, message: str | None) -> None:
    assert cluster_rules.spec(a_ray_cluster(**cluster), BETA) == message


CLAIM = "GcsFaultToleranceOptions.Storage.ClaimName is mutually exclusive with size, storageClassName, and accessModes"
ENV = (
    "cannot set `RAY_gcs_storage` or `RAY_gcs_storage_path` env var in head Pod when the embedded GCS FT backend "
    "is used - these are managed by KubeRay"
)
MOUNT = (
    'cannot set a volume mount named "gcs-storage" or mounted at /data/gcs in the head container when the embedded '
    "GCS FT backend is used - it is managed by KubeRay"
)


@pytest.mark.parametrize(
    ("options", "head", "message"),
    [
        pytest.param({}, None, None, id="RocksDB alone is fine"),
        *(
            pytest.param(
                {field: value},
                None,
                f"cannot set GcsFaultToleranceOptions.{field[0].upper()}{field[1:]} when backend is 'rocksdb'",
                id=f"{field} is for Redis",
            )
            for field, value in (
                ("redisAddress", "redis:6379"),
                ("redisUsername", {"value": "u"}),
                ("redisPassword", {"value": "p"}),
                ("externalStorageNamespace", "n"),
            )
        ),
        pytest.param({"storage": {"claimName": "x"}}, None, None, id="a claim alone is fine"),
        pytest.param(
            {"storage": {"claimName": "x", "size": "1Gi"}}, None, CLAIM, id="claim and size"
        ),
        pytest.param(
            {"storage": {"claimName": "x", "storageClassName": ""}},
            None,
            CLAIM,
            id="claim and class",
        ),
        pytest.param(
            {"storage": {"claimName": "x", "accessModes": ["A"]}}, None, CLAIM, id="claim and modes"
        ),
        pytest.param(
            {}, a_head_with("RAY_gcs_storage"), ENV, id="the kind of storage in the environment"
        ),
        pytest.param(
            {}, a_head_with("RAY_gcs_storage_path"), ENV, id="its path in the environment"
        ),
        pytest.param(
            {},
            a_head_with(volume_mounts=[{"name": "x", "mountPath": "/data/gcs"}]),
            MOUNT,
            id="a mount at our path",
        ),
        pytest.param(
            {},
            a_head_with(volume_mounts=[{"name": "gcs-storage", "mountPath": "/x"}]),
            MOUNT,
            id="a mount of our name",
        ),
        pytest.param(
            {},
            a_head(template=a_template(volumes=[{"name": "gcs-storage", "emptyDir": {}}])),
            'cannot set a volume named "gcs-storage" in the head Pod when the embedded GCS FT backend is used - '
            "it is managed by KubeRay",
            id="a volume of our name",
        ),
    ],
)
def test_rocksdb(options: Json, head: Json | None, message: str | None) -> None:
    cluster = a_ray_cluster(
        head=head, gcs_fault_tolerance_options={"backend": "rocksdb", **options}
    )
    assert cluster_rules.spec(cluster, WITH_ROCKSDB) == message
