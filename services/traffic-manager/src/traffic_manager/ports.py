"""What a look at a RayService needs from outside, besides the API server; small enough to fake."""

from typing import Protocol

from common import errors
from common.api.core import Service
from common.api.ray_cluster import RayCluster
from common.ray.revision import Given, Outcome, Revision
from common.ray.view import Put, Reading, Refusal


class ServeApi(Protocol):
    """Dashboards of Ray clusters, with a short memory: asked too soon again, it gives the last answer."""

    async def look(self, cluster: RayCluster, service: Service | None, *, max_age: float) -> Reading:
        """Return what Serve says of itself, at most so many seconds old, and never from before our last PUT."""
        ...

    async def submit(
        self, cluster: RayCluster, service: Service | None, config: str, *, target_capacity: int | None = None
    ) -> None:
        """Send a Serve config; a failure is remembered as a refusal and raised."""
        ...

    def refused(self, cluster: RayCluster) -> Refusal | None:
        """Return the last config that this cluster did not take."""
        ...

    def put_at(self, cluster: RayCluster) -> float | None:
        """Return how many seconds ago this process sent a config."""
        ...

    def put(self, cluster: RayCluster) -> Put | None:
        """Return what this process sent then."""
        ...

    def refuse(self, cluster: RayCluster, config: str, problem: errors.RaybusError) -> None:
        """Remember why a config was not sent at all."""
        ...


class Revisions(Protocol):
    """The durable records of what clusters were given."""

    async def of(self, cluster: RayCluster) -> list[Revision]:
        """Return the records of a cluster, newest first."""
        ...

    async def intend(self, cluster: RayCluster, given: Given, *, after: int) -> Revision:
        """Record what a cluster is about to be given; `Conflict` when another record followed number `after`."""
        ...

    async def conclude(self, cluster: RayCluster, record: Revision, outcome: Outcome) -> None:
        """Record what became of a config."""
        ...
