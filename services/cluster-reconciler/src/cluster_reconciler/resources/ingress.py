"""The Ingress that lets users outside the cluster reach the dashboard.

Behaviour: spec raycluster §8.2, §12.4; acceptance case 110.
"""

import copy

from cluster_reconciler.resources import head_service, owner
from common import labels, names, pod_json, ports
from common.api.opaque import Body
from common.api.ray_cluster import IngressOptions, RayCluster
from common.kube.resources import INGRESS


def is_needed(cluster: RayCluster) -> bool:
    """Return whether the user asked for an ingress."""
    return cluster.spec.head_group_spec.enable_ingress is True


def name(cluster: RayCluster) -> str:
    """Return the Ingress' name."""
    return names.checked(f"{cluster.metadata.name}-head-ingress")


def own_labels(cluster: RayCluster) -> dict[str, str]:
    """Return the labels of an Ingress or of a Route."""
    return {
        labels.CLUSTER: cluster.metadata.name,
        labels.IDENTIFIER: head_service.identifier(cluster),
        **labels.BY_OPERATOR,
    }


def dashboard_port(cluster: RayCluster) -> int:
    """Return the dashboard's port on the head Service."""
    return head_service.port_numbers(cluster).get("dashboard", ports.DASHBOARD)


def build(cluster: RayCluster) -> Body:
    """Build the Ingress; the cluster's annotations configure the controller, save the class, which has a field."""
    options = cluster.spec.head_group_spec.ingress_options or IngressOptions()
    annotations = dict(cluster.metadata.annotations)
    ingress_class = annotations.pop(labels.INGRESS_CLASS, None)
    spec: Body = {"rules": [_rule(cluster, options)]}
    if ingress_class is not None:
        spec["ingressClassName"] = ingress_class
    if options.tls:
        spec["tls"] = copy.deepcopy(options.tls)
    body = owner.child(cluster, INGRESS, name=name(cluster), labels=own_labels(cluster), spec=spec)
    if annotations:
        body["metadata"]["annotations"] = annotations
    return body


def updated(cluster: RayCluster, have: Body) -> Body | None:
    """Return the Ingress as read, with labels, annotations and spec as they should be; None when they are.

    A class that a user set stays when the cluster names none.
    """
    want = build(cluster)
    chosen = pod_json.body(have, "spec").get("ingressClassName")
    if chosen is not None:
        want["spec"].setdefault("ingressClassName", chosen)
    metadata = {**have["metadata"], "labels": want["metadata"]["labels"]}
    metadata["annotations"] = want["metadata"].get("annotations", {})
    same_annotations = pod_json.mapping(have["metadata"], "annotations") == metadata["annotations"]
    same_labels = pod_json.mapping(have["metadata"], "labels") == metadata["labels"]
    if same_annotations and same_labels and have.get("spec") == want["spec"]:
        return None
    return {**have, "metadata": metadata, "spec": want["spec"]}


def _rule(cluster: RayCluster, options: IngressOptions) -> Body:
    service = {"name": head_service.name(cluster), "port": {"number": dashboard_port(cluster)}}
    path = {
        "path": "/" if options.path is None else options.path,
        "pathType": options.path_type or "Prefix",
        "backend": {"service": service},
    }
    rule: Body = {"http": {"paths": [path]}}
    if options.host:
        rule["host"] = options.host
    return rule
