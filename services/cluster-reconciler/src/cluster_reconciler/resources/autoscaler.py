"""The autoscaler's container in the head pod, and its ServiceAccount, Role and RoleBinding.

Spec raycluster §8.1, §11.12, §12.7; acceptance cases 20-21, 98.
"""

from functools import partial
from typing import Final

from cluster_reconciler.resources import owner, ray_pod, ray_start, tls
from cluster_reconciler.resources.node import RayNode
from common import labels, names, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import AutoscalerOptions, RayCluster
from common.kube.resources import ROLE, ROLE_BINDING, SERVICE_ACCOUNT, Resource
from common.pod_json import from_field, literal
from common.ray import cluster_traits as traits
from common.ray import token_auth

COMMAND: Final = (
    "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace "
    "$(RAY_CLUSTER_NAMESPACE)"
)
_RULES: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("", "pods", ("get", "list", "watch", "patch")),
    ("", "pods/resize", ("patch",)),
    ("ray.io", "rayclusters", ("get", "patch")),
)


def get_template_service_account(cluster: RayCluster) -> str:
    """Return the ServiceAccount in the head's pod template; empty if it names none."""
    return pod_json.text(pod_json.spec(cluster.spec.head_group_spec.template), "serviceAccountName")


def get_service_account_name(cluster: RayCluster) -> str:
    """Return the ServiceAccount of the head pod: the template's, else the cluster's name."""
    return names.checked(get_template_service_account(cluster) or cluster.metadata.name)


def build_identity(cluster: RayCluster) -> dict[Resource, Body]:
    """Return the ServiceAccount, Role and RoleBinding of the autoscaler, by resource.

    The Role lets the autoscaler read, patch and resize pods and change the replicas of RayClusters.
    """
    name, account = names.checked(cluster.metadata.name), get_service_account_name(cluster)
    subject = {
        "kind": SERVICE_ACCOUNT.kind,
        "name": account,
        "namespace": cluster.metadata.namespace,
    }
    of: Body = {"apiGroup": ROLE.group, "kind": ROLE.kind, "name": name}
    rules = [
        {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
        for group, resource, verbs in _RULES
    ]
    own = {labels.CLUSTER: cluster.metadata.name, **labels.BY_OPERATOR}
    build = partial(owner.build_child, cluster, labels=own)
    return {
        SERVICE_ACCOUNT: build(SERVICE_ACCOUNT, name=account),
        ROLE: build(ROLE, name=name, rules=rules),
        ROLE_BINDING: build(ROLE_BINDING, name=name, subjects=[subject], roleRef=of),
    }


def append_container(pod: Body, node: RayNode) -> None:
    """Append the autoscaler's container to a head pod.

    A field in the user's options replaces the default, except env and mounts, which are appended.
    The version of the autoscaler is also set in the Ray container.
    """
    ray_container, options = (
        pod_json.ray_container(pod),
        node.cluster.spec.autoscaler_options or AutoscalerOptions(),
    )
    container: Body = {
        "name": ray_pod.AUTOSCALER,
        "image": ray_container.get("image", ""),
        "imagePullPolicy": "IfNotPresent",
        **ray_start.build_script_fields(node.config, COMMAND, cpu="500m", memory="512Mi"),
    }
    pod_json.add_env(
        container,
        ray_pod.CLUSTER_NAME,
        ray_pod.CLUSTER_NAMESPACE,
        from_field("RAY_HEAD_POD_NAME", "metadata.name"),
        literal("KUBERAY_CRD_VER", "v1"),
        literal("KUBERAY_GEN_AUTOSCALER_START_CMD", COMMAND),
    )
    token_auth.configure_container(container, node.cluster)
    tls.configure_container(container, node.cluster)
    replaced = {
        "resources": options.resources,
        "image": options.image,
        "imagePullPolicy": options.image_pull_policy,
        "securityContext": options.security_context,
        "command": options.command or None,
        "args": options.args or None,
    }
    container |= pod_json.copied(
        {field: value for field, value in replaced.items() if value is not None}
    )
    appended = {
        "env": options.env,
        "envFrom": options.env_from,
        "volumeMounts": options.volume_mounts,
    }
    for field, values in appended.items():
        if values:
            pod_json.ensure_list(container, field).extend(pod_json.copied(values))
    pod["spec"]["containers"].append(container)
    if options.version == "v2":
        pod["spec"]["restartPolicy"] = "Never"
    if options.version in {"v1", "v2"}:
        is_v2 = "true" if options.version == "v2" else "false"
        pod_json.add_env(ray_container, literal(traits.AUTOSCALER_V2_ENV, is_v2))
