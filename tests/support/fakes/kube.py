"""An API server in memory, for scenario tests.

It refuses the same requests as the real one, as far as our code sends them: a name that exists or
is malformed, an old resourceVersion, another uid. It keeps spec and status apart, increments the
generation when the spec changes, and keeps objects with finalizers or a grace period Terminating.
The contract tests run the same steps against the real server.
"""

import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec

from common import errors
from common.api.meta import rfc3339
from common.api.opaque import Body
from common.kube.client import MERGE_PATCH, PatchRequest
from common.kube.resources import EVENT, POD, SERVICE_ACCOUNT, Resource

_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
LARGEST = 1536 * 1024
"""Maximum size of an object in bytes, as in the real server's store by default."""
_WITH_STATUS = {
    "RayCluster",
    "RayService",
    "RayJob",
    "RayCronJob",
    "Pod",
    "Service",
    "Job",
    "Gateway",
    "HTTPRoute",
    "GRPCRoute",
}

Bodies = list[Body]
Texts = list[str]
Report = list[tuple[str, str, str]]

Fault = Callable[["Request"], errors.RaybusError | None]
"""Function that decides whether a request fails: it returns the error, or None to let the request
pass."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the server received it."""

    verb: str
    kind: str
    namespace: str = ""
    name: str = ""
    subresource: str | None = None
    body: Any = None
    is_dry_run: bool = False

    def __str__(self) -> str:
        if self.is_dry_run:
            return f"dry run: create {self.kind} {self.name}"
        kind = self.kind if self.subresource is None else f"{self.kind}/{self.subresource}"
        return f"{self.verb} {kind} {self.name}".strip()


