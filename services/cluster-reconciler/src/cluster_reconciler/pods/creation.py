"""The body of a worker pod that a plan creates: the group's template, and the marks of the batch scheduler."""

from cluster_reconciler import batch
from cluster_reconciler.actions import CreateWorker
from cluster_reconciler.config import Config
from cluster_reconciler.resources import worker_pod
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster


def worker(action: CreateWorker, cluster: RayCluster, config: Config) -> Body:
    """Build the pod that an action creates."""
    body = worker_pod.build(cluster, action.group, config, name=action.name, replica=action.replica)
    batch.scheduler(config).mark(cluster, action.group.group_name, body)
    return body
