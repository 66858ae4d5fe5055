"""The records of RayServices' specs at the API server.

They are read and written only when a cluster is about to be created, so at rest they cost nothing, the bus does not carry them, and
there is nothing to remember between reconciles.
"""

from contextlib import suppress
from typing import assert_never

import msgspec

from common import errors
from common.api.meta import ObjectMeta
from common.api.ray_service import RayService
from common.kube import client
from common.kube.client import Kube
from common.kube.resources import CONTROLLER_REVISION, label_selector
from common.ray import goal_revision
from common.ray.goal_revision import GoalRevision, Spec
from common.ray.revision import Listed
from common.runtime.actions import Create, Delete, Patch
from service_reconciler.promotion import revisions
from service_reconciler.promotion.revisions import Record


class History:
    """Keeps what a RayService asked for."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def record(self, service: RayService, before: Spec | None, *, kept: int) -> None:
        """Record what a RayService asks for, and what serves until then; a second time this writes nothing."""
        meta = service.metadata
        found = await self._read(meta)
        for each in revisions.decide(meta, goal_revision.asked_of(service), before, found, kept=kept):
            await self._write(meta.namespace, each)

    async def _read(self, meta: ObjectMeta) -> list[GoalRevision]:
        selector = label_selector(goal_revision.marks(meta.name))
        body = await self._kube.list(CONTROLLER_REVISION, meta.namespace, label_selector=selector)
        return goal_revision.of(meta, msgspec.json.decode(body, type=Listed[GoalRevision]).items)

    async def _write(self, namespace: str, record: Record) -> None:
        match record:
            case Create(resource=resource, body=body):
                await self._kube.create(resource, namespace, body)
            case Patch(resource=resource, name=name, patch=patch):
                await self._kube.patch(resource, namespace, name, client.Patch(body=patch))
            case Delete(resource=resource, name=name, uid=uid):
                with suppress(errors.NotFound):
                    await self._kube.delete(resource, namespace, name, uid=uid)
            case _:
                assert_never(record)
