"""Simulates the users of a run: sends their requests in order, and repeats those that fail."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from chaos.evidence_room import EvidenceStore
from chaos.stack import BACKGROUND, Stack
from chaos.users import UserRequest
from common import errors, labels
from common.kube.client import PatchRequest
from common.kube.resources import RAY_CLUSTER

RETRY: Final = 0.5
PERIOD_SECONDS: Final = 1.0


class BackgroundUsers:
    """The simulated users whose requests change objects during a run."""

    def __init__(self, stack: Stack, now: Callable[[], float]) -> None:
        self.done: list[tuple[float, UserRequest]] = []
        """The requests that the API server accepted, each with its time in seconds."""
        self._stack = stack
        self._now = now

    async def ask(self, requests: list[UserRequest], *, since: float) -> None:
        """Send each request at its time after `since`; retry until the API server accepts it."""
        for request in requests:
            await asyncio.sleep(max(0.0, since + request.at - self._now()))
            # Polled, because nothing announces the return of the API server.
            while not await self._granted(request):  # noqa: ASYNC110
                await asyncio.sleep(RETRY)
            self.done.append((self._now(), request))

    async def _granted(self, request: UserRequest) -> bool:
        kube = self._stack.kube
        try:
            if request.body is not None:
                await kube.create(request.resource, BACKGROUND, request.body)
            elif request.spec is not None:
                await kube.patch(
                    request.resource,
                    BACKGROUND,
                    request.name,
                    PatchRequest(body={"spec": request.spec}),
                )
            else:
                await kube.delete(request.resource, BACKGROUND, request.name)
        except (errors.AlreadyExists, errors.NotFound):
            return True  # an earlier attempt succeeded, but its answer was lost
        except errors.RaybusError as problem:
            if isinstance(problem, errors.Rejected | errors.InvalidSpec | errors.Forbidden):
                raise
            return False
        return True


class Autoscaler:
    """Simulates the Ray autoscaler: asks for the deletion of surplus workers of each cluster."""

    def __init__(self, stack: Stack, room: EvidenceStore) -> None:
        self._stack = stack
        self._room = room

    async def run(self) -> None:
        """Write the names of surplus workers into RayClusters every second, until cancelled."""
        while True:
            for cluster in self._room.living("RayCluster", BACKGROUND):
                if cluster.spec.enable_in_tree_autoscaling:
                    with suppress(errors.RaybusError):  # it is read again anyway
                        await self._scale_down(cluster.metadata.name)
            await asyncio.sleep(PERIOD_SECONDS)

    async def _scale_down(self, cluster: str) -> None:
        workers = [
            pod.metadata.name
            for pod in self._room.living("Pod", BACKGROUND)
            if pod.label.get(labels.CLUSTER) == cluster
            and pod.label.get(labels.NODE_TYPE) == labels.WORKER
        ]
        seen = self._room.latest("RayCluster", BACKGROUND, cluster)
        groups = seen.spec.worker_group_specs if seen is not None else None
        if seen is None or not groups or len(workers) <= groups[0].wanted:
            return
        surplus = sorted(workers)[groups[0].wanted :]
        if surplus == groups[0].scale_strategy.workers_to_delete:
            return
        body = msgspec.json.decode(await self._stack.kube.get(RAY_CLUSTER, BACKGROUND, cluster))
        group = {
            **body["spec"]["workerGroupSpecs"][0],
            "scaleStrategy": {"workersToDelete": surplus},
        }
        meta = {"resourceVersion": seen.metadata.resource_version}
        patch = PatchRequest(body={"metadata": meta, "spec": {"workerGroupSpecs": [group]}})
        await self._stack.kube.patch(RAY_CLUSTER, BACKGROUND, cluster, patch)


def reported(request: UserRequest) -> str:
    """Return a line for the log that describes a request."""
    change = msgspec.json.encode(request.spec).decode()[:120] if request.spec is not None else ""
    return f"user: {request} {change}".strip()
