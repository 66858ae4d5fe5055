"""Read everything for one reconcile of a RayCronJob from the cache."""

from datetime import datetime

from common import labels
from common.api.ray_cron_job import RayCronJob
from common.api.ray_job import RayJob
from common.ray import owner
from common.runtime.cache import Cache
from common.runtime.key import Key
from job_reconciler.cron.plan import ObservedCronJob
from job_reconciler.settings import Config


class CronObserver:
    """Reads RayCronJobs and their RayJobs from the cache."""

    def __init__(self, cache: Cache, config: Config) -> None:
        self._cache = cache
        self._config = config

    async def observe(self, key: Key, now: datetime) -> ObservedCronJob | None:
        """Return the state of a RayCronJob; None if it does not exist."""
        cron_job = self._cache.get(RayCronJob, key.namespace, key.name)
        if cron_job is None:
            return None
        mark = {labels.CRON_JOB_NAME: key.name}
        jobs = (
            job
            for job in self._cache.list(RayJob, key.namespace, mark)
            if owner.owns(cron_job.metadata, job.metadata)
        )
        return ObservedCronJob(
            cron_job=cron_job, jobs=tuple(jobs), now=now, local_zone=self._config.local_zone
        )
