"""What the autoscaler beside the head may do: its ServiceAccount, Role and RoleBinding.

Behaviour: spec raycluster §8.1, §12.7; acceptance cases 20-21.
"""

from typing import Final

from cluster_reconciler.resources import owner
from common import labels, names, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import ROLE, ROLE_BINDING, SERVICE_ACCOUNT

_RULES: Final[tuple[tuple[str, str, tuple[str, ...]], ...]] = (
    ("", "pods", ("get", "list", "watch", "patch")),
    ("", "pods/resize", ("patch",)),
    ("ray.io", "rayclusters", ("get", "patch")),
)


def users_service_account(cluster: RayCluster) -> str:
    """Return the ServiceAccount that the head template names; empty when it names none."""
    return pod_json.text(pod_json.spec(cluster.spec.head_group_spec.template), "serviceAccountName")


def service_account_name(cluster: RayCluster) -> str:
    """Return the ServiceAccount that the head pod runs under: the template's, or one named as the cluster."""
    return names.checked(users_service_account(cluster) or cluster.metadata.name)


def role_name(cluster: RayCluster) -> str:
    """Return the name of the Role and of the RoleBinding."""
    return names.checked(cluster.metadata.name)


def service_account(cluster: RayCluster) -> Body:
    """Build the ServiceAccount."""
    return owner.child(cluster, SERVICE_ACCOUNT, name=service_account_name(cluster), labels=_labels(cluster))


def role(cluster: RayCluster) -> Body:
    """Build the Role: see and patch pods, resize them, and change the cluster's replica counts."""
    rules = [{"apiGroups": [group], "resources": [resource], "verbs": list(verbs)} for group, resource, verbs in _RULES]
    return owner.child(cluster, ROLE, name=role_name(cluster), labels=_labels(cluster), rules=rules)


def role_binding(cluster: RayCluster) -> Body:
    """Build the RoleBinding between the two."""
    account = {
        "kind": SERVICE_ACCOUNT.kind,
        "name": service_account_name(cluster),
        "namespace": cluster.metadata.namespace,
    }
    of = {"apiGroup": ROLE.group, "kind": ROLE.kind, "name": role_name(cluster)}
    own = _labels(cluster)
    return owner.child(cluster, ROLE_BINDING, name=role_name(cluster), labels=own, subjects=[account], roleRef=of)


def _labels(cluster: RayCluster) -> dict[str, str]:
    return {labels.CLUSTER: cluster.metadata.name, **labels.BY_OPERATOR}
