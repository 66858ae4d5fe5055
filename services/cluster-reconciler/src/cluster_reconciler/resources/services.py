"""The Services of a cluster: head Service, headless Service of the workers, Serve Service.

Workers, users and clients of the dashboard find the head through the head Service. The hosts of a
multi-host replica find one another through the headless Service. The Serve Service is created for
clusters that ask for it. Spec raycluster §8.5, §8.6, §12.1-12.3; acceptance cases 67, 102, 106-109.
"""

from cluster_reconciler.config import Config
from cluster_reconciler.resources import owner
from common import labels, names, pod_json
from common.api.core import Pod, Service
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import SERVICE
from common.ray import ports


def get_head_service_name(cluster: RayCluster) -> str:
    """Return the name of the head Service: the name in the spec, else `<cluster>-head-svc`."""
    own = cluster.spec.head_group_spec.head_service or {}
    return pod_json.text(pod_json.body(own, "metadata"), "name") or names.head_service(
        cluster.metadata.name
    )


def build_head_list_labels(cluster: RayCluster) -> dict[str, str]:
    """Return the labels of the head Service that a user's template cannot change."""
    marks = ports.head_labels(cluster.metadata.name)
    return {label: marks[label] for label in (labels.CLUSTER, labels.NODE_TYPE, labels.IDENTIFIER)}


def build_head(cluster: RayCluster, config: Config) -> Body:
    """Return the head Service.

    If the user's spec has a Service, its fields are kept, except the selector, the owner and the
    labels that raybus sets. raybus's ports follow the user's.
    """
    user_service, template = (
        cluster.spec.head_group_spec.head_service or {},
        cluster.spec.head_group_spec.template,
    )
    of_pod = pod_json.mapping(pod_json.body(template, "metadata"), "labels")
    selector = ports.head_selector(cluster.metadata.name, cluster.raw_spec)
    own = ports.head_labels(cluster.metadata.name, of_pod.get(labels.APP_NAME, labels.KUBERAY))
    spec = ports.head_spec(
        cluster.raw_spec, selector, has_cluster_ip=config.head_service_has_cluster_ip
    )
    metadata = pod_json.body(user_service, "metadata")
    marks = pod_json.mapping(metadata, "labels") | own
    annotations = pod_json.mapping(metadata, "annotations") | (
        cluster.spec.head_service_annotations or {}
    )
    built = owner.build_child(
        cluster,
        SERVICE,
        name=get_head_service_name(cluster),
        labels=marks,
        annotations=annotations,
        spec=spec,
    )
    return {**user_service, **built, "metadata": {**metadata, **built["metadata"]}}


def correct_selector(cluster: RayCluster, have: Service, head: Pod | None) -> dict[str, str | None]:
    """Return the changes that a head Service's selector needs to select the head pod.

    The value None removes a label from the selector. A label that the user may set is removed if
    the existing pod `head` has a different value, because the next head may differ too. The labels
    that only raybus sets are enough to find the head.
    """
    actual, expected = (
        have.spec.selector,
        ports.head_selector(cluster.metadata.name, cluster.raw_spec),
    )
    of_pod = expected if head is None else head.metadata.labels
    stale = {
        label: None
        for label in ports.USERS_LABELS
        if label in actual and actual[label] != of_pod.get(label)
    }
    fixed = (labels.CLUSTER, labels.NODE_TYPE)
    wrong = {
        label: expected[label]
        for label in fixed
        if actual.get(label, expected[label]) != expected[label]
    }
    return {**stale, **wrong}


def build_headless(cluster: RayCluster) -> Body:
    """Return the headless Service with the addresses of all workers, ready or not."""
    of = cluster.metadata.name
    spec = {
        "type": "ClusterIP",
        "clusterIP": "None",
        "selector": {labels.CLUSTER: of, labels.NODE_TYPE: labels.WORKER},
        "publishNotReadyAddresses": True,
    }
    own = {labels.HEADLESS_WORKER_SERVICE: of}
    return owner.build_child(
        cluster, SERVICE, name=names.headless_service(of), labels=own, spec=spec
    )


def build_serve(cluster: RayCluster) -> Body | None:
    """Return the Serve Service for all pods of the cluster; None if the head has no Serve port.

    A head that declares no ports at all has the default Serve port.
    """
    of, entries = cluster.metadata.name, ports.of_serve(cluster.raw_spec)
    if not entries:
        return None
    serve = names.checked_label(f"{of}-serve")
    own = {labels.ORIGIN_NAME: of, labels.ORIGIN_KIND: "RayCluster", labels.SERVE: serve}
    spec: Body = {"selector": {labels.CLUSTER: of}, "ports": entries}
    if cluster.spec.head_group_spec.service_type:
        spec["type"] = cluster.spec.head_group_spec.service_type
    return owner.build_child(cluster, SERVICE, name=names.serve_service(of), labels=own, spec=spec)
