"""What a look at a RayService needs from outside, besides the API server; small enough to fake."""

from collections.abc import Mapping
from typing import Protocol

import msgspec

from common import errors
from common.api.core import Pod, Service
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray.ongoing import Ongoing
from common.ray.revision import Given, Outcome, Revision
from common.ray.view import Put, Reading, Refusal
from service_reconciler.resources.goal_revision import Spec


class ServeApi(Protocol):
    """Dashboards and proxies of Ray clusters, with a short memory: asked too soon again, it gives the last answer."""

    async def look(self, cluster: RayCluster, service: Service | None, *, max_age: float) -> Reading:
        """Return what Serve says of itself, at most so many seconds old, and never from before our last PUT."""
        ...

    async def check_proxy(self, pod: Pod, *, max_age: float) -> tuple[bool, ...]:
        """Return the last health checks of a pod's proxy, newest last."""
        ...

    async def ongoing_requests(self, pod: Pod) -> Ongoing | None:
        """Return how many requests a pod's proxy works on, None when it does not tell."""
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


class History(Protocol):
    """The durable records of what RayServices asked for."""

    async def record(self, service: RayService, before: Spec | None, *, kept: int) -> None:
        """Record what a RayService asks for, and what serves until then."""
        ...


class Ray(msgspec.Struct, frozen=True, kw_only=True):
    """Where Serve configs go, and where it is recorded that they went, and what was asked for."""

    serve: ServeApi
    revisions: Revisions
    history: History


class Bus(Protocol):
    """The stream of upgrade events."""

    @property
    def problem(self) -> str | None:
        """Say why there is no connection; None while there is one."""
        ...

    async def publish(
        self, subject: str, payload: bytes, headers: Mapping[str, str], *, expected: int | None, message_id: str
    ) -> object:
        """Store a message, once however often its id is sent within two minutes; return when it is stored."""
        ...
