"""Sends a Serve config to a cluster: records the intent, PUTs, records the outcome (ADR 5). Both services write through it.

Nothing is sent that is not recorded first. So whatever dies or gets lost on the way, a record names each config that Ray may have.
"""

from typing import Protocol

from common import errors
from common.api.core import Service
from common.api.ray_cluster import RayCluster
from common.ray.revision import Given, Outcome, Revision


class Serve(Protocol):
    """The dashboards, as far as a writer needs them."""

    async def submit(
        self, cluster: RayCluster, service: Service | None, config: str, *, target_capacity: int | None = None
    ) -> None:
        """Send a Serve config; a failure is remembered as a refusal and raised."""
        ...

    def refuse(self, cluster: RayCluster, config: str, problem: errors.RaybusError) -> None:
        """Remember why a config was not sent at all, so that it is not tried again at once."""
        ...


class Records(Protocol):
    """The durable records of what clusters are given."""

    async def intend(self, cluster: RayCluster, given: Given, *, after: int) -> Revision:
        """Record what a cluster is about to be given; `Conflict` when another record followed number `after`."""
        ...

    async def conclude(self, cluster: RayCluster, record: Revision, outcome: Outcome) -> None:
        """Record what became of a config."""
        ...


class Sending(Protocol):
    """What is sent, as both services' actions have it."""

    @property
    def cluster(self) -> RayCluster: ...

    @property
    def given(self) -> Given: ...

    @property
    def after(self) -> int:
        """The number of the record that the decision is based on."""
        ...


class ConfigWriter:
    """Writes Serve configs and their records."""

    def __init__(self, serve: Serve, records: Records) -> None:
        self._serve = serve
        self._records = records

    async def send(self, action: Sending, service: Service | None, *, target_capacity: int | None = None) -> str | None:
        """Send a config; return why its outcome could not be recorded, None when it was."""
        record = await self._intend(action)
        config = action.given.serve_config
        try:
            await self._serve.submit(action.cluster, service, config, target_capacity=target_capacity)
        except errors.Terminal:
            await self._conclude(action.cluster, record, Outcome.REFUSED)
            raise
        return await self._conclude(action.cluster, record, Outcome.ACCEPTED)

    async def _intend(self, action: Sending) -> Revision:
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
