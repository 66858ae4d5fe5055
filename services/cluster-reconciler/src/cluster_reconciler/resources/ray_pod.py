"""Turn the pod template of a head or worker into a Ray pod, step by step.

The order of the environment matters where a name repeats: the last value wins in Kubernetes, and
the user's values come first. From Ray 2.53 on, Ray's agent answers probes on one HTTP path. For
earlier versions, the probe is a shell command that checks the raylet and, on the head, the GCS.
Workers that serve requests are ready only when their Serve proxy is ready.

Spec raycluster §11.1, §11.8 (last paragraph), §11.9 rows 6-15, §11.10, §11.11; acceptance cases 91,
95-98, 103.
"""

from collections.abc import Mapping
from typing import Final

from cluster_reconciler.resources import collector, graceful_drain, owner, ray_start, tls
from cluster_reconciler.resources.node import WAIT_GCS_READY, RayNode, build_pod_labels
from common import labels, pod_json
from common.api.opaque import Body
from common.pod_json import from_field, literal
from common.ray import cluster_traits as traits
from common.ray import ports, serve_proxies, token_auth

CLUSTER_NAME: Final = from_field("RAY_CLUSTER_NAME", f"metadata.labels['{labels.CLUSTER}']")
CLUSTER_NAMESPACE: Final = from_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace")
_SERVICE_TIMEOUTS: Final = (
    literal("RAY_timeout_ms_task_wait_for_death_info", "0"),
    literal("RAY_gcs_server_request_timeout_seconds", "5"),
    literal("RAY_SERVE_KV_TIMEOUT_S", "5"),
)
"""Environment variables with shorter timeouts in Ray, for clusters that serve requests."""
_SHARED_MEMORY_PATH: Final = "/dev/shm"  # noqa: S108 - where Linux keeps shared memory, in the container
_LOGS_PATH: Final = "/tmp/ray"  # noqa: S108 - where Ray writes its logs, in the container
_UNIFIED_PROBES_SINCE: Final = (2, 53)
AUTOSCALER: Final = "autoscaler"
"""Name of the autoscaler's container in the head pod."""


def copy_template(node: RayNode) -> Body:
    """Return a pod in the cluster's namespace with all fields of the user's pod template."""
    template = pod_json.copied(node.group.template)
    metadata = pod_json.ensure_body(template, "metadata")
    metadata["namespace"] = node.cluster.metadata.namespace
    annotations = pod_json.ensure_body(metadata, "annotations")
    if ray_start.is_overwritten(node.cluster.metadata.annotations):
        annotations[labels.OVERWRITE_CONTAINER_CMD] = "true"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def complete(pod: Body, node: RayNode) -> None:
    """Add the parts that every Ray pod needs.

    Labels, containers and volumes come first, then command, environment, probes and owner.
    """
    params = ray_start.build_params(node)
    pod["metadata"]["labels"] = build_pod_labels(node)
    container = pod_json.ray_container(pod)
    if pod_json.named(container, "ports", "metrics") is None:
        pod_json.ensure_list(container, "ports").append(
            {"name": "metrics", "containerPort": ports.METRICS}
        )
    init_containers = pod_json.bodies(pod["spec"], "initContainers")
    for target_container in (
        container,
        *(own for own in init_containers if own["name"] == WAIT_GCS_READY),
    ):
        token_auth.configure_container(target_container, node.cluster)
        tls.configure_container(target_container, node.cluster)
    token_auth.add_volume(pod, node.cluster)
    tls.configure_pod(pod, node)
    collector.append_container(pod, node)
    sidecars = node.config.head_sidecars if node.is_head else node.config.worker_sidecars
    pod["spec"]["containers"].extend(map(pod_json.copied, sidecars))
    # With the parameter, the user placed the object store elsewhere.
    if "plasma-directory" not in params:
        resources = pod_json.body(container, "resources")
        amounts = pod_json.mapping(resources, "requests") | pod_json.mapping(resources, "limits")
        limit = {"sizeLimit": amounts["memory"]} if amounts.get("memory") is not None else {}
        volume: Body = {"name": "shared-mem", "emptyDir": {"medium": "Memory", **limit}}
        _mount_empty_dir(pod, container, volume, _SHARED_MEMORY_PATH)
    collects = collector.find_container(pod, node)
    readers = [] if collects is None else [collects]
    if node.is_head and traits.is_autoscaling(node.cluster):
        readers.insert(
            0,
            next(
                pod_container
                for pod_container in pod_json.containers(pod)
                if pod_container["name"] == AUTOSCALER
            ),
        )
    # The autoscaler and the collector read Ray's logs, so both sides mount the log volume.
    for target_container in (container, *readers) if readers else ():
        _mount_empty_dir(pod, target_container, {"name": "ray-logs", "emptyDir": {}}, _LOGS_PATH)
    pod["metadata"]["annotations"] = (
        node.config.default_pod_annotations | pod["metadata"]["annotations"]
    )
    text = ray_start.build_command(params, container, is_head=node.is_head)
    ray_start.set_container_command(
        pod, text, node.config, exports=graceful_drain.configure_pod(pod, node)
    )
    _complete_env(pod, node, text)
    if collects is not None:
        pod_json.add_missing_env(container, *collector.EVENTS)
    _add_probes(container, node, params)
    pod["metadata"]["ownerReferences"] = owner.build_references(node.cluster)


