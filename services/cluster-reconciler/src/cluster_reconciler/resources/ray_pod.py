"""The steps that head and worker pods share, first to last: a copy of the template, then what makes it a Ray node.

Behaviour: spec raycluster §11.1.
"""

import copy
from collections.abc import Mapping

from cluster_reconciler.resources import env, graceful_drain, owner, probes, ray_start
from cluster_reconciler.resources.node import Node
from common import labels, pod_json, ports
from common.api.opaque import Body


def begin(node: Node) -> Body:
    """Copy the template into a pod in the cluster's namespace; whatever the user wrote is kept."""
    template = copy.deepcopy(node.group.template)
    metadata = pod_json.ensure_body(template, "metadata")
    metadata["namespace"] = node.cluster.metadata.namespace
    annotations = pod_json.ensure_body(metadata, "annotations")
    if node.cluster.metadata.annotations.get(labels.OVERWRITE_CONTAINER_CMD, "").lower() == "true":
        annotations[labels.OVERWRITE_CONTAINER_CMD] = "true"
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}


def add_metrics_port(pod: Body) -> None:
    """Declare the port that Prometheus reads, unless a port has its name."""
    container = pod_json.ray_container(pod)
    if pod_json.port_named(container, "metrics") is None:
        pod_json.ensure_list(container, "ports").append({"name": "metrics", "containerPort": ports.METRICS})


def add_sidecars(pod: Body, sidecars: tuple[Body, ...]) -> None:
    """Append the operator's own containers."""
    pod["spec"]["containers"].extend(copy.deepcopy(list(sidecars)))


def finish(pod: Body, node: Node, params: Mapping[str, str]) -> None:
    """Set command, environment, probes and owner, once all containers and volumes are there."""
    pod_json.add_missing(pod["metadata"]["annotations"], node.config.default_pod_annotations.items())
    text = ray_start.command(params, pod_json.ray_container(pod), is_head=node.is_head)
    exports = graceful_drain.configure_pod(pod, node)
    ray_start.set_container_command(pod, text, node.config, exports=exports)
    env.complete_init_containers(pod, node)
    env.complete_ray_container(pod, node, ray_start=text)
    probes.complete(pod, node, params)
    pod["metadata"]["ownerReferences"] = [owner.reference(node.cluster)]
