"""ControllerRevisions at the API server; implements `ports.Revisions`.

They are not on the bus: only we write them, so one list per cluster and process is enough, and our own writes keep it right.
"""

from collections import OrderedDict
from contextlib import suppress
from typing import Final

import msgspec

from common import errors
from common.api.ray_cluster import RayCluster
from common.kube.client import Kube, Patch
from common.kube.resources import CONTROLLER_REVISION
from service_reconciler.resources import revision
from service_reconciler.resources.revision import Given, Revision

REMEMBERED: Final = 8192


class Revisions:
    """The records of all clusters that this replica looks after."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._known: OrderedDict[str, list[Revision]] = OrderedDict()
        """Records by cluster uid, newest first."""

    async def given(self, cluster: RayCluster) -> str | None:
        known = await self._of(cluster)
        return known[0].data.serve_config if known else None

    async def record(self, cluster: RayCluster, given: Given) -> None:
        known = await self._of(cluster)
        number = known[0].revision + 1 if known else 1
        if known and known[0].data == given:
            return
        self._known.pop(cluster.metadata.uid, None)  # whatever fails below, the next question asks the server
        namespace = cluster.metadata.namespace
        try:
            body = await self._kube.create(CONTROLLER_REVISION, namespace, revision.build(cluster, given, number))
        except errors.AlreadyExists:  # the cluster had this config before: it is the current one again
            name = revision.name(cluster.metadata.name, given)
            body = await self._kube.patch(CONTROLLER_REVISION, namespace, name, Patch(body={"revision": number}))
        new = msgspec.json.decode(body, type=Revision)
        others = [each for each in known if each.metadata.name != new.metadata.name]
        for old in others[revision.KEPT - 1 :]:
            with suppress(errors.NotFound):
                await self._kube.delete(CONTROLLER_REVISION, namespace, old.metadata.name, uid=old.metadata.uid)
        self._remember(cluster, [new, *others[: revision.KEPT - 1]])

    async def _of(self, cluster: RayCluster) -> list[Revision]:
        known = self._known.get(cluster.metadata.uid)
        if known is None:
            meta = cluster.metadata
            selector = revision.selector(meta.name)
            body = await self._kube.list(CONTROLLER_REVISION, meta.namespace, label_selector=selector)
            known = revision.of(cluster, msgspec.json.decode(body, type=revision.Revisions).items)
            self._remember(cluster, known)
        return known

    def _remember(self, cluster: RayCluster, known: list[Revision]) -> None:
        self._known[cluster.metadata.uid] = known
        self._known.move_to_end(cluster.metadata.uid)
        if len(self._known) > REMEMBERED:
            self._known.popitem(last=False)
