"""Sends a Serve config to a cluster: records the intent, PUTs, records the outcome (ADR 5). Both services write through it.

Nothing is sent that is not recorded first. So after any crash or loss a record names each config that Ray may have.
"""

from common import errors
from common.api.core import Service
from common.api.ray_cluster import RayCluster
from common.ray.revision import Outcome, Revision
from common.ray.revisions import Revisions
from common.ray.serve_api import ServeApi
from common.ray.submit import Submit


class ConfigWriter:
    """Writes Serve configs and their records."""

    def __init__(self, serve: ServeApi, records: Revisions) -> None:
        self._serve = serve
        self._records = records

    async def send(self, action: Submit, service: Service | None) -> str | None:
        """Send a config; return why its outcome could not be recorded, None when it was."""
        record = await self._intend(action)
        config = action.given.serve_config
        try:
            await self._serve.submit(action.cluster, service, config, target_capacity=action.capacity)
        except errors.Terminal:
            await self._conclude(action.cluster, record, Outcome.REFUSED)
            raise
        return await self._conclude(action.cluster, record, Outcome.ACCEPTED)

    async def _intend(self, action: Submit) -> Revision:
        try:
            return await self._records.intend(action.cluster, action.given, after=action.after)
        except (errors.Conflict, errors.NotOurs):
            raise  # the next reconcile decides anew
        except errors.AlreadyExists as problem:
            self._serve.refuse(action.cluster, action.given.serve_config, problem)
            raise errors.Conflict(str(problem)) from problem
        except errors.RaybusError as problem:
            unsent = errors.Unavailable(f"it cannot be recorded in a ControllerRevision: {problem}")
            self._serve.refuse(action.cluster, action.given.serve_config, unsent)
            raise unsent from problem

    async def _conclude(self, cluster: RayCluster, record: Revision, outcome: Outcome) -> str | None:
        try:
            await self._records.conclude(cluster, record, outcome)
        except errors.RaybusError as problem:
            return (
                f"ControllerRevision {record.metadata.name} of RayCluster {cluster.metadata.name} cannot be marked as "
                f"{outcome}; until then what Serve reports decides what the cluster has: {problem}"
            )
        return None
