"""Batch schedulers; which one is used is fixed at the start (spec raycluster §17, NVIDIA's KAI: §17.4)."""

from typing import Final

from cluster_reconciler.batch.schedulers import BatchScheduler, SchedulerPlugins, Volcano, YuniKorn
from cluster_reconciler.batch.workload_aware import WorkloadAware
from cluster_reconciler.config import BatchSchedulerName, Config
from common.feature_gates import Gate

_SCHEDULERS: Final = {
    BatchSchedulerName.NONE: BatchScheduler(),
    BatchSchedulerName.VOLCANO: Volcano(),
    BatchSchedulerName.YUNIKORN: YuniKorn(),
    BatchSchedulerName.SCHEDULER_PLUGINS: SchedulerPlugins(),
    BatchSchedulerName.KAI: BatchScheduler("kai-scheduler", (("kai.scheduler/queue", "kai.scheduler/queue"),)),
}
_WORKLOAD_AWARE: Final = WorkloadAware()


def scheduler(config: Config) -> BatchScheduler:
    """Return the scheduler that the operator is configured for."""
    return _WORKLOAD_AWARE if config.has(Gate.KUBERNETES_WAS) else _SCHEDULERS[config.batch_scheduler]
