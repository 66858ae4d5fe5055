"""`<RayCluster>-serve-svc`: the backend that a route sends one cluster's share to (spec rayservice §9.6, §10.2, §10.4)."""

from typing import Final

from common import labels, names
from common.api import ray_service
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.errors import InvalidSpec
from common.ray import owner, service_ports

H2C: Final = "kubernetes.io/h2c"
NO_PORT: Final = (
    "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. 'serve-grpc') in the Ray head container; "
    "otherwise, the Kubernetes service for Ray Serve will not be created."
)


def build(cluster: RayCluster) -> Json:
    """Return the Service of a cluster's ready proxies; it goes when the cluster goes."""
    meta = cluster.metadata
    ports = service_ports.of_serve(cluster.raw_spec)
    if not ports:
        raise InvalidSpec(NO_PORT)
    spec: Json = {
        "selector": {labels.CLUSTER: meta.name, labels.SERVE: "true"},
        "ports": [{**each, **_protocol(each["name"])} for each in ports],
    }
    kind = service_ports.head_group(cluster.raw_spec).get("serviceType")
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
        "spec": {**spec, "type": kind} if kind else spec,
    }


def _protocol(port: str) -> dict[str, str]:
    """Return the `appProtocol` by which a gateway sends HTTP/2 to the port of gRPC calls (§9.6); other ports are as KubeRay has them."""
    return {"appProtocol": H2C} if port == service_ports.GRPC else {}