def _metadata_of(stored: bytes) -> bytes:
    partial = {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
    return msgspec.json.encode(partial | {"metadata": msgspec.json.decode(stored)["metadata"]})


class FakeKube:
    """Implements `common.kube.client.Kube`; the functions in `on_change` receive every new state,
    like a watch.
    """

    def __init__(self, *, now: Callable[[], datetime] | None = None) -> None:
        self.objects: dict[tuple[str, str, str], Body] = {}
        self.requests: list[Request] = []
        self.faults: list[Fault] = []
        self.on_change: list[Callable[[str, Body, bool], None]] = []
        """Functions that are called for each change with the kind, the object, and whether it was
        deleted."""
        self.graceful_pods = False
        """Whether a deleted pod that is assigned to a node stays Terminating until
        `finish_deletion`."""
        self.version = 1000
        """Number of the last change, used as resourceVersion."""
        self.tokens_issued = 0
        """Number of ServiceAccount tokens issued so far; each token has a different text."""
        self._buried: set[tuple[str, str, str]] = set()
        """Places of deleted objects; an object that is created again at such a place gets another
        uid."""
        self._dead: set[str] = set()
        """The uids of deleted objects that have not been created again with the same uid."""
        self._now = now or (lambda: datetime(2026, 1, 1, tzinfo=UTC))

    # --- the port ----------------------------------------------------------------------------------------------------

    async def request(self, _method: str, path: str, /, **_: Any) -> bytes:
        raise NotImplementedError(path)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        self._receive("get", resource, namespace, name)
        return msgspec.json.encode(self._find(resource, namespace, name))

    async def get_metadata(self, resource: Resource, namespace: str | None, name: str) -> bytes:
        return _metadata_of(await self.get(resource, namespace, name))

    async def list(
        self,
        resource: Resource,
        namespace: str | None,
        *,
        label_selector: str = "",
        limit: int | None = None,
    ) -> bytes:
        self._receive("list", resource, namespace, label_selector)
        found = self._select(resource, namespace, label_selector)[:limit]
        return msgspec.json.encode(
            {"metadata": {"resourceVersion": str(self.version)}, "items": found}
        )

    async def dry_create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        self._receive("create", resource, namespace, body["metadata"]["name"], is_dry_run=True)
        return msgspec.json.encode(body)

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        body = _copy(body)
        meta = body.setdefault("metadata", {})
        self._receive("create", resource, namespace, meta.get("name", ""), body=body)
        if not _NAME.fullmatch(meta.get("name", "")):
            raise errors.Rejected(f"metadata.name: Invalid value: {meta.get('name')!r}")
        key = (resource.kind, namespace or "", meta["name"])
        if key in self.objects:
            raise errors.AlreadyExists(f'{resource.plural} "{meta["name"]}" already exists')
        if len(msgspec.json.encode(body)) > LARGEST:
            raise errors.Rejected("etcdserver: request is too large; make the object smaller")
        if meta.get("resourceVersion"):
            raise errors.Rejected("resourceVersion should not be set on objects to be created")
        if resource.kind in {"RayCluster", "RayService", "RayJob", "RayCronJob"}:
            body.pop("status", None)
        meta |= {
            "namespace": namespace or "",
            "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{key}{self.version}")),
            "generation": 1,
            "creationTimestamp": rfc3339(self._now()),
        }
        stored = self._store(key, body)
        return _metadata_of(stored) if resource in {EVENT, POD} else stored

    async def replace(
        self,
        resource: Resource,
        namespace: str | None,
        body: Body,
        *,
        subresource: str | None = None,
    ) -> bytes:
        name = body["metadata"]["name"]
        self._receive("update", resource, namespace, name, subresource=subresource, body=body)
        old = self._find(resource, namespace, name)
        self._check_preconditions(old, body["metadata"])
        if len(msgspec.json.encode({**old, **body})) > LARGEST:
            raise errors.Rejected("etcdserver: request is too large")
        if subresource == "status":
            return self._change(resource, old, {**old, "status": _copy(body.get("status", {}))})
        new = _copy(body)
        new["metadata"] = {**new["metadata"], **_server_owned(old)}
        if resource.kind in _WITH_STATUS and "status" in old:
            new["status"] = old["status"]
        return self._change(resource, old, new)

    async def patch(
        self, resource: Resource, namespace: str | None, name: str, patch: PatchRequest
    ) -> bytes:
        self._receive(
            "patch", resource, namespace, name, subresource=patch.subresource, body=patch.body
        )
        old = self._find(resource, namespace, name)
        body = cast("Body", patch.body)
        if patch.content_type != MERGE_PATCH:
            raise NotImplementedError(patch.content_type)
        self._check_preconditions(old, body.get("metadata", {}))
        new = cast("Body", _merge(old, body))
        new["metadata"] |= _server_owned(old)
        return self._change(resource, old, new)

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        version: str | None = None,
    ) -> bytes:
        self._receive("delete", resource, namespace, name)
        old = self._find(resource, namespace, name)
        if uid is not None and old["metadata"]["uid"] != uid:
            raise errors.Conflict("Precondition failed: UID in precondition differs")
        if version is not None and old["metadata"]["resourceVersion"] != version:
            raise errors.Conflict("Precondition failed: ResourceVersion in precondition differs")
        return msgspec.json.encode(self._delete(resource, old))

    async def delete_collection(
        self, resource: Resource, namespace: str, *, label_selector: str
    ) -> bytes:
        self._receive("deletecollection", resource, namespace, label_selector)
        gone = [
            self._delete(resource, each)
            for each in self._select(resource, namespace, label_selector)
        ]
        return msgspec.json.encode(
            {"metadata": {"resourceVersion": str(self.version)}, "items": gone}
        )

    async def request_token(self, namespace: str, account: str, *, seconds: int) -> bytes:
        body = {"spec": {"expirationSeconds": seconds}}
        self._receive("create", SERVICE_ACCOUNT, namespace, account, subresource="token", body=body)
        self._find(SERVICE_ACCOUNT, namespace, account)
        self.tokens_issued += 1
        begin, end = self._now(), self._now() + timedelta(seconds=seconds)
        status = {
            "token": f"issued-{namespace}-{self.tokens_issued}",
            "expirationTimestamp": rfc3339(end),
        }
        return msgspec.json.encode(
            {"metadata": {"creationTimestamp": rfc3339(begin)}, "status": status}
        )

    # --- what a test does to the harness ---------------------------------------------------------------------------------

    def put(self, resource: Resource, body: Body) -> Body:
        """Create or replace an object, as if a user had applied it; return it as stored."""
        new = _copy(body)
        meta = new["metadata"] = {"namespace": "default", **new.get("metadata", {})}
        key = (resource.kind, meta["namespace"], meta["name"])
        old = self.objects.get(key)
        if old is None:
            life = f"{key}{self.version}" if key in self._buried else str(key)
            defaults: Body = {
                "uid": str(uuid.uuid5(uuid.NAMESPACE_URL, life)),
                "generation": 1,
                "creationTimestamp": rfc3339(self._now()),
            }
            new["metadata"] = {**defaults, **meta}
            self._store(key, new)
        else:
            new["metadata"] |= _server_owned(old)
            self._change(resource, old, new)
        return self.objects[key]

    def set_status(self, resource: Resource, namespace: str, name: str, status: Body) -> None:
        """Write the status of an object, as the kubelet or another controller would."""
        old = self._find(resource, namespace, name)
        self._change(resource, old, {**old, "status": status})

    def finish_deletion(self, resource: Resource, namespace: str, name: str) -> None:
        """Remove a Terminating object."""
        self._remove((resource.kind, namespace, name))

    def all(self, resource: Resource, namespace: str = "default") -> Bodies:
        """Return all objects of a kind, sorted by name."""
        return self._select(resource, namespace, "")

    def writes(self) -> Texts:
        """Return the requests that changed an object, as text, except for Events."""
        reads = {"get", "list"}
        return [
            str(each) for each in self.requests if each.verb not in reads and each.kind != "Event"
        ]

    def events(self) -> Report:
        """Return type, reason and note of every Event, in order."""
        return [
            (each.body["type"], each.body["reason"], each.body["note"])
            for each in self.requests
            if each.kind == "Event" and each.verb == "create"
        ]

    # --- inside --------------------------------------------------------------------------------------------------------

    def _receive(
        self, verb: str, resource: Resource, namespace: str | None, name: str, **more: Any
    ) -> None:
        if verb in {"get", "update", "patch", "delete"}:
            resource.path(
                namespace, name, more.get("subresource")
            )  # refuses what no object can be called
        request = Request(
            verb=verb, kind=resource.kind, namespace=namespace or "", name=name, **more
        )
        self.requests.append(request)
        for fault in self.faults:
            problem = fault(request)
            if problem is not None:
                raise problem

    def _find(self, resource: Resource, namespace: str | None, name: str) -> Body:
        found = self.objects.get((resource.kind, namespace or "", name))
        if found is None:
            raise errors.NotFound(f'{resource.plural} "{name}" not found', name=name)
        return found

    def _select(self, resource: Resource, namespace: str | None, selector: str) -> Bodies:
        kind = resource.kind
        places = sorted(
            each for each in self.objects if each[0] == kind and each[1] == (namespace or each[1])
        )
        return [
            self.objects[place]
            for place in places
            if _is_selected(self.objects[place]["metadata"].get("labels", {}), selector)
        ]

    def _check_preconditions(self, old: Body, meta: Mapping[str, Any]) -> None:
        have = old["metadata"]
        if meta.get("resourceVersion") not in {None, have["resourceVersion"]}:
            raise errors.Conflict(
                "the object has been modified; please apply your changes to the latest version"
            )
        if meta.get("uid") not in {None, have["uid"]}:
            raise errors.Conflict("Precondition failed: UID in precondition differs")

    def _change(self, resource: Resource, old: Body, new: Body) -> bytes:
        meta = new["metadata"]
        if _without_version(old) == _without_version(new):
            return msgspec.json.encode(old)
        if old.get("spec") != new.get("spec"):
            meta["generation"] = old["metadata"]["generation"] + 1
        key = (resource.kind, meta["namespace"], meta["name"])
        if meta.get("deletionTimestamp") and not meta.get("finalizers") and resource.kind != "Pod":
            self.version += 1
            self._remove(key)
            return msgspec.json.encode(new)
        return self._store(key, new)

    def _delete(self, resource: Resource, old: Body) -> Body:
        meta = old["metadata"]
        key = (resource.kind, meta["namespace"], meta["name"])
        is_graceful = resource.kind == "Pod" and self.graceful_pods and _has_node(old)
        if meta.get("finalizers") or is_graceful:
            if "deletionTimestamp" not in meta:
                gone_at = {"deletionTimestamp": rfc3339(self._now())}
                self._store(key, {**old, "metadata": {**meta, **gone_at}})
            return self.objects[key]
        self._remove(key)
        return old

    def _store(self, key: tuple[str, str, str], body: Body) -> bytes:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.objects[key] = body
        self._dead.discard(body["metadata"]["uid"])
        for reported in self.on_change:
            reported(key[0], body, False)
        return msgspec.json.encode(body)

    def _remove(self, key: tuple[str, str, str]) -> None:
        self.version += 1
        body = self.objects.pop(key)
        self._buried.add(key)
        gone = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        for reported in self.on_change:
            reported(key[0], gone, True)
        self._dead.add(body["metadata"]["uid"])
        self.collect_garbage()

    def collect_garbage(self) -> None:
        """Delete the objects whose owner was deleted, including those created later."""
        for key, body in list(self.objects.items()):
            owners = (ref["uid"] for ref in body["metadata"].get("ownerReferences", []))
            if key in self.objects and not self._dead.isdisjoint(owners):
                self._remove(key)


