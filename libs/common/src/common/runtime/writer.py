"""Writes of one reconcile to the API server.

Every answer is stored in the cache at once, so that the next reconcile reads our own writes.
"""

from collections.abc import Awaitable, Mapping

import msgspec

from common import errors, labels
from common.api.core import Pod, PodStatus
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.kube import client
from common.kube.answers import is_gone
from common.kube.client import Kube
from common.kube.resources import POD, Resource, format_selector
from common.runtime import actions
from common.runtime.actions import Action, IfExists
from common.runtime.cache import Cache, Object


class _Meta(ObjectMeta, frozen=True, kw_only=True):
    deletion_grace_period_seconds: int | None = None
    """In the answer to a deletion, 0 means that the object is gone, unless it has a finalizer."""


class _Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata in any answer; empty for a `Status`, as a deletion may return."""

    metadata: _Meta = _Meta()


class Writer:
    """Writes the reconciled object `root` and its children in its namespace."""

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
        """The metadata of the root as observed, or as returned by our last write."""

    def write(self, action: Action) -> Awaitable[bool]:
        """Execute a write; return whether it changed anything.

        Raises:
            RaybusError: The API server refused it, or did not answer.
        """
        kube, namespace, resource, root = self._kube, self.namespace, self._resource, self._known
        match action:
            case actions.Create():
                return self._create(action)
            case actions.Delete():
                return self._delete(action)
            case actions.DeleteCollection():
                return self._delete_collection(action)
            case actions.Replace(resource=resource, body=body):
                request = kube.replace(resource, namespace, body)
            case actions.Patch(resource=resource, name=name, patch=patch):
                request = kube.patch(resource, namespace, name, client.Patch(body=patch))
            case actions.UpdateStatus(status=status):
                body: Body = {"apiVersion": resource.api_version, "kind": resource.kind}
                body["metadata"] = {
                    "name": root.name,
                    "namespace": namespace,
                    "resourceVersion": root.resource_version,
                }
                body["status"] = msgspec.to_builtins(status)
                request = kube.replace(resource, namespace, body, subresource="status")
            case actions.SetFinalizers() | actions.Annotate():
                body = action.patch(root.resource_version)
                request = kube.patch(resource, namespace, root.name, client.Patch(body=body))
            case _:
                raise errors.Invariant(f"no write is known for: {action}")
        return self._change(resource, request)

    async def _create(self, action: actions.Create) -> bool:
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
        """Return why an existing object cannot replace the one to create; None if it can.

        Labels by which raybus finds its objects may be missing, since users can change them.
        """
        expected_labels, existing = (
            action.body["metadata"].get("labels", {}),
            msgspec.json.decode(answer, type=_Answer).metadata,
        )
        if all(owner.uid != self.root.metadata.uid for owner in existing.owner_references):
            return f"and does not belong to this {self._resource.kind}; delete or rename it"
        found_by = {
            label: expected_labels[label] for label in labels.FINDING if label in expected_labels
        }
        lost = [
            f"{label}={value}"
            for label, value in found_by.items()
            if existing.labels.get(label) != value
        ]
        return f"without its labels; set {', '.join(lost)}, or delete it" if lost else None

    async def _change(self, resource: Resource, request: Awaitable[bytes]) -> bool:
        """Store the answer of a write.

        A write of the root continues from the version that was observed, or that our last write
        returned.
        """
        root, is_root = self._known, resource == self._resource
        try:
            answer = await request
        except errors.NotFound as problem:
            # Without this, children would be created for a deleted root until a watch reports the
            # deletion.
            if is_root and is_gone(problem, root.name):
                self._cache.remove(type(self.root), self.namespace, root.name, version=root.version)
            raise
        if is_root:
            new = msgspec.json.decode(answer, type=type(self.root))
            self._cache.put(new)
            self._known = new.metadata
        else:
            self._store(resource, answer)
        return True

    async def _delete_collection(self, action: actions.DeleteCollection) -> bool:
        selector = format_selector(action.selector)
        await self._kube.delete_collection(action.resource, self.namespace, label_selector=selector)
        return True

    async def _delete(self, action: actions.Delete) -> bool:
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
        # Also from an admission controller; counting the pod as gone would create one too many.
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
        """Return whether the object to delete still exists, with the same uid."""
        try:
            answer = await self._kube.get(action.resource, self.namespace, action.name)
        except errors.NotFound:
            return False
        return msgspec.json.decode(answer, type=_Answer).metadata.uid == action.uid

    def _store(self, resource: Resource, answer: bytes) -> None:
        view = self._views.get(resource.kind)
        if view is not None:
            self._cache.put(msgspec.json.decode(answer, type=view))


def _build_pod_view(body: Body, metadata: ObjectMeta) -> Pod:
    """Return the view of a pod that was just created, from its manifest and the answered metadata.

    Changes by admission arrive with the pod's message.
    """
    try:
        pod = msgspec.convert(body, Pod)
    # The manifest has, for example, a null, which the API server treats as an absent field.
    except msgspec.ValidationError:
        pod = Pod(metadata=metadata)
    return msgspec.structs.replace(pod, metadata=metadata, status=PodStatus(phase="Pending"))
