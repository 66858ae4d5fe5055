"""The collector of the history server: a container that stores Ray's logs and events.

The environment of the Ray container makes Ray send its events to the collector. Spec raycluster
§11.16.
"""

from typing import Final

from cluster_reconciler.resources.node import RayNode
from common import labels, pod_json
from common.api.opaque import Body
from common.feature_gates import FeatureGate
from common.pod_json import from_field, literal
from common.ray import token_auth
from common.validation import features

_EVENTS_PORT: Final = 8084
_DASHBOARD: Final = literal("RAY_DASHBOARD_ADDRESS", "http://localhost:8265")
_LIMITS: Final = {"cpu": "200m", "memory": "256Mi"}
_REQUESTS: Final = {"cpu": "50m", "memory": "64Mi"}
_EVENT_TYPES: Final = ",".join(
    f"{event_type}_EVENT"
    for event_type in (
        *("TASK_DEFINITION", "TASK_LIFECYCLE", "ACTOR_TASK_DEFINITION", "TASK_PROFILE"),
        *("DRIVER_JOB_DEFINITION", "DRIVER_JOB_LIFECYCLE", "ACTOR_DEFINITION", "ACTOR_LIFECYCLE"),
        *("NODE_DEFINITION", "NODE_LIFECYCLE"),
    )
)
_AGENT: Final = "RAY_DASHBOARD_AGGREGATOR_AGENT"
EVENTS: Final = (
    literal("RAY_enable_ray_event", "true"),
    literal("RAY_enable_core_worker_ray_event_to_aggregator", "true"),
    literal(f"{_AGENT}_EVENTS_EXPORT_ADDR", f"http://localhost:{_EVENTS_PORT}/v1/events"),
    literal(f"{_AGENT}_EXPOSABLE_EVENT_TYPES", _EVENT_TYPES),
    literal(f"{_AGENT}_PUBLISHER_HTTP_ENDPOINT_EXPOSABLE_EVENT_TYPES", _EVENT_TYPES),
)
"""Environment variables that make Ray send its events to the collector."""


def append_container(pod: Body, node: RayNode) -> None:
    """Append the collector's container to a pod, if the cluster asks for the collector.

    In its environment, raybus's variables come first, then the user's, then the credentials.
    """
    server_options = node.cluster.spec.history_server_options
    options = None if server_options is None else server_options.collector_options
    if options is None or FeatureGate.HISTORY_SERVER not in node.config.gates:
        return
    meta, users_env = node.cluster.metadata, pod_json.copied(options.env or [])
    default: Body = {"limits": dict(_LIMITS), "requests": dict(_REQUESTS)}
    container: Body = {
        "name": features.COLLECTOR,
        "image": options.image or "",
        "imagePullPolicy": "IfNotPresent"
        if options.image_pull_policy is None
        else options.image_pull_policy,
        "resources": default if options.resources is None else pod_json.copied(options.resources),
    }
    pod_json.add_env(
        container,
        from_field("POD_IP", "status.podIP"),
        literal("RAY_CLUSTER_NAME", meta.name),
        literal("RAY_CLUSTER_NAMESPACE", meta.namespace),
        literal("RAY_ROLE", "Head" if node.is_head else "Worker"),
        literal("EVENTS_PORT", str(_EVENTS_PORT)),
        literal("FQ_RAY_IP", node.head_fqdn),
    )
    for name, label in (("OWNER_KIND", labels.ORIGIN_KIND), ("OWNER_NAME", labels.ORIGIN_NAME)):
        if value := meta.labels.get(label):
            pod_json.add_env(container, literal(name, value))
    if node.is_head and not pod_json.has_env({"env": users_env}, _DASHBOARD["name"]):
        pod_json.add_env(container, _DASHBOARD)
    pod_json.add_env(container, *users_env)
    token_auth.configure_container(container, node.cluster)
    pod["spec"]["containers"].append(container)


def find_container(pod: Body, node: RayNode) -> Body | None:
    """Return the container with the collector's name, even if the user defined it.

    None if there is none or the feature gate of the History Server is off.
    """
    is_off = FeatureGate.HISTORY_SERVER not in node.config.gates
    return None if is_off else pod_json.named(pod["spec"], "containers", features.COLLECTOR)
