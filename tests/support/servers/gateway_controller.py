"""A Gateway controller on a real API server: it accepts every Gateway and route of a namespace, or of all, at its generation."""

import asyncio
from contextlib import suppress

import msgspec

from common import errors
from common.api.opaque import Body, Json
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, Resource

PERIOD_SECONDS = 0.1


class GatewayController:
    """Controller that reconciles Gateways and routes repeatedly."""

    def __init__(
        self, kube: KubeClient, namespace: str | None, *, every: float = PERIOD_SECONDS
    ) -> None:
        self._kube = kube
        self._namespace = namespace
        self._every = every

    async def run(self) -> None:
        """Reconcile until cancelled."""
        while True:
            with suppress(
                errors.RaybusError
            ):  # the kinds were defined just now, and objects come and go
                await self._reconcile()
            await asyncio.sleep(self._every)

    async def _reconcile(self) -> None:
        for each in await self._found(GATEWAY):
            await self._report(
                GATEWAY, each, {"conditions": _conditions(each, "Accepted", "Programmed")}
            )
        for resource in (HTTP_ROUTE, GRPC_ROUTE):
            for each in await self._found(resource):
                conditions = _conditions(each, "Accepted", "ResolvedRefs")
                parents = [
                    {
                        "parentRef": parent,
                        "controllerName": "example.org/gw",
                        "conditions": conditions,
                    }
                    for parent in each["spec"]["parentRefs"]
                ]
                await self._report(resource, each, {"parents": parents})

    async def _found(self, resource: Resource) -> list[Body]:
        return msgspec.json.decode(await self._kube.list(resource, self._namespace))["items"]

    async def _report(self, resource: Resource, body: Body, status: Json) -> None:
        if body.get("status") == status:
            return
        meta = body["metadata"]
        patch = PatchRequest(body={"status": status}, subresource="status")
        with suppress(
            errors.RaybusError
        ):  # a tenant's object must not keep those of others from their status
            await self._kube.patch(resource, meta["namespace"], meta["name"], patch)


def _conditions(body: Body, *kinds: str) -> list[Json]:
    return [
        {
            "type": kind,
            "status": "True",
            "reason": kind,
            "message": "",
            "observedGeneration": body["metadata"]["generation"],
            "lastTransitionTime": "2026-01-01T00:00:00Z",
        }
        for kind in kinds
    ]
