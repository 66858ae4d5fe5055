"""Reads the state of Serve on the clusters of a RayService, as both services need it for a plan."""

import asyncio
from collections.abc import Coroutine
from datetime import datetime, timedelta
from typing import Any, TypeVar

import msgspec

from common.api.core import Service
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray import adoption, config_reader, dashboard_identity, revision
from common.ray.revisions import Revisions
from common.ray.serve_api import ServeApi
from common.ray.view import ServeView, dashboard_service
from common.runtime.cache import Cache

View = TypeVar("View", bound=ServeView)


class ServeReader:
    """Fills views of clusters with what dashboards, durable records and this process know of Serve there."""

    def __init__(self, cache: Cache, serve: ServeApi, revisions: Revisions) -> None:
        self._cache = cache
        self._serve = serve
        self._revisions = revisions

    def dashboard_service(self, cluster: RayCluster) -> Service | None:
        """Return the Service through which a cluster's dashboard is reached."""
        return self._cache.get(Service, cluster.metadata.namespace, dashboard_service(cluster))

    async def read(self, view: View, *, max_age: float, now: datetime) -> View:
        """Return a view with the state of Serve; the answer of the dashboard may be so many seconds old."""
        cluster = view.cluster
        records = await self._revisions.of(cluster)
        age = 0.0 if revision.is_open(records) else max_age
        reading = await self._serve.poll(cluster, self.dashboard_service(cluster), max_age=age)
        put_ago, given = self._serve.put_at(cluster), adoption.current(records, reading.details)
        return msgspec.structs.replace(
            view,
            serve=reading,
            given=None if given is None else given.serve_config,
            strategy={} if given is None else given.upgrade_strategy,
            record=records[0].revision if records else 0,
            refused=self._serve.refused(cluster),
            put_at=None if put_ago is None else now - timedelta(seconds=put_ago),
            put=self._serve.put(cluster),
        )

    async def pair(
        self,
        service: RayService,
        active: Coroutine[Any, Any, View | None],
        pending: Coroutine[Any, Any, View | None],
    ) -> tuple[View | None, View | None]:
        """Read both clusters at once; an answer that the other cluster gave does not count."""
        async with asyncio.TaskGroup() as group:
            first, second = group.create_task(active), group.create_task(pending)
        held, new = first.result(), second.result()
        await config_reader.ready(service.serve_config, *(each.given for each in (held, new) if each is not None))
        return dashboard_identity.verified(held, new), dashboard_identity.verified(new, held)
