"""A Gateway controller on a real API server: it accepts every Gateway and route of a namespace at its generation."""

import asyncio
from contextlib import suppress

import msgspec

from common import errors
from common.api.opaque import Body, Json
from common.kube.client import KubeClient, Patch
from common.kube.resources import GATEWAY, GRPC_ROUTE, HTTP_ROUTE, Resource

LOOK_SECONDS = 0.1


class GatewayController:
    """Looks again and again."""

    def __init__(self, kube: KubeClient, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            with suppress(errors.RaybusError):  # the kinds were defined just now, and objects come and go
                await self._look()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        for each in await self._found(GATEWAY):
            await self._report(GATEWAY, each, {"conditions": _said(each, "Accepted", "Programmed")})
        for resource in (HTTP_ROUTE, GRPC_ROUTE):
            for each in await self._found(resource):
                said = _said(each, "Accepted", "ResolvedRefs")
                parents = [
                    {"parentRef": parent, "controllerName": "example.org/gw", "conditions": said}
                    for parent in each["spec"]["parentRefs"]
                ]
                await self._report(resource, each, {"parents": parents})

    async def _found(self, resource: Resource) -> list[Body]:
        return msgspec.json.decode(await self._kube.list(resource, self._namespace))["items"]

    async def _report(self, resource: Resource, body: Body, status: Json) -> None:
        if body.get("status") == status:
            return
        name = body["metadata"]["name"]
        await self._kube.patch(resource, self._namespace, name, Patch(body={"status": status}, subresource="status"))


def _said(body: Body, *kinds: str) -> list[Json]:
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
