"""Validate the optional features of a RayCluster.

These are GCS fault tolerance, the history server, token authentication, network policies and mutual
TLS. Spec raycluster §4.2, S16-S23 with §4.2.1 and S32-S46 with §4.2.2 to §4.2.4.
"""

from collections.abc import Iterator
from typing import Final

from common import labels, pod_json
from common.api import kubernetes_syntax
from common.api.opaque import Body
from common.api.ray_cluster import (
    CollectorOptions,
    GcsFaultToleranceOptions,
    PolicyRules,
    RayCluster,
)
from common.feature_gates import FeatureGate, Gates
from common.ray import cluster_traits as traits

COLLECTOR: Final = "ray-history-collector"
_FIELD: Final = "historyServerOptions.collectorOptions"
_MANAGED: Final = (
    *("POD_IP", "FQ_RAY_IP", "RAY_CLUSTER_NAME", "RAY_CLUSTER_NAMESPACE"),
    *("RAY_ROLE", "OWNER_KIND", "OWNER_NAME", "EVENTS_PORT"),
)
_REQUIRED: Final = {
    "GCS": ("GCS_BUCKET",),
    "S3": ("S3_REGION",),
    "ALIYUNOSS": ("OSS_BUCKET", "OSS_ENDPOINT", "OSS_REGION"),
}
"""Environment variables that each storage backend of the history server requires."""
_TOKEN_SINCE: Final = (2, 52)
_KUBERNETES_TOKEN_SINCE: Final = (2, 55)
TLS_VOLUME: Final = "ray-tls"
TLS_PATH: Final = "/etc/ray/tls"
TLS_ENV: Final = ("RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT")
_BY_OPERATOR: Final = "when tlsOptions is set - the operator manages TLS configuration"


