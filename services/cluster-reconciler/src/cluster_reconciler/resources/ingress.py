"""The Ingress for the dashboard, and the Route that replaces the Ingress on OpenShift.

Spec raycluster §8.2, §12.4, §12.5; acceptance case 110.
"""

import hashlib
from typing import Final

from cluster_reconciler.resources import owner, services
from common import labels, names, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import IngressOptions, RayCluster
from common.kube.resources import INGRESS, Resource
from common.ray import ports

ROUTE: Final = Resource(group="route.openshift.io", kind="Route", plural="routes")
OPENSHIFT_GROUPS: Final = frozenset(
    {"route.openshift.io", "security.openshift.io", "config.openshift.io"}
)
"""API groups that only OpenShift has."""


def build(cluster: RayCluster) -> Body:
    """Return the Ingress for the dashboard.

    The cluster's annotations are copied for the Ingress controller, except the class annotation:
    its value becomes `spec.ingressClassName`.
    """
    options = cluster.spec.head_group_spec.ingress_options or IngressOptions()
    annotations = dict(cluster.metadata.annotations)
    ingress_class = annotations.pop(labels.INGRESS_CLASS, None)
    service = {
        "name": services.get_head_service_name(cluster),
        "port": {"number": _get_dashboard_port(cluster)},
    }
    path = {
        "path": "/" if options.path is None else options.path,
        "pathType": options.path_type or "Prefix",
        "backend": {"service": service},
    }
    rule: Body = {"http": {"paths": [path]}}
    if options.host:
        rule["host"] = options.host
    spec: Body = {"rules": [rule]}
    if ingress_class is not None:
        spec["ingressClassName"] = ingress_class
    if options.tls:
        spec["tls"] = pod_json.copied(options.tls)
    return _build_child(
        cluster, INGRESS, names.checked(f"{cluster.metadata.name}-head-ingress"), spec, annotations
    )


def update_ingress(cluster: RayCluster, have: Body) -> Body | None:
    """Return an existing Ingress with labels, annotations and spec updated; None if up to date.

    An Ingress class that a user set on the Ingress stays if the cluster has none.
    """
    want = build(cluster)
    chosen = pod_json.body(have, "spec").get("ingressClassName")
    if chosen is not None:
        want["spec"].setdefault("ingressClassName", chosen)
    return owner.update_child(want, have, "labels", "annotations")


def build_route(cluster: RayCluster) -> Body:
    """Return the Route for the dashboard.

    Its name is cut so that name and namespace fit into one DNS label. If the namespace leaves no
    room, the name is a hash of the cluster's name.
    """
    name, max_length = cluster.metadata.name, 51 - len(cluster.metadata.namespace)
    digest = hashlib.sha256(name.encode()).hexdigest()[:10]
    route = names.checked(f"{name}-head-route"[:max_length]) if max_length > 0 else f"r{digest}"
    spec: Body = {
        "to": {"kind": "Service", "name": services.get_head_service_name(cluster), "weight": 100},
        "port": {"targetPort": _get_dashboard_port(cluster)},
        "wildcardPolicy": "None",
    }
    return _build_child(cluster, ROUTE, route, spec, dict(cluster.metadata.annotations))


def _get_dashboard_port(cluster: RayCluster) -> int:
    return ports.of_head(cluster.raw_spec).get("dashboard", ports.DASHBOARD)


def _build_child(
    cluster: RayCluster, resource: Resource, name: str, spec: Body, annotations: dict[str, str]
) -> Body:
    of_head = services.build_head_list_labels(cluster)
    own = {key: of_head[key] for key in (labels.CLUSTER, labels.IDENTIFIER)} | labels.BY_OPERATOR
    return owner.build_child(
        cluster, resource, name=name, labels=own, annotations=annotations, spec=spec
    )
