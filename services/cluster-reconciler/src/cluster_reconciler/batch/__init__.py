"""Batch schedulers: one port, one adapter a file; which one is used is fixed at the start (spec raycluster §17)."""

from cluster_reconciler.batch.kai import Kai
from cluster_reconciler.batch.port import BatchScheduler, KubernetesDefault
from cluster_reconciler.batch.scheduler_plugins import SchedulerPlugins
from cluster_reconciler.batch.volcano import Volcano
from cluster_reconciler.batch.workload_aware import WorkloadAware
from cluster_reconciler.batch.yunikorn import YuniKorn
from cluster_reconciler.config import BatchSchedulerName, Config
from common.feature_gates import Gate

_SCHEDULERS: dict[BatchSchedulerName, BatchScheduler] = {
    BatchSchedulerName.NONE: KubernetesDefault(),
    BatchSchedulerName.VOLCANO: Volcano(),
    BatchSchedulerName.YUNIKORN: YuniKorn(),
    BatchSchedulerName.SCHEDULER_PLUGINS: SchedulerPlugins(),
    BatchSchedulerName.KAI: Kai(),
}
_WORKLOAD_AWARE = WorkloadAware()


def scheduler(config: Config) -> BatchScheduler:
    """Return the scheduler that the operator is configured for."""
    return _WORKLOAD_AWARE if config.has(Gate.KUBERNETES_WAS) else _SCHEDULERS[config.batch_scheduler]
