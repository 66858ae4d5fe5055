"""Dry runs at the API server: the object as it would be stored, with its defaults, validated by all its rules."""

from typing import Final

from common.api import ray_service
from common.api.opaque import Body
from common.api.ray_service import RayService
from common.kube.client import KubeClient, Patch
from common.kube.resources import RAY_SERVICE, Resource

_DRY_RUN: Final = {"dryRun": "All"}


async def create(kube: KubeClient, namespace: str, body: Body) -> RayService:
    """Return a RayService as it would be created."""
    return ray_service.decode(await kube.request("POST", RAY_SERVICE.path(namespace), query=_DRY_RUN, body=body))


async def replace(kube: KubeClient, namespace: str, body: Body) -> RayService:
    """Return a RayService as it would be replaced."""
    path = RAY_SERVICE.path(namespace, str(body["metadata"]["name"]))
    return ray_service.decode(await kube.request("PUT", path, query=_DRY_RUN, body=body))


async def patch(kube: KubeClient, namespace: str, name: str, change: Patch) -> RayService:
    """Return a RayService as it would be after a patch."""
    return ray_service.decode(await send(kube, RAY_SERVICE, namespace, name, change))


async def send(kube: KubeClient, resource: Resource, namespace: str, name: str, change: Patch) -> bytes:
    """Return an object as it would be after a patch."""
    path, headers = resource.path(namespace, name), {"Content-Type": change.content_type}
    return await kube.request("PATCH", path, query=_DRY_RUN, body=change.body, headers=headers)