def of_fault_tolerance(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield violations in the fault tolerance options, and settings that conflict with them."""
    options, annotations = cluster.spec.gcs_fault_tolerance_options, cluster.metadata.annotations
    params, head = (
        traits.start_params(cluster.spec.head_group_spec),
        cluster.spec.head_group_spec.template,
    )
    if options is not None and annotations.get(labels.FT_ENABLED):  # S16
        yield (
            "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. "
            "Please use only GcsFaultToleranceOptions to configure GCS fault tolerance"
        )
    if not traits.is_fault_tolerant(cluster) and _has_env(head, "RAY_REDIS_ADDRESS"):  # S17
        yield (
            "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but "
            "GcsFaultToleranceOptions "
            "is not set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance"
        )
    if options is not None:
        namespace = annotations.get(labels.EXTERNAL_STORAGE_NAMESPACE)
        for is_set, what, field in (  # S18-S21
            (params.get("redis-password"), "`redis-password` in rayStartParams", "RedisPassword"),
            (
                _has_env(head, "REDIS_PASSWORD"),
                "`REDIS_PASSWORD` env var in head Pod",
                "RedisPassword",
            ),
            (
                _has_env(head, "RAY_REDIS_ADDRESS"),
                "`RAY_REDIS_ADDRESS` env var in head Pod",
                "RedisAddress",
            ),
            (
                namespace,
                "`ray.io/external-storage-namespace` annotation",
                "ExternalStorageNamespace",
            ),
        ):
            if is_set:
                yield (
                    f"cannot set {what} when GcsFaultToleranceOptions is enabled - use "
                    f"GcsFaultToleranceOptions.{field} instead"
                )
        yield from _of_backend(options, head, gates)  # S22
    if params.get("redis-username") or _has_env(head, "REDIS_USERNAME"):  # S23
        yield (
            "cannot set redis username in rayStartParams or environment variables - "
            "use GcsFaultToleranceOptions.RedisUsername instead"
        )


def _of_backend(options: GcsFaultToleranceOptions, head: Body, gates: Gates) -> Iterator[str]:
    """Yield violations of the Redis or RocksDB options (§4.2.1)."""
    storage = options.storage
    if options.backend != "rocksdb":
        if storage is not None:
            yield (
                "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - it "
                "only applies to the 'rocksdb' backend"
            )
        return
    if FeatureGate.EMBEDDED_STORAGE not in gates:
        yield (
            "the embedded RocksDB GCS fault tolerance backend "
            "(GcsFaultToleranceOptions.Backend: 'rocksdb') requires "
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
    given = (
        ()
        if storage is None
        else (storage.size, storage.storage_class_name, storage.access_modes or None)
    )
    if storage is not None and storage.claim_name and any(value is not None for value in given):
        yield (
            "GcsFaultToleranceOptions.Storage.ClaimName is mutually exclusive with size, "
            "storageClassName, and accessModes"
        )
    has_storage = _has_env(head, "RAY_gcs_storage") or _has_env(head, "RAY_gcs_storage_path")
    has_mount = pod_json.has_mount(
        pod_json.ray_container(head), name="gcs-storage", path="/data/gcs"
    )
    has_volume = pod_json.named(pod_json.spec(head), "volumes", "gcs-storage") is not None
    for is_set, what, they in (
        (
            has_storage,
            "`RAY_gcs_storage` or `RAY_gcs_storage_path` env var in head Pod",
            "these are",
        ),
        (
            has_mount,
            'a volume mount named "gcs-storage" or mounted at /data/gcs in the head container',
            "it is",
        ),
        (has_volume, 'a volume named "gcs-storage" in the head Pod', "it is"),
    ):
        if is_set:
            yield (
                f"cannot set {what} when the embedded GCS FT backend is used - {they} managed "
                "by KubeRay"
            )


def _has_env(head: Body, name: str) -> bool:
    return pod_json.has_env(pod_json.ray_container(head), name)


def of_history_server(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield violations in the history server's options, and containers with a reserved name."""
    options = cluster.spec.history_server_options
    if options is None:
        return
    if FeatureGate.HISTORY_SERVER not in gates:  # S32
        yield "RayClusterHistoryServer feature gate is not enabled"
    if options.collector_options is None:  # S33
        yield f"{_FIELD} must be set"
        return
    yield from _of_collector(options.collector_options)  # S34
    pods = [("head", cluster.spec.head_group_spec.template)]  # S35-S36
    pods += [
        (f"worker group {group.group_name}", group.template)
        for group in traits.worker_groups(cluster)
    ]
    for pod, template in pods:
        if pod_json.named(pod_json.spec(template), "containers", COLLECTOR) is not None:
            yield (
                f"{pod} pod template must not define a container with name '{COLLECTOR}' "
                "when history server collector options are enabled"
            )


def _of_collector(options: CollectorOptions) -> Iterator[str]:
    """Yield violations of the collector's image and environment (§4.2.2)."""
    if not options.image:
        yield f"{_FIELD}.image must be set"
    env: dict[str, Body] = {pod_json.text(entry, "name"): entry for entry in options.env or []}
    given = {name for name, entry in env.items() if entry.get("value") or entry.get("valueFrom")}
    for name in _MANAGED:
        if name in env:
            yield (
                f"{_FIELD}.env must not contain {name}: "
                "it is managed by KubeRay and injected automatically into the collector container"
            )
    backend = pod_json.text(env.get("STORAGE_BACKEND", {}), "value").upper()
    if not backend:
        yield (
            "STORAGE_BACKEND environment variable must be set with a literal string value in "
            f"{_FIELD}.env"
        )
    if backend == "AZUREBLOB":
        mode = pod_json.text(env.get("AZURE_STORAGE_AUTH_MODE", {}), "value").strip().lower()
        yield from _of_azure(mode, given)
    for name in _REQUIRED.get(backend, ()):
        if name not in given:
            yield f"{name} environment variable must be set when STORAGE_BACKEND is {backend}"


def _of_azure(mode: str, given: set[str]) -> Iterator[str]:
    connection, account = "AZURE_STORAGE_CONNECTION_STRING", "AZURE_STORAGE_ACCOUNT_URL"
    when = "environment variable must be set when STORAGE_BACKEND is AZUREBLOB"
    needed = {
        "connection_string": connection,
        "workload_identity": account,
        "default": account,
    }.get(mode)
    if needed is None and given.isdisjoint({connection, account}):
        yield f"either {connection} or {account} {when}"
    if needed is not None and needed not in given:
        yield f"{needed} {when} and AZURE_STORAGE_AUTH_MODE is {mode}"


def of_authentication(cluster: RayCluster) -> Iterator[str]:
    """Yield violations of the options for token authentication."""
    options, version = cluster.spec.auth_options, cluster.spec.ray_version
    has_token, by_kubernetes = traits.has_token_auth(cluster), traits.has_kubernetes_auth(cluster)
    if has_token:  # S37-S39
        yield from traits.version_problems(version, _TOKEN_SINCE, "authOptions.mode is 'token' but")
    # S40
    if (
        by_kubernetes
        and has_token
        and not traits.is_version_at_least(version, _KUBERNETES_TOKEN_SINCE)
    ):
        yield (
            "authOptions.enableK8sTokenAuth is enabled but minimum Ray version is 2.55.0, "
            f"got {version}"
        )
    if by_kubernetes and has_token and options is not None and options.secret_name:  # S41
        yield "authOptions.enableK8sTokenAuth is enabled and authOptions.secretName is also set"
    if by_kubernetes and not has_token:  # S42
        yield "authOptions.enableK8sTokenAuth is enabled but authOptions.mode not set to 'token'"


def of_network_policies(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield violations in the mode and rules of the network policy, and unknown worker groups."""
    policy, groups = cluster.spec.network_policy, traits.worker_groups(cluster)
    if policy is None:
        return
    if FeatureGate.NETWORK_POLICY not in gates:  # S43
        yield "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled"
    yield from _useless(policy.mode, "head", policy.head)  # S44
    yield from _useless(policy.mode, "worker", policy.worker)
    for group in groups:
        if problems := kubernetes_syntax.dns_1123_problems(group.group_name):
            yield (
                f'worker group name "{group.group_name}" must be a valid DNS1123 label '
                "when networkPolicy is enabled "
                f"(it is embedded in the NetworkPolicy name): [{' '.join(problems)}]"
            )
    known = {group.group_name for group in groups}
    for entry in policy.worker_groups or []:
        where = f'workerGroups["{entry.group_name}"]'
        yield from _useless(policy.mode, where, entry)
        if entry.group_name not in known:
            yield f"networkPolicy.{where} does not match any group name in workerGroupSpecs"


def _useless(mode: str | None, where: str, rules: PolicyRules) -> Iterator[str]:
    """Yield a violation for rules in a direction that `mode` does not restrict.

    Such rules have no effect. `where` names the part of the policy, such as `head`.
    """
    for direction, mode_without in (("ingress", "DenyAllEgress"), ("egress", "DenyAllIngress")):
        if rules is not None and mode == mode_without and getattr(rules, f"{direction}_rules"):
            yield (
                f'networkPolicy.{where}.{direction}Rules cannot be set when mode is "{mode}" '
                f"({direction} is not restricted)"
            )


def of_tls(cluster: RayCluster, gates: Gates) -> Iterator[str]:
    """Yield a violation for each TLS variable or mount of raybus that the spec itself defines.

    The Ray containers and the autoscaler's options are checked.
    """
    if cluster.spec.tls_options is None:
        return
    if FeatureGate.MTLS not in gates:  # S45
        yield "spec.tlsOptions requires the RayClusterMTLS feature gate to be enabled"
    if cluster.spec.tls_options.enabled is not True:
        return
    pods = [("head Pod", cluster.spec.head_group_spec.template)]  # S46
    pods += [
        (f'worker group "{group.group_name}"', group.template)
        for group in traits.worker_groups(cluster)
    ]
    for pod, template in pods:
        yield from _overridden(pod_json.ray_container(template), pod, pod, "automatically")
    if (options := cluster.spec.autoscaler_options) is not None:
        container = {"env": options.env, "volumeMounts": options.volume_mounts}
        where, how = "autoscalerOptions", "for the autoscaler automatically"
        yield from _overridden(container, f"{where}.env", f"{where}.volumeMounts", how)


def _overridden(container: Body, env: str, mounts: str, how: str) -> Iterator[str]:
    """Yield a violation for each TLS variable or mount of raybus that a container already defines.

    `env`, `mounts` and `how` are texts for the messages: two paths, and how raybus sets them.
    """
    for name in TLS_ENV:
        if pod_json.has_env(container, name):
            yield f"cannot set {name} environment variable in {env} {_BY_OPERATOR} {how}"
    for mount in pod_json.bodies(container, "volumeMounts"):
        if mount.get("name") == TLS_VOLUME:
            yield (
                f'cannot use volume mount named "{TLS_VOLUME}" in {mounts} {_BY_OPERATOR} '
                "automatically"
            )
        if mount.get("mountPath") == TLS_PATH:
            yield (
                f'cannot use volume mount at path "{TLS_PATH}" in {mounts} {_BY_OPERATOR} '
                "automatically"
            )
