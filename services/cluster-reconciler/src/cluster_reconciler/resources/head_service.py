"""The Service in front of a cluster's head pod: how workers, users and the dashboard's callers find it.

Behaviour: spec raycluster §12.1; acceptance cases 102, 106-108.
"""

import copy
from typing import Final

from cluster_reconciler.config import Config
from cluster_reconciler.resources import owner
from common import labels, names, pod_json, ports
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import SERVICE

APP_PROTOCOL: Final = "tcp"


def name(cluster: RayCluster) -> str:
    """Return the Service's name: the user's own, or one made from the cluster's."""
    own = cluster.spec.head_group_spec.head_service or {}
    return pod_json.text(pod_json.body(own, "metadata"), "name") or names.head_service(cluster.metadata.name)


def fqdn(cluster: RayCluster, config: Config) -> str:
    """Return the DNS name of the head."""
    return names.head_fqdn(name(cluster), cluster.metadata.namespace, config.cluster_domain)


def list_labels(cluster: RayCluster) -> dict[str, str]:
    """Return the labels by which the Service is found again, whatever the template has."""
    return {
        labels.CLUSTER: cluster.metadata.name,
        labels.NODE_TYPE: labels.HEAD,
        labels.IDENTIFIER: identifier(cluster),
    }


def identifier(cluster: RayCluster) -> str:
    """Return the label value of the head and of its Service and Ingress."""
    return names.checked_label(f"{cluster.metadata.name}-{labels.HEAD}")


def selector(cluster: RayCluster) -> dict[str, str]:
    """Return the labels of the head pod, which are the Service's own too; the template may rename the application."""
    template = pod_json.body(cluster.spec.head_group_spec.template, "metadata")
    return {
        **list_labels(cluster),
        labels.APP_NAME: pod_json.mapping(template, "labels").get(labels.APP_NAME, labels.KUBERAY),
        labels.APP_CREATED_BY: labels.KUBERAY_OPERATOR,
    }


def port_numbers(cluster: RayCluster) -> dict[str, int]:
    """Return port name to number, by name: what the Ray container declares, else Ray's defaults; metrics always."""
    declared = pod_json.bodies(pod_json.ray_container(cluster.spec.head_group_spec.template), "ports")
    numbers = {
        pod_json.text(port, "name") or f"{port['containerPort']}-port": int(port["containerPort"]) for port in declared
    }
    numbers = numbers or dict(ports.HEAD_DEFAULTS)
    numbers.setdefault("metrics", ports.METRICS)
    return dict(sorted(numbers.items()))


def build(cluster: RayCluster, config: Config) -> Body:
    """Build the Service, from the user's own when there is one."""
    entries: list[Body] = [
        {"name": port, "port": number, "appProtocol": APP_PROTOCOL} for port, number in port_numbers(cluster).items()
    ]
    if cluster.spec.head_group_spec.head_service is not None:
        return _from_users_own(cluster, cluster.spec.head_group_spec.head_service, entries)
    wanted_type = cluster.spec.head_group_spec.service_type
    spec: Body = {"selector": selector(cluster), "ports": entries}
    if wanted_type:
        spec["type"] = wanted_type
    if wanted_type in {"", "ClusterIP"} and not config.head_service_has_cluster_ip:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    service = owner.child(cluster, SERVICE, name=name(cluster), labels=selector(cluster), spec=spec)
    if cluster.spec.head_service_annotations:
        service["metadata"]["annotations"] = dict(cluster.spec.head_service_annotations)
    return service


def _from_users_own(cluster: RayCluster, own: Body, entries: list[Body]) -> Body:
    """Keep the user's Service but for name, selector, labels and owner; our ports follow theirs."""
    service = copy.deepcopy(own)
    service |= {"apiVersion": SERVICE.api_version, "kind": SERVICE.kind}
    metadata = pod_json.ensure_body(service, "metadata")
    annotations = pod_json.mapping(metadata, "annotations") | (cluster.spec.head_service_annotations or {})
    metadata |= {
        "name": name(cluster),
        "namespace": cluster.metadata.namespace,
        "labels": pod_json.mapping(metadata, "labels") | selector(cluster),
        "ownerReferences": [owner.reference(cluster)],
    }
    if annotations:
        metadata["annotations"] = annotations
    spec = pod_json.ensure_body(service, "spec")
    spec["selector"] = selector(cluster)
    pod_json.ensure_list(spec, "ports").extend(entries)
    if wanted_type := pod_json.text(spec, "type") or cluster.spec.head_group_spec.service_type:
        spec["type"] = wanted_type
    return service
