"""An API server in memory with one interception point, for tests that delay requests, let them fail
or check them.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from common.api.opaque import Body
from common.kube.client import PatchRequest
from common.kube.resources import Resource
from support.fakes.kube import FakeKube

Send = Callable[[], Awaitable[bytes]]


class InterceptedKube:
    """Implements `common.kube.client.Kube`; the method `intercept` of a subclass handles each
    request.
    """

    def __init__(self, kube: FakeKube) -> None:
        self._kube = kube

    async def intercept(self, verb: str, resource: Resource, name: str, send: Send) -> bytes:
        """Send a request or let it fail; `name` is empty for requests about several objects."""
        raise NotImplementedError

    async def request(self, method: str, path: str, /, **more: Any) -> bytes:
        return await self._kube.request(method, path, **more)

    async def request_token(self, namespace: str, account: str, *, seconds: int) -> bytes:
        return await self._kube.request_token(namespace, account, seconds=seconds)

    async def get_metadata(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        return await self._kube.get_metadata(resource, namespace, name)

    async def dry_create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        return await self._kube.dry_create(resource, namespace, body)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        return await self.intercept(
            "get", resource, name, lambda: self._kube.get(resource, namespace, name)
        )

    async def list(self, resource: Resource, namespace: str | None, **options: Any) -> bytes:
        return await self.intercept(
            "list", resource, "", lambda: self._kube.list(resource, namespace, **options)
        )

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        name = body["metadata"]["name"]
        return await self.intercept(
            "create", resource, name, lambda: self._kube.create(resource, namespace, body)
        )

    async def replace(
        self, resource: Resource, namespace: str | None, body: Body, **options: Any
    ) -> bytes:
        name = body["metadata"]["name"]
        return await self.intercept(
            "replace",
            resource,
            name,
            lambda: self._kube.replace(resource, namespace, body, **options),
        )

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: PatchRequest
    ) -> bytes:
        return await self.intercept(
            "patch", resource, name, lambda: self._kube.patch(resource, namespace, name, patch)
        )

    async def delete(
        self, resource: Resource, namespace: str | None, name: str, **options: Any
    ) -> bytes:
        return await self.intercept(
            "delete",
            resource,
            name,
            lambda: self._kube.delete(resource, namespace, name, **options),
        )

    async def delete_collection(
        self, resource: Resource, namespace: str, *, label_selector: str
    ) -> bytes:
        return await self.intercept(
            "deletecollection",
            resource,
            "",
            lambda: self._kube.delete_collection(
                resource, namespace, label_selector=label_selector
            ),
        )
