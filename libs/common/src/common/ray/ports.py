"""The ports of Ray, the specs of the head's Services, and the ready pods behind a Service.

Spec raycluster §2.4; spec rayservice §10.1, §10.2, §11.4; acceptance 76.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from common import labels, names, pod_json
from common.api.core import EndpointSlice, ObjectReference
from common.api.opaque import Body, Json

CLIENT: Final = 10001
GCS_SERVER: Final = 6379
DASHBOARD: Final = 8265
METRICS: Final = 8080
SERVE: Final = 8000
DASHBOARD_AGENT: Final = 52365

HEAD_DEFAULTS: Final = {
    "client": CLIENT,
    "gcs-server": GCS_SERVER,
    "dashboard": DASHBOARD,
    "metrics": METRICS,
    "serve": SERVE,
}
"""Ports of a head container that declares no ports, by name."""
NO_PORT: Final = (
    "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. "
    "'serve-grpc') in the Ray head container; "
    "otherwise, the Kubernetes service for Ray Serve will not be created."
)
"""Message for the user if the head container has no port for Serve."""
GRPC: Final = "serve-grpc"
"""Name of the port for gRPC requests to Serve."""


def of_head(config: Json) -> dict[str, int]:
    """Return the head's ports by name; Ray's five default ports if the container declares none."""
    container = pod_json.ray_container(pod_json.body(head_group(config), "template"))
    declared = pod_json.bodies(container, "ports")
    if not declared:
        return dict(HEAD_DEFAULTS)
    return {
        port.get("name") or f"{port['containerPort']}-port": port["containerPort"]
        for port in declared
    }


USERS_LABELS: Final = (labels.IDENTIFIER, labels.APP_NAME, labels.APP_CREATED_BY)
"""Labels of the head pod that a user may override in the head group or in its template.

The selectors of the head's Services contain the user's values.
"""


def head_selector(cluster: str, config: Json) -> dict[str, str]:
    """Return the selector for a cluster's head pod, with the label values that a user overrides."""
    group = head_group(config)
    template = pod_json.body(pod_json.body(group, "template"), "metadata")
    own = pod_json.mapping(template, "labels") | pod_json.mapping(group, "labels")
    users = {label: own[label] for label in USERS_LABELS if label in own}
    return head_labels(cluster) | users


def head_labels(cluster: str, app: str = labels.KUBERAY) -> dict[str, str]:
    """Return the labels of a head Service; `head_selector` uses them, too.

    `app` is the value of the label `app.kubernetes.io/name`.
    """
    return {
        labels.CLUSTER: cluster,
        labels.NODE_TYPE: labels.HEAD,
        labels.IDENTIFIER: names.checked_label(f"{cluster}-{labels.HEAD}"),
        labels.APP_NAME: app,
        labels.APP_CREATED_BY: labels.KUBERAY_OPERATOR,
    }


def head_spec(config: Json, selector: dict[str, str], *, has_cluster_ip: bool) -> Body:
    """Build the spec of a head Service.

    It is the user's spec of the Service, with `selector`, and with raybus's ports after the user's.
    Without a user's spec the Service is headless, unless `has_cluster_ip` is set or its type
    requires a cluster IP.
    """
    group = head_group(config)
    own = pod_json.body(pod_json.body(group, "headService"), "spec")
    numbers = {"metrics": METRICS, **of_head(config)}
    entries = [
        {"name": port, "port": numbers[port], "appProtocol": "tcp"} for port in sorted(numbers)
    ]
    spec: Body = {**own, "selector": selector, "ports": [*pod_json.bodies(own, "ports"), *entries]}
    if kind := pod_json.text(own, "type") or pod_json.text(group, "serviceType"):
        spec["type"] = kind
    if group.get("headService") is None and kind in {"", "ClusterIP"} and not has_cluster_ip:
        spec |= {"clusterIP": "None", "publishNotReadyAddresses": True}
    return spec


def of_serve(config: Json) -> list[Body]:
    """Return the ports at which Serve takes requests, sorted by name."""
    head_ports = of_head(config)
    serving = sorted(name for name in head_ports if name == "serve" or name.startswith("serve-"))
    return [{"name": name, "port": head_ports[name]} for name in serving]


def of_grpc(config: Json) -> int | None:
    """Return the port for gRPC requests to Serve; None if there is none (spec rayservice §9.6)."""
    return of_head(config).get(GRPC)


def head_group(config: Json) -> Json:
    """Return `headGroupSpec` of a RayCluster spec."""
    return pod_json.body(config, "headGroupSpec")


def pod_count(slices: Iterable[EndpointSlice]) -> int:
    """Count the distinct ready pods in all slices."""
    return len({pod.uid for pod, _ in _ready(slices)})


def pods(slices: Iterable[EndpointSlice]) -> dict[str, ObjectReference]:
    """Return references to the ready pods in all slices, by the address of the pod."""
    return {address: pod for pod, addresses in _ready(slices) for address in addresses}


def unready_addresses(slices: Iterable[EndpointSlice]) -> frozenset[str]:
    """Return the addresses of endpoints that the slices report as not ready."""
    endpoints = [
        endpoint for endpoint_slice in slices for endpoint in endpoint_slice.endpoints or []
    ]
    return frozenset(
        address
        for endpoint in endpoints
        if endpoint.conditions.ready is False
        for address in endpoint.addresses
    )


def _ready(slices: Iterable[EndpointSlice]) -> Iterator[tuple[ObjectReference, list[str]]]:
    for endpoint in (
        endpoint for endpoint_slice in slices for endpoint in endpoint_slice.endpoints or []
    ):
        pod = endpoint.target_ref
        if endpoint.conditions.ready and pod is not None and pod.uid:
            yield pod, endpoint.addresses
