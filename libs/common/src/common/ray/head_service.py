"""The head Service of a RayService or RayJob: it selects the head of the current RayCluster.

The Service stays when the cluster is replaced, and then selects the new head. Spec rayservice
§10.1, rayjob §7.4.
"""

from common import labels, names, pod_json
from common.api.core import Service
from common.api.meta import ObjectMeta
from common.api.opaque import Body, Json
from common.kube.resources import SERVICE
from common.ray import owner, ports


def build(
    parent: ObjectMeta, kind: str, *, cluster: str, config: Json, has_cluster_ip: bool
) -> Body:
    """Build the head Service of `parent`, a RayService or RayJob.

    `cluster` is the name of the RayCluster and `config` its spec. With `has_cluster_ip`, the
    Service gets a cluster IP even if its type does not require one.
    """
    template = pod_json.body(ports.head_group(config), "headService")
    selector = ports.head_selector(cluster, config)
    own = {
        labels.NODE_TYPE: labels.HEAD,
        labels.IDENTIFIER: names.checked_label(f"{parent.name}-{labels.HEAD}"),
    }
    return {
        "apiVersion": SERVICE.api_version,
        "kind": SERVICE.kind,
        "metadata": {
            "name": names.head_service(parent.name),
            "namespace": parent.namespace,
            "labels": {**owner.marks(parent.name, kind), **own},
            "annotations": dict(
                pod_json.mapping(pod_json.body(template, "metadata"), "annotations")
            ),
            "ownerReferences": owner.reference(parent, kind),
        },
        "spec": ports.head_spec(config, selector, has_cluster_ip=has_cluster_ip),
    }


def repoint(have: Service, want: Body) -> Body:
    """Return the merge patch that writes the spec of `want` to the existing Service `have`.

    The metadata of `have` stays the same, and so does its cluster IP, which is immutable.
    """
    foreign = dict.fromkeys(set(have.spec.selector) - set(want["spec"]["selector"]))
    spec = {key: value for key, value in want["spec"].items() if key != "clusterIP"}
    return {
        "metadata": {"resourceVersion": have.metadata.resource_version},
        "spec": {**spec, "selector": {**foreign, **want["spec"]["selector"]}},
    }