def _copy(value: Any) -> Any:
    """Return a deep copy of JSON."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _server_owned(old: Body) -> Body:
    owned = ("uid", "generation", "creationTimestamp", "namespace", "deletionTimestamp")
    return {key: old["metadata"][key] for key in owned if key in old["metadata"]}


def refusing(verb: str, kind: str, problem: errors.RaybusError, *, name: str = "") -> Fault:
    """Refuse requests of a verb for a kind, if the object's name contains a text."""

    def fault(request: Request) -> errors.RaybusError | None:
        is_refused = (request.verb, request.kind) == (verb, kind) and name in request.name
        return problem if is_refused else None

    return fault


def _has_node(pod: Body) -> bool:
    """Return whether a pod is assigned to a node, so that its deletion has a grace period."""
    return pod.get("status", {}).get("phase") not in {None, "Succeeded", "Failed"}


def _without_version(body: Body) -> Body:
    return {
        **body,
        "metadata": {k: v for k, v in body["metadata"].items() if k != "resourceVersion"},
    }


def _merge(old: object, patch: object) -> object:
    if not isinstance(patch, dict) or not isinstance(old, dict):
        return _copy(cast("object", patch))
    new = dict(cast("Body", old))
    for key, value in cast("Body", patch).items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = _merge(new.get(key), value)
    return new


def _is_selected(labels: Mapping[str, str], selector: str) -> bool:
    """Return whether labels have all keys of a selector, and the values that it names."""
    wanted = [part.partition("=") for part in selector.split(",") if part]
    return all(
        key in labels and (not equals or labels[key] == value) for key, equals, value in wanted
    )
