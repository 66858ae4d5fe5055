"""NVIDIA's KAI scheduler: a queue on the pods is all (spec raycluster §17.4)."""

from typing import Final

from cluster_reconciler.batch.port import Unannounced, copy_label
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster

QUEUE: Final = "kai.scheduler/queue"


class Kai(Unannounced):
    """Implements `BatchScheduler`."""

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:  # noqa: ARG002  (the port's parameter)
        """Name the queue and the scheduler."""
        copy_label(cluster, pod, QUEUE)
        pod["spec"]["schedulerName"] = "kai-scheduler"
