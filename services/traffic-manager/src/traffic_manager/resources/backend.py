"""A cluster as the backend of a route: `<RayCluster>-serve-svc`, and its share (spec rayservice §9.2, §9.6, §10.2, §10.4)."""

from collections.abc import Sequence
from typing import Final

import msgspec

from common import labels, names
from common.api import ray_service
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.ray import owner, service_ports

H2C: Final = "kubernetes.io/h2c"
"""The `appProtocol` by which a gateway sends HTTP/2 to the port of gRPC calls (§9.6); other ports are as KubeRay has them."""


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster and its share of the requests."""

    cluster: str
    port: int
    weight: int


def build(cluster: RayCluster) -> Json | None:
    """Return the Service of a cluster's ready proxies, which goes when the cluster goes; None where the head has no port for Serve."""
    meta = cluster.metadata
    ports = service_ports.of_serve(cluster.raw_spec)
    kind = service_ports.head_group(cluster.raw_spec).get("serviceType")
    if not ports:
        return None
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": names.serve_service(meta.name),
            "namespace": meta.namespace,
            "labels": {
                labels.ORIGIN_NAME: meta.name,
                labels.ORIGIN_KIND: ray_service.KIND,
                labels.SERVE: names.checked_label(f"{meta.name}-serve"),
            },
            "ownerReferences": owner.cluster_reference(meta),
        },
        "spec": {
            "selector": {labels.CLUSTER: meta.name, labels.SERVE: "true"},
            "ports": [{**each, "appProtocol": H2C} if each["name"] == service_ports.GRPC else each for each in ports],
            **({"type": kind} if kind else {}),
        },
    }


def references(namespace: str, backends: Sequence[Backend]) -> list[Json]:
    """Return the `backendRefs` of a rule."""
    return [
        {"name": names.serve_service(each.cluster), "namespace": namespace, "port": each.port, "weight": each.weight}
        for each in backends
    ]
