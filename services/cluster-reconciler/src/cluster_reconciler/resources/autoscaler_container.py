"""The autoscaler, a container beside the head's, and the user's overrides of it.

Behaviour: spec raycluster §11.12; acceptance case 98.
"""

import copy
from typing import Final

from cluster_reconciler.resources import auth, env, ray_start
from cluster_reconciler.resources.node import Node
from common import pod_json
from common.api.opaque import Body
from common.api.ray_cluster import AutoscalerOptions
from common.pod_json import from_field, literal
from common.ray import cluster_traits as traits

NAME: Final = "autoscaler"
COMMAND: Final = (
    "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)"
)
RESOURCES: Final = {"cpu": "500m", "memory": "512Mi"}


def append(pod: Body, node: Node) -> None:
    """Append the container; when the spec names an autoscaler version, set it for Ray too."""
    ray_container = pod_json.ray_container(pod)
    pod_json.ensure_list(pod["spec"], "containers").append(build(ray_container, node))
    version = traits.autoscaler_version(node.cluster)
    if version == "v2":
        pod["spec"]["restartPolicy"] = "Never"
    if version in {"v1", "v2"}:
        is_v2 = "true" if version == "v2" else "false"
        pod_json.add_env(ray_container, literal(traits.AUTOSCALER_V2_ENV, is_v2))


def build(ray_container: Body, node: Node) -> Body:
    """Build the container."""
    container: Body = {
        "name": NAME,
        "image": ray_container.get("image", ""),
        "imagePullPolicy": "IfNotPresent",
        "command": ray_start.shell(node.config),
        "args": [COMMAND],
        "resources": {"limits": dict(RESOURCES), "requests": dict(RESOURCES)},
    }
    pod_json.add_env(
        container,
        env.CLUSTER_NAME,
        env.CLUSTER_NAMESPACE,
        from_field("RAY_HEAD_POD_NAME", "metadata.name"),
        literal("KUBERAY_CRD_VER", "v1"),
        literal("KUBERAY_GEN_AUTOSCALER_START_CMD", COMMAND),
    )
    auth.configure_container(container, node.cluster)
    if (options := node.cluster.spec.autoscaler_options) is not None:
        _override(container, options)
    return container


def _override(container: Body, options: AutoscalerOptions) -> None:
    """Replace what the user set as a whole; env and mounts are appended."""
    replaced = {
        "resources": options.resources,
        "image": options.image,
        "imagePullPolicy": options.image_pull_policy,
        "securityContext": options.security_context,
        "command": options.command or None,
        "args": options.args or None,
    }
    container |= copy.deepcopy({field: value for field, value in replaced.items() if value is not None})
    appended = {"env": options.env, "envFrom": options.env_from, "volumeMounts": options.volume_mounts}
    for field, values in appended.items():
        if values:
            pod_json.ensure_list(container, field).extend(copy.deepcopy(values))
