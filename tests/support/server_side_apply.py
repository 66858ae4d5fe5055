"""Server-side apply, as kubectl and Argo CD use it; no service uses it."""

from common.api.opaque import Body
from common.kube.client import Kube
from common.kube.resources import Resource


async def apply(
    kube: Kube, resource: Resource, namespace: str | None, body: Body, *, manager: str = "kubectl"
) -> bytes:
    """Create or change an object, and take over the ownership of the body's fields."""
    path, query = (
        resource.path(namespace, body["metadata"]["name"]),
        {"fieldManager": manager, "force": "true"},
    )
    headers = {"Content-Type": "application/apply-patch+yaml"}
    return await kube.request(
        "PATCH", path, query={**query, "fieldValidation": "Ignore"}, body=body, headers=headers
    )
