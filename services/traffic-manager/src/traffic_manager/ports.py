"""What a look at a RayService needs from outside, besides the API server; small enough to fake."""

from typing import Protocol

from common.api.core import Service
from common.api.ray_cluster import RayCluster
from common.ray.revision import Given
from common.ray.view import Reading, Refusal


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


class Revisions(Protocol):
    """The durable records of what clusters were given."""

    async def given(self, cluster: RayCluster) -> Given | None:
        """Return what a cluster was given last, None when nothing is recorded."""
        ...

    async def record(self, cluster: RayCluster, given: Given) -> None:
        """Record what a cluster was given."""
        ...
