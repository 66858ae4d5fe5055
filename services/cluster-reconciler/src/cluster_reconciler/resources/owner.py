"""Owner references of a RayCluster's children, the objects that raybus creates for the cluster.

Kubernetes deletes a child with its cluster. Spec raycluster §5.2.
"""

from common import pod_json
from common.api import ray_cluster
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import Resource
from common.labels import CLUSTER
from common.ray import owner as ray_owner


def build_references(cluster: RayCluster) -> list[Body]:
    """Return the owner references of a child, which name the cluster as controller."""
    return ray_owner.reference(cluster.metadata, ray_cluster.KIND)


def find_controller(body: Body) -> Body | None:
    """Return the controller reference of an existing object; None if it has none."""
    references = pod_json.bodies(pod_json.body(body, "metadata"), "ownerReferences")
    return next((reference for reference in references if reference.get("controller")), None)


def controls(cluster: RayCluster, body: Body) -> bool:
    """Return whether this cluster, by uid, is the controller of an existing object."""
    reference = find_controller(body)
    return reference is not None and reference["uid"] == cluster.metadata.uid


def owns(cluster: RayCluster, body: Body) -> bool:
    """Return whether an existing object has an owner reference to this cluster, by uid."""
    references = pod_json.bodies(pod_json.body(body, "metadata"), "ownerReferences")
    return any(reference.get("uid") == cluster.metadata.uid for reference in references)


def is_predecessors(cluster: RayCluster, body: Body) -> bool:
    """Return whether an existing object belongs to a deleted cluster of the same name.

    The garbage collector will delete such an object.
    """
    reference = find_controller(body)
    if reference is None or controls(cluster, body):
        return False
    return (reference.get("kind"), reference.get("name")) == (
        ray_cluster.KIND,
        cluster.metadata.name,
    )


def build_child(
    cluster: RayCluster,
    resource: Resource,
    *,
    name: str,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    **content: object,
) -> Body:
    """Return a child of the cluster; `content` are the fields of its kind, such as `spec`.

    Without `labels`, the child has the label with the cluster's name. Empty `annotations` are left
    out.
    """
    metadata: Body = {
        "name": name,
        "namespace": cluster.metadata.namespace,
        "labels": {CLUSTER: cluster.metadata.name} if labels is None else labels,
        "ownerReferences": build_references(cluster),
    }
    if annotations:
        metadata["annotations"] = annotations
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        **content,
    }


def update_child(want: Body, have: Body, *fields: str) -> Body | None:
    """Return the child `have` with the spec and the metadata `fields` of `want`; None if equal."""
    expected = {field: want["metadata"].get(field, {}) for field in fields}
    are_equal = all(
        pod_json.mapping(have["metadata"], field) == value for field, value in expected.items()
    )
    if are_equal and have.get("spec") == want["spec"]:
        return None
    return {**have, "metadata": {**have["metadata"], **expected}, "spec": want["spec"]}