def _mount_empty_dir(pod: Body, container: Body, volume: Body, path: str) -> None:
    if not pod_json.has_mount(container, path=path):
        pod_json.add_missing_volume(pod, volume)
        pod_json.ensure_list(container, "volumeMounts").append(
            {"name": volume["name"], "mountPath": path}
        )


def _complete_env(pod: Body, node: RayNode, command: str) -> None:
    """Add the head's address to all init containers, and Ray's variables to the Ray container.

    `command` is the `ray start` command.
    """
    gcs_port = traits.gcs_port(node.cluster)
    head_address = (
        literal("FQ_RAY_IP", node.head_fqdn),
        literal("RAY_IP", node.head_fqdn.partition(".")[0]),
    )
    for init_container in pod_json.bodies(pod["spec"], "initContainers"):
        pod_json.add_env(init_container, *head_address)
    container = pod_json.ray_container(pod)
    pod_json.add_missing_env(container, *node.config.default_container_envs)
    pod_json.add_env(
        container,
        *(() if node.is_head else head_address),
        CLUSTER_NAME,
        CLUSTER_NAMESPACE,
        from_field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
        from_field("RAY_NODE_TYPE_NAME", f"metadata.labels['{labels.GROUP}']"),
        literal("KUBERAY_GEN_RAY_START_CMD", command),
    )
    pod_json.add_missing_env(
        container,
        literal("RAY_PORT", gcs_port),
        *(_SERVICE_TIMEOUTS if traits.is_for_a_service(node.cluster) else ()),
        literal("RAY_ADDRESS", f"127.0.0.1:{gcs_port}" if node.is_head else node.gcs_address),
        literal("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"),
    )
    if node.is_head:
        tags = (
            f"kuberay_version={node.config.version};kuberay_crd={traits.creator_kind(node.cluster)}"
        )
        pod_json.add_env(container, literal("RAY_USAGE_STATS_EXTRA_TAGS", tags))
    pod_json.add_missing_env(container, literal("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"))


def _add_probes(container: Body, node: RayNode, params: Mapping[str, str]) -> None:
    """Add liveness and readiness probes to the Ray container if the user set none."""
    if not node.config.injects_probes:
        return
    agent = traits.port_param(params, "dashboard-agent-listen-port", ports.DASHBOARD_AGENT)
    raylet = _format_request(agent, "api/local_raylet_healthz", seconds=2)
    if traits.is_version_at_least(node.cluster.spec.ray_version, _UNIFIED_PROBES_SINCE):
        is_alive: Body = {"httpGet": {"path": "/api/healthz", "port": agent}}
    elif node.is_head:
        dashboard = traits.port_param(params, "dashboard-port", ports.DASHBOARD)
        is_alive = _get_shell(raylet, _format_request(dashboard, "api/gcs_healthz", seconds=10))
    else:
        is_alive = _get_shell(raylet)
    failures, is_ready = 10, is_alive
    if traits.is_for_a_service(node.cluster) and not node.is_head:
        serve = serve_proxies.port_of(container)
        failures, is_ready = 1, _get_shell(raylet, _format_request(serve, "-/healthz", seconds=10))
    for probe, delay, allowed, handler in (
        ("livenessProbe", 30, 120, is_alive),
        ("readinessProbe", 10, failures, is_ready),
    ):
        if container.get(probe) is None:
            container[probe] = {
                "initialDelaySeconds": delay,
                "timeoutSeconds": 5 if node.is_head else 2,
                "periodSeconds": 5,
                "successThreshold": 1,
                "failureThreshold": allowed,
                **handler,
            }


def _format_request(port: int, path: str, *, seconds: int) -> str:
    return f"wget --tries 1 -T {seconds} -q -O- http://localhost:{port}/{path} | grep success"


def _get_shell(*commands: str) -> Body:
    return {"exec": {"command": ["bash", "-c", " && ".join(commands)]}}
