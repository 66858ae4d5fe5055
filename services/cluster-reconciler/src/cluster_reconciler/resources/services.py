"""The Services of a cluster: of its head, of the workers of multi-host groups, and of its Serve proxies.

Through the first one workers, users and the dashboard's callers find the head; through the second one the hosts of a replica find one
another; the third one is made for clusters that ask for it themselves.
Behaviour: spec raycluster §8.5, §8.6, §12.1-12.3; acceptance cases 67, 102, 106-109.
"""

import copy
from typing import Final

from cluster_reconciler.config import Config
from cluster_reconciler.resources import owner
from common import labels, names, pod_json, ports
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import SERVICE
from common.ray import service_ports

NO_SERVE_PORT: Final = (
    "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. 'serve-grpc') in the Ray head container; "
    "otherwise, the Kubernetes service for Ray Serve will not be created."
)
"""The message for the user when `build_serve` returns None."""


def head_name(cluster: RayCluster) -> str:
    """Return the head Service's name: the user's own, or one made from the cluster's."""
    own = cluster.spec.head_group_spec.head_service or {}
    return pod_json.text(pod_json.body(own, "metadata"), "name") or names.head_service(cluster.metadata.name)


def identifier(cluster: RayCluster) -> str:
    """Return the label value of the head and of its Service and Ingress."""
    return names.checked_label(f"{cluster.metadata.name}-{labels.HEAD}")


def head_list_labels(cluster: RayCluster) -> dict[str, str]:
    """Return the labels by which the head Service is found again, whatever the template has."""
    return {
        labels.CLUSTER: cluster.metadata.name,
        labels.NODE_TYPE: labels.HEAD,
        labels.IDENTIFIER: identifier(cluster),
    }


def build_head(cluster: RayCluster, config: Config) -> Body:
    """Build the head Service, from the user's own when there is one."""
    group = cluster.spec.head_group_spec
    template = pod_json.body(group.template, "metadata")
    selector = {
        **head_list_labels(cluster),
        labels.APP_NAME: pod_json.mapping(template, "labels").get(labels.APP_NAME, labels.KUBERAY),
        labels.APP_CREATED_BY: labels.KUBERAY_OPERATOR,
    }
    numbers = {"metrics": ports.METRICS, **service_ports.of_head(cluster.raw_spec)}
    entries: list[Body] = [{"name": port, "port": numbers[port], "appProtocol": "tcp"} for port in sorted(numbers)]
    if group.head_service is not None:
        return _from_users_own(cluster, group.head_service, selector, entries)
    spec: Body = {"selector": selector, "ports": entries}
    if group.service_type:
        spec["type"] = group.service_type
    if group.service_type in {"", "ClusterIP"} and not config.head_service_has_cluster_ip:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    name, annotations = head_name(cluster), dict(cluster.spec.head_service_annotations or {})
    return owner.child(cluster, SERVICE, name=name, labels=dict(selector), annotations=annotations, spec=spec)


def _from_users_own(cluster: RayCluster, own: Body, selector: dict[str, str], entries: list[Body]) -> Body:
    """Keep the user's Service but for name, selector, labels and owner; our ports follow theirs."""
    service = copy.deepcopy(own)
    service |= {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind}
    metadata = pod_json.ensure_body(service, "metadata")
    annotations = pod_json.mapping(metadata, "annotations") | (cluster.spec.head_service_annotations or {})
    metadata |= {
        "name": head_name(cluster),
        "namespace": cluster.metadata.namespace,
        "labels": pod_json.mapping(metadata, "labels") | selector,
        "ownerReferences": owner.references(cluster),
    }
    if annotations:
        metadata["annotations"] = annotations
    spec = pod_json.ensure_body(service, "spec")
    spec["selector"] = selector
    pod_json.ensure_list(spec, "ports").extend(entries)
    if wanted_type := pod_json.text(spec, "type") or cluster.spec.head_group_spec.service_type:
        spec["type"] = wanted_type
    return service


def build_headless(cluster: RayCluster) -> Body:
    """Build the Service with the addresses of all workers, ready or not."""
    of = cluster.metadata.name
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "selector": {labels.CLUSTER: of, labels.NODE_TYPE: labels.WORKER},
        "publishNotReadyAddresses": True,
    }
    own = {labels.HEADLESS_WORKER_SERVICE: of}
    return owner.child(cluster, SERVICE, name=names.headless_service(of), labels=own, spec=spec)


def needs_serve(cluster: RayCluster) -> bool:
    """Return whether the user asked for the Serve Service; only the exact value counts."""
    return cluster.metadata.annotations.get(labels.ENABLE_SERVE_SERVICE) == "true"


def build_serve(cluster: RayCluster) -> Body | None:
    """Build the Serve Service over all pods of the cluster; None when the head declares ports, but none for Serve."""
    of, entries = cluster.metadata.name, service_ports.of_serve(cluster.raw_spec)
    if not entries:
        return None
    serve = names.checked_label(f"{of}-serve")
    own = {labels.ORIGIN_NAME: of, labels.ORIGIN_KIND: "RayCluster", labels.SERVE: serve}
    spec: Body = {"selector": {labels.CLUSTER: of}, "ports": entries}
    if cluster.spec.head_group_spec.service_type:
        spec["type"] = cluster.spec.head_group_spec.service_type
    return owner.child(cluster, SERVICE, name=names.serve_service(of), labels=own, spec=spec)
