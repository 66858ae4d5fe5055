"""Sends a Serve config to a cluster: records the intent, PUTs, records the outcome (ADR 5). Both services write through it.

Nothing is sent that is not recorded first. So after any crash or loss a record names each config that Ray may have. Each record
names the number that it follows: a decision from an older record is refused.
"""

from common import errors
from common.api.ray_cluster import RayCluster
from common.ray.revision import Outcome, Revision
from common.ray.serve_api import ServeApi
from common.ray.submit import Submit


class ConfigWriter:
    """Writes Serve configs and their records."""

    def __init__(self, serve: ServeApi) -> None:
        self._serve = serve

    async def send(self, action: Submit) -> str | None:
        """Send a config; return why its outcome could not be recorded, None when it was."""
        cluster, config = action.cluster, action.given.serve_config
        try:
            record = await self._serve.revisions.intend(cluster, action.given, after=action.after)
        except (errors.Conflict, errors.NotOurs):
            raise  # the next reconcile decides anew
        except errors.AlreadyExists as problem:
            self._serve.refuse(cluster, config, problem)
            raise errors.Conflict(str(problem)) from problem
        except errors.RaybusError as problem:
            unsent = errors.Unavailable(f"it cannot be recorded in a ControllerRevision: {problem}")
            self._serve.refuse(cluster, config, unsent)
            raise unsent from problem
        try:
            await self._serve.submit(cluster, config, target_capacity=action.capacity)
        except errors.Terminal:
            await self._conclude(cluster, record, Outcome.REFUSED)
            raise
        return await self._conclude(cluster, record, Outcome.ACCEPTED)

    async def _conclude(self, cluster: RayCluster, record: Revision, outcome: Outcome) -> str | None:
        try:
            await self._serve.revisions.conclude(cluster, record, outcome)
        except errors.RaybusError as problem:
            return (
                f"ControllerRevision {record.metadata.name} of RayCluster {cluster.metadata.name} cannot be marked as "
                f"{outcome}; until then what Serve reports decides what the cluster has: {problem}"
            )
        return None
