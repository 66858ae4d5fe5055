"""The Services of a cluster: of its head, of the workers of multi-host groups, and of its Serve proxies.

Through the first one workers, users and the dashboard's callers find the head; through the second one the hosts of a replica find one
another; the third one is made for clusters that ask for it themselves.
Behaviour: spec raycluster §8.5, §8.6, §12.1-12.3; acceptance cases 67, 102, 106-109.
"""

from cluster_reconciler.config import Config
from cluster_reconciler.resources import owner
from common import labels, names, pod_json
from common.api.core import Pod, Service
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.kube.resources import SERVICE
from common.ray import ports


def head_name(cluster: RayCluster) -> str:
    """Return the head Service's name: the user's own, or one made from the cluster's."""
    own = cluster.spec.head_group_spec.head_service or {}
    return pod_json.text(pod_json.body(own, "metadata"), "name") or names.head_service(
        cluster.metadata.name
    )


def head_list_labels(cluster: RayCluster) -> dict[str, str]:
    """Return the labels by which the head Service is found again, whatever the template has."""
    marks = ports.head_labels(cluster.metadata.name)
    return {label: marks[label] for label in (labels.CLUSTER, labels.NODE_TYPE, labels.IDENTIFIER)}


def build_head(cluster: RayCluster, config: Config) -> Body:
    """Build the head Service; of the user's own one all is kept but name, selector, labels and owner, and our ports follow its ports."""
    given, template = (
        cluster.spec.head_group_spec.head_service or {},
        cluster.spec.head_group_spec.template,
    )
    of_pod = pod_json.mapping(pod_json.body(template, "metadata"), "labels")
    selector = ports.head_selector(cluster.metadata.name, cluster.raw_spec)
    own = ports.head_labels(cluster.metadata.name, of_pod.get(labels.APP_NAME, labels.KUBERAY))
    spec = ports.head_spec(
        cluster.raw_spec, selector, has_cluster_ip=config.head_service_has_cluster_ip
    )
    metadata = pod_json.body(given, "metadata")
    marks = pod_json.mapping(metadata, "labels") | own
    annotations = pod_json.mapping(metadata, "annotations") | (
        cluster.spec.head_service_annotations or {}
    )
    built = owner.child(
        cluster, SERVICE, name=head_name(cluster), labels=marks, annotations=annotations, spec=spec
    )
    return {**given, **built, "metadata": {**metadata, **built["metadata"]}}


def corrected_selector(
    cluster: RayCluster, have: Service, head: Pod | None
) -> dict[str, str | None]:
    """Return what of a head Service's selector misses the head pod, None for what has to go.

    A label that the user may set goes: the head to come may have another value than `head`, which
    is the pod that there is. The labels that nobody else sets are enough.
    """
    held, wanted = have.spec.selector, ports.head_selector(cluster.metadata.name, cluster.raw_spec)
    of_pod = wanted if head is None else head.metadata.labels
    stale = {
        label: None
        for label in ports.USERS_LABELS
        if label in held and held[label] != of_pod.get(label)
    }
    fixed = (labels.CLUSTER, labels.NODE_TYPE)
    wrong = {
        label: wanted[label] for label in fixed if held.get(label, wanted[label]) != wanted[label]
    }
    return {**stale, **wrong}


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


def build_serve(cluster: RayCluster) -> Body | None:
    """Build the Serve Service over all pods of the cluster; None when the head declares ports, but none for Serve."""
    of, entries = cluster.metadata.name, ports.of_serve(cluster.raw_spec)
    if not entries:
        return None
    serve = names.checked_label(f"{of}-serve")
    own = {labels.ORIGIN_NAME: of, labels.ORIGIN_KIND: "RayCluster", labels.SERVE: serve}
    spec: Body = {"selector": {labels.CLUSTER: of}, "ports": entries}
    if cluster.spec.head_group_spec.service_type:
        spec["type"] = cluster.spec.head_group_spec.service_type
    return owner.child(cluster, SERVICE, name=names.serve_service(of), labels=own, spec=spec)
