"""`<RayService>-head-svc`: the head of the cluster that serves (spec rayservice §10.1)."""

import copy
from typing import Final

from common import labels, names, ports
from common.api.opaque import Body, Json
from common.api.ray_service import RayService
from common.ray import owner, service_ports

_PLAIN_TYPES: Final = {"", "ClusterIP"}


def name(service: str) -> str:
    """Return the name of a RayService's head Service."""
    return names.head_service(service)


def build(service: RayService, cluster: str, *, config: Json, has_cluster_ip: bool) -> Body:
    """Return the Service that selects a cluster's head; `config` is that cluster's spec."""
    meta = service.metadata
    head = service_ports.head_group(config)
    base: Json = copy.deepcopy(head.get("headService") or {})
    given: Json = base.get("metadata") or {}
    spec: Json = base.get("spec") or {}
    numbers = {**service_ports.of_head(config)}
    numbers.setdefault("metrics", ports.METRICS)
    ours = [{"name": key, "port": number, "appProtocol": "tcp"} for key, number in sorted(numbers.items())]
    kind: str = spec.get("type") or head.get("serviceType") or ""
    spec |= {"selector": _selector(cluster), "ports": [*(spec.get("ports") or []), *ours]}
    if kind:
        spec["type"] = kind
    if not head.get("headService") and kind in _PLAIN_TYPES and not has_cluster_ip:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name(meta.name),
            "namespace": meta.namespace,
            "labels": {
                **owner.marks(meta.name),
                labels.NODE_TYPE: labels.HEAD,
                labels.IDENTIFIER: names.checked_label(f"{meta.name}-head"),
            },
            "annotations": given.get("annotations") or {},
            "ownerReferences": owner.reference(meta),
        },
        "spec": spec,
    }


def _selector(cluster: str) -> dict[str, str]:
    return {
        labels.CLUSTER: cluster,
        labels.NODE_TYPE: labels.HEAD,
        labels.IDENTIFIER: names.checked_label(f"{cluster}-head"),
        labels.APP_NAME: labels.KUBERAY,
        labels.APP_CREATED_BY: labels.KUBERAY_OPERATOR,
    }
