"""Writes of one reconcile to the API server.

Every answer is stored in the cache at once, so that the next reconcile reads raybus's own writes.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from common import errors, labels
from common.api.core import Pod, PodStatus
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.kube import client
from common.kube.client import Kube
from common.kube.resources import POD, Resource, format_selector
from common.runtime import actions
from common.runtime.actions import Action, IfExists
from common.runtime.cache import Cache, Object


class _Meta(ObjectMeta, frozen=True, kw_only=True):
    deletion_grace_period_seconds: int | None = None
    """Grace period of a deletion; with 0, the object is gone unless it has a finalizer."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata of an answer; empty if the API server answers a deletion with a `Status`."""

    metadata: _Meta = _Meta()


class Writer:
    """Writes the reconciled object `root` and its children in its namespace.

    Each method in `WRITES` executes one kind of action and returns whether it changed anything. It
    raises a `RaybusError` if the API server refuses the write or does not answer.
    """

    def __init__(
        self,
        kube: Kube,
        cache: Cache,
        views: Mapping[str, type[Object]],
        *,
        resource: Resource,
        root: Object,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._views = views
        self._resource = resource
        self.root = root
        self.namespace = root.metadata.namespace
        self._known = root.metadata
        """The metadata of the root object as observed, or as returned by the last write of it."""

    async def replace(self, action: actions.Replace) -> bool:
        request = self._kube.replace(action.resource, self.namespace, action.body)
        return await self._change(action.resource, request)

    async def patch(self, action: actions.Patch) -> bool:
        request = self._kube.patch(
            action.resource, self.namespace, action.name, client.PatchRequest(body=action.patch)
        )
        return await self._change(action.resource, request)

    async def update_status(self, action: actions.UpdateStatus) -> bool:
        resource, root = self._resource, self._known
        metadata = {
            "name": root.name,
            "namespace": self.namespace,
            "resourceVersion": root.resource_version,
        }
        body: Body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": metadata,
            "status": msgspec.to_builtins(action.status),
        }
        request = self._kube.replace(resource, self.namespace, body, subresource="status")
        return await self._change(resource, request)

    async def patch_root(self, action: actions.SetFinalizers | actions.Annotate) -> bool:
        """Change finalizers or annotations of the root object."""
        root = self._known
        patch = client.PatchRequest(body=action.patch(root.resource_version))
        request = self._kube.patch(self._resource, self.namespace, root.name, patch)
        return await self._change(self._resource, request)

    async def create(self, action: actions.Create) -> bool:
        resource, name = action.resource, action.body["metadata"]["name"]
        try:
            answer = await self._kube.create(resource, self.namespace, action.body)
        except errors.AlreadyExists as problem:
            if action.if_exists is IfExists.ACCEPT:
                return False
            answer = await self._kube.get(resource, self.namespace, name)
            if action.if_exists is IfExists.NEED_OWN and (
                flaw := self._find_conflict(action, answer)
            ):
                raise errors.AlreadyExists(
                    f'{resource.plural} "{name}" already exists {flaw}'
                ) from problem
            self._store(resource, answer)
            if action.if_exists is IfExists.REQUEUE:
                raise errors.Conflict(
                    f"{resource.kind} {name} exists already; reconciling again"
                ) from problem
            return False
        if resource is POD:
            self._cache.put(
                _build_pod_view(action.body, msgspec.json.decode(answer, type=_Answer).metadata)
            )
        else:
            self._store(resource, answer)
        return True

    def _find_conflict(self, action: actions.Create, answer: bytes) -> str | None:
        """Return why the existing object in `answer` cannot serve as the one to create, or None.

        It cannot if the root object does not own it, or if it lacks labels by which raybus finds
        its objects.
        """
        expected_labels, existing = (
            action.body["metadata"].get("labels", {}),
            msgspec.json.decode(answer, type=_Answer).metadata,
        )
        if all(owner.uid != self.root.metadata.uid for owner in existing.owner_references):
            return f"and does not belong to this {self._resource.kind}; delete or rename it"
        found_by = {
            label: expected_labels[label]
            for label in labels.IDENTIFYING
            if label in expected_labels
        }
        lost = [
            f"{label}={value}"
            for label, value in found_by.items()
            if existing.labels.get(label) != value
        ]
        return f"without its labels; set {', '.join(lost)}, or delete it" if lost else None

    async def _change(self, resource: Resource, request: Awaitable[bytes]) -> bool:
        """Send a write, and store the object in the answer in the cache.

        If it is the root object, the next write of it uses the returned resourceVersion.
        """
        root, is_root = self._known, resource == self._resource
        try:
            answer = await request
        except errors.NotFound as problem:
            # Without this, children would be created for a deleted root object until its deletion
            # is delivered.
            if is_root and problem.name == root.name:
                self._cache.remove(type(self.root), self.namespace, root.name, version=root.version)
            raise
        if is_root:
            new = msgspec.json.decode(answer, type=type(self.root))
            self._cache.put(new)
            self._known = new.metadata
        else:
            self._store(resource, answer)
        return True

    async def delete_collection(self, action: actions.DeleteCollection) -> bool:
        selector = format_selector(action.selector)
        await self._kube.delete_collection(action.resource, self.namespace, label_selector=selector)
        return True

    async def delete(self, action: actions.Delete) -> bool:
        view = self._views.get(action.resource.kind)
        cached = None if view is None else self._cache.get(view, self.namespace, action.name)
        version = cached.metadata.version if cached is not None else 0
        try:
            if action.released is not None:
                await self._kube.replace(action.resource, self.namespace, action.released)
            answer = await self._kube.delete(
                action.resource, self.namespace, action.name, uid=action.uid
            )
        except errors.NotFound:
            answer = b""
        # An admission controller may also cause a conflict. To count the pod as gone would then
        # create one pod too many.
        except errors.Conflict:
            if action.resource is not POD or await self._exists(action):
                raise
            answer = b""
        remaining = msgspec.json.decode(answer, type=_Answer).metadata if answer else _Meta()
        if remaining.deletion_timestamp is not None and (
            remaining.deletion_grace_period_seconds != 0 or remaining.finalizers
        ):
            self._store(action.resource, answer)
        elif view is not None:
            self._cache.remove(view, self.namespace, action.name, version=version)
        return bool(answer)

    async def _exists(self, action: actions.Delete) -> bool:
        """Return whether the object to delete still exists, with the same UID."""
        try:
            answer = await self._kube.get(action.resource, self.namespace, action.name)
        except errors.NotFound:
            return False
        return msgspec.json.decode(answer, type=_Answer).metadata.uid == action.uid

    def _store(self, resource: Resource, answer: bytes) -> None:
        view = self._views.get(resource.kind)
        if view is not None:
            self._cache.put(msgspec.json.decode(answer, type=view))


WRITES: Final[Mapping[type[Action], Callable[[Writer, Any], Awaitable[bool]]]] = {
    actions.Create: Writer.create,
    actions.Replace: Writer.replace,
    actions.Patch: Writer.patch,
    actions.Delete: Writer.delete,
    actions.DeleteCollection: Writer.delete_collection,
    actions.UpdateStatus: Writer.update_status,
    actions.SetFinalizers: Writer.patch_root,
    actions.Annotate: Writer.patch_root,
}
"""The method of `Writer` for each type of action that writes to the API server."""


def _build_pod_view(body: Body, metadata: ObjectMeta) -> Pod:
    """Return a pod that was just created, from its manifest and the metadata in the answer.

    Changes by admission controllers arrive later, in the pod's message.
    """
    try:
        pod = msgspec.convert(body, Pod)
    # For example, a field of the manifest is null, which the API server treats as absent.
    except msgspec.ValidationError:
        pod = Pod(metadata=metadata)
    return msgspec.structs.replace(pod, metadata=metadata, status=PodStatus(phase="Pending"))
