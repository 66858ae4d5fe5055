"""Rules on GCS fault tolerance (spec raycluster §4.2, S16-S23, and §4.2.1)."""

from collections.abc import Iterator

from common import labels, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import GcsFaultToleranceOptions, RayCluster
from common.feature_gates import Gate, Gates
from common.ray import cluster_traits as traits


def problems(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield what is wrong with the options, and with what is set beside them."""
    options, annotations = cluster.spec.gcs_fault_tolerance_options, cluster.metadata.annotations
    params, head = traits.start_params(cluster.spec.head_group_spec), cluster.spec.head_group_spec.template
    if options is not None and annotations.get(labels.FT_ENABLED):  # S16
        yield (
            "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. "
            "Please use only GcsFaultToleranceOptions to configure GCS fault tolerance"
        )
    if not traits.is_fault_tolerant(cluster) and _has_env(head, "RAY_REDIS_ADDRESS"):  # S17
        yield (
            "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but GcsFaultToleranceOptions "
            "is not set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance"
        )
    if options is not None:
        namespace = annotations.get(labels.EXTERNAL_STORAGE_NAMESPACE)
        for is_set, what, field in (  # S18-S21
            (params.get("redis-password"), "`redis-password` in rayStartParams", "RedisPassword"),
            (_has_env(head, "REDIS_PASSWORD"), "`REDIS_PASSWORD` env var in head Pod", "RedisPassword"),
            (_has_env(head, "RAY_REDIS_ADDRESS"), "`RAY_REDIS_ADDRESS` env var in head Pod", "RedisAddress"),
            (namespace, "`ray.io/external-storage-namespace` annotation", "ExternalStorageNamespace"),
        ):
            if is_set:
                yield f"cannot set {what} when GcsFaultToleranceOptions is enabled - use GcsFaultToleranceOptions.{field} instead"
        yield from _of_backend(options, head, gates)  # S22
    if params.get("redis-username") or _has_env(head, "REDIS_USERNAME"):  # S23
        yield (
            "cannot set redis username in rayStartParams or environment variables - "
            "use GcsFaultToleranceOptions.RedisUsername instead"
        )


def _of_backend(options: GcsFaultToleranceOptions, head: Body, gates: Gates) -> Iterator[str]:
    """Yield what is wrong with Redis or RocksDB, §4.2.1."""
    storage = options.storage
    if options.backend != "rocksdb":
        if storage is not None:
            yield "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - it only applies to the 'rocksdb' backend"
        return
    if Gate.EMBEDDED_STORAGE not in gates:
        yield (
            "the embedded RocksDB GCS fault tolerance backend (GcsFaultToleranceOptions.Backend: 'rocksdb') requires "
            "the GCSFaultToleranceEmbeddedStorage feature gate to be enabled"
        )
    for field, is_set in (
        ("RedisAddress", options.redis_address),
        ("RedisUsername", options.redis_username is not None),
        ("RedisPassword", options.redis_password is not None),
        ("ExternalStorageNamespace", options.external_storage_namespace),
    ):
        if is_set:
            yield f"cannot set GcsFaultToleranceOptions.{field} when backend is 'rocksdb'"
    given = () if storage is None else (storage.size, storage.storage_class_name, storage.access_modes or None)
    if storage is not None and storage.claim_name and any(each is not None for each in given):
        yield "GcsFaultToleranceOptions.Storage.ClaimName is mutually exclusive with size, storageClassName, and accessModes"
    if _has_env(head, "RAY_gcs_storage") or _has_env(head, "RAY_gcs_storage_path"):
        yield (
            "cannot set `RAY_gcs_storage` or `RAY_gcs_storage_path` env var in head Pod when the embedded GCS FT backend "
            "is used - these are managed by KubeRay"
        )
    if pod_json.has_mount(pod_json.ray_container(head), name="gcs-storage", path="/data/gcs"):
        yield (
            'cannot set a volume mount named "gcs-storage" or mounted at /data/gcs in the head container when the '
            "embedded GCS FT backend is used - it is managed by KubeRay"
        )
    if pod_json.has_volume(head, "gcs-storage"):
        yield (
            'cannot set a volume named "gcs-storage" in the head Pod when the embedded GCS FT backend is used - '
            "it is managed by KubeRay"
        )


def _has_env(head: Body, name: str) -> bool:
    return pod_json.has_env(pod_json.ray_container(head), name)
