"""Rules on GCS fault tolerance (spec raycluster §4.2, S16-S23, and §4.2.1)."""

from collections.abc import Callable
from typing import Final, TypeAlias

from common import labels, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import GcsFaultToleranceOptions, RayCluster
from common.feature_gates import Gate, Gates
from common.ray import cluster_traits as traits
from common.validation.rules import Rule

OptionsRule: TypeAlias = Callable[[RayCluster, GcsFaultToleranceOptions], str | None]


def annotation_and_options(cluster: RayCluster, _: Gates) -> str | None:
    """S16."""
    if not cluster.metadata.annotations.get(labels.FT_ENABLED) or _options(cluster) is None:
        return None
    return (
        "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. "
        "Please use only GcsFaultToleranceOptions to configure GCS fault tolerance"
    )


def redis_address_without_fault_tolerance(cluster: RayCluster, _: Gates) -> str | None:
    """S17."""
    if traits.is_fault_tolerant(cluster) or not _head_has_env(cluster, "RAY_REDIS_ADDRESS"):
        return None
    return (
        "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but GcsFaultToleranceOptions "
        "is not set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance"
    )


def password_as_param(cluster: RayCluster, _: Gates) -> str | None:
    """S18."""
    params = traits.start_params(cluster.spec.head_group_spec)
    if _options(cluster) is None or not params.get("redis-password"):
        return None
    return _set_elsewhere("`redis-password` in rayStartParams", "RedisPassword")


def password_as_env(cluster: RayCluster, _: Gates) -> str | None:
    """S19."""
    if _options(cluster) is None or not _head_has_env(cluster, "REDIS_PASSWORD"):
        return None
    return _set_elsewhere("`REDIS_PASSWORD` env var in head Pod", "RedisPassword")


def address_as_env(cluster: RayCluster, _: Gates) -> str | None:
    """S20."""
    if _options(cluster) is None or not _head_has_env(cluster, "RAY_REDIS_ADDRESS"):
        return None
    return _set_elsewhere("`RAY_REDIS_ADDRESS` env var in head Pod", "RedisAddress")


def namespace_as_annotation(cluster: RayCluster, _: Gates) -> str | None:
    """S21."""
    if _options(cluster) is None or not cluster.metadata.annotations.get(labels.EXTERNAL_STORAGE_NAMESPACE):
        return None
    return _set_elsewhere("`ray.io/external-storage-namespace` annotation", "ExternalStorageNamespace")


def backend(cluster: RayCluster, gates: Gates) -> str | None:
    """S22, §4.2.1."""
    options = _options(cluster)
    if options is None:
        return None
    if options.backend != "rocksdb":
        return storage_with_redis(options)
    if Gate.EMBEDDED_STORAGE not in gates:
        return (
            "the embedded RocksDB GCS fault tolerance backend (GcsFaultToleranceOptions.Backend: 'rocksdb') requires "
            "the GCSFaultToleranceEmbeddedStorage feature gate to be enabled"
        )
    return next((broken for rule in _ROCKSDB_RULES if (broken := rule(cluster, options)) is not None), None)


def username_outside_options(cluster: RayCluster, _: Gates) -> str | None:
    """S23."""
    params = traits.start_params(cluster.spec.head_group_spec)
    if not params.get("redis-username") and not _head_has_env(cluster, "REDIS_USERNAME"):
        return None
    return (
        "cannot set redis username in rayStartParams or environment variables - "
        "use GcsFaultToleranceOptions.RedisUsername instead"
    )


def storage_with_redis(options: GcsFaultToleranceOptions) -> str | None:
    """Refuse a volume for Redis, which keeps its own data."""
    if options.storage is None:
        return None
    return (
        "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - it only applies to the 'rocksdb' backend"
    )


def redis_field_with_rocksdb(_: RayCluster, options: GcsFaultToleranceOptions) -> str | None:
    """Refuse what only Redis has: address, credentials and key prefix."""
    fields = {
        "RedisAddress": bool(options.redis_address),
        "RedisUsername": options.redis_username is not None,
        "RedisPassword": options.redis_password is not None,
        "ExternalStorageNamespace": bool(options.external_storage_namespace),
    }
    wrong = next((field for field, is_set in fields.items() if is_set), None)
    return f"cannot set GcsFaultToleranceOptions.{wrong} when backend is 'rocksdb'" if wrong else None


def claim_and_its_shape(_: RayCluster, options: GcsFaultToleranceOptions) -> str | None:
    """Refuse to shape a claim that exists already."""
    storage = options.storage
    if storage is None or not storage.claim_name:
        return None
    if storage.size is None and storage.storage_class_name is None and not storage.access_modes:
        return None
    return (
        "GcsFaultToleranceOptions.Storage.ClaimName is mutually exclusive with size, storageClassName, and accessModes"
    )


def storage_env_set(cluster: RayCluster, _: GcsFaultToleranceOptions) -> str | None:
    """Refuse an environment variable that sets where the store is."""
    if not _head_has_env(cluster, "RAY_gcs_storage") and not _head_has_env(cluster, "RAY_gcs_storage_path"):
        return None
    return (
        "cannot set `RAY_gcs_storage` or `RAY_gcs_storage_path` env var in head Pod when the embedded GCS FT backend "
        "is used - these are managed by KubeRay"
    )


def storage_mount_set(cluster: RayCluster, _: GcsFaultToleranceOptions) -> str | None:
    """Refuse a second mount of the store."""
    if not pod_json.has_mount(_head(cluster), name="gcs-storage", path="/data/gcs"):
        return None
    return (
        'cannot set a volume mount named "gcs-storage" or mounted at /data/gcs in the head container when the '
        "embedded GCS FT backend is used - it is managed by KubeRay"
    )


def storage_volume_set(cluster: RayCluster, _: GcsFaultToleranceOptions) -> str | None:
    """Refuse a second volume for the store."""
    if not pod_json.has_volume(cluster.spec.head_group_spec.template, "gcs-storage"):
        return None
    return (
        'cannot set a volume named "gcs-storage" in the head Pod when the embedded GCS FT backend is used - '
        "it is managed by KubeRay"
    )


def _set_elsewhere(what: str, field: str) -> str:
    return f"cannot set {what} when GcsFaultToleranceOptions is enabled - use GcsFaultToleranceOptions.{field} instead"


def _options(cluster: RayCluster) -> GcsFaultToleranceOptions | None:
    return cluster.spec.gcs_fault_tolerance_options


def _head(cluster: RayCluster) -> Body:
    return pod_json.ray_container(cluster.spec.head_group_spec.template)


def _head_has_env(cluster: RayCluster, name: str) -> bool:
    return pod_json.has_env(_head(cluster), name)


_ROCKSDB_RULES: Final[tuple[OptionsRule, ...]] = (
    redis_field_with_rocksdb,
    claim_and_its_shape,
    storage_env_set,
    storage_mount_set,
    storage_volume_set,
)

RULES: Final[tuple[Rule, ...]] = (
    annotation_and_options,
    redis_address_without_fault_tolerance,
    password_as_param,
    password_as_env,
    address_as_env,
    namespace_as_annotation,
    backend,
    username_outside_options,
)
