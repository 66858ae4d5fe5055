"""Defines the API server's audit policy, and reads the writes of raybus's services from its log."""

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Final

import msgspec

from chaos.checker.evidence import Meta, Write, find_top_owner
from common.bus.subjects import ObjectRef

POLICY: Final = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: None
  userGroups: ["system:nodes"]
- level: None
  resources:
  - {group: "", resources: ["nodes", "nodes/status", "events", "pods/status", "pods/binding"]}
  - {group: "events.k8s.io"}
- level: RequestResponse
  verbs: [create, update, patch, delete, deletecollection]
  resources:
  - {group: "", resources: ["pods", "services"]}
  - {group: "ray.io"}
  - {group: "batch"}
  - {group: "gateway.networking.k8s.io"}
  - {group: "coordination.k8s.io"}
- level: Metadata
  verbs: [watch]
- level: None
"""
_BEGIN: Final = b'{"kind":"Event","apiVersion":"audit.k8s.io/v1"'
"""Beginning of every line that the API server writes to the log."""
_OURS: Final = re.compile(r"raybus-(?P<service>[a-z-]+)\S*.*\((?P<replica>[^()]+)\)$")
_KINDS: Final = {
    "rayclusters": "RayCluster",
    "rayservices": "RayService",
    "rayjobs": "RayJob",
    "raycronjobs": "RayCronJob",
    "pods": "Pod",
    "httproutes": "HTTPRoute",
}


class _Reference(msgspec.Struct, frozen=True, rename="camel"):
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class _Code(msgspec.Struct, frozen=True):
    code: int = 0


class _AskedMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Metadata of a request body. A label is None if a patch removes it."""

    resource_version: str = ""
    labels: dict[str, str | None] = {}


class _Preconditions(msgspec.Struct, frozen=True, rename="camel"):
    uid: str = ""
    resource_version: str = ""


class _Asked(msgspec.Struct, frozen=True):
    metadata: _AskedMeta = _AskedMeta()
    preconditions: _Preconditions = _Preconditions()


class _Answered(msgspec.Struct, frozen=True):
    metadata: Meta = Meta()


class _Line(msgspec.Struct, frozen=True, rename="camel"):
    verb: str
    stage: str = ""
    user_agent: str = ""
    stage_timestamp: str = ""
    object_ref: _Reference = _Reference()
    response_status: _Code = _Code()
    request_object: msgspec.Raw = msgspec.Raw(b"{}")
    response_object: msgspec.Raw = msgspec.Raw(b"{}")


class Trail(msgspec.Struct, kw_only=True):
    """The writes and watches of raybus's services."""

    writes: list[Write] = []
    watches: dict[str, int] = {}
    """Number of watches that were opened, by user agent."""


def read(log: Path, origins: dict[tuple[str, str], ObjectRef], *, began: datetime) -> Trail:
    """Read the log and its rotated files.

    `origins` maps the namespace and name of each RayCluster to its top owner, such as a RayService.
    `began` is the start of the run; times of writes are relative to it.
    """
    trail, decoder = Trail(), msgspec.json.Decoder(_Line)
    for raw in _read_lines(log):
        line = decoder.decode(raw)
        if line.verb == "watch":
            trail.watches[line.user_agent] = trail.watches.get(line.user_agent, 0) + 1
        elif (write := _write(line, origins, began)) is not None:
            trail.writes.append(write)
    return trail


def _read_lines(log: Path) -> Iterator[bytes]:
    """Yield the complete lines of the log and its rotated files, oldest first.

    The last line may be incomplete and is left out. If an API server was killed, an incomplete line
    may also precede a complete one without a line break; it is cut off.
    """
    for path in [*sorted(log.parent.glob(f"{log.stem}-*{log.suffix}")), log]:
        with path.open("rb") as lines:
            yield from (
                line[max(line.rfind(_BEGIN), 0) :] for line in lines if line.endswith(b"\n")
            )


def _write(line: _Line, origins: dict[tuple[str, str], ObjectRef], began: datetime) -> Write | None:
    ours = _OURS.match(line.user_agent)
    if (
        ours is None
        or not 200 <= line.response_status.code < 300
        or line.stage != "ResponseComplete"
    ):
        return None
    what = line.object_ref
    asked = _decode_request(line.request_object)
    answered = msgspec.json.decode(line.response_object, type=_Answered).metadata
    meta = answered if answered.name else _get_requested_meta(asked, what)
    kind = _KINDS.get(what.resource, "")
    if kind == "RayCluster" and (root := find_top_owner(kind, meta, origins)) is not None:
        origins.setdefault((meta.namespace, meta.name), root)
    return Write(
        version=_get_written_version(answered, asked),
        at=(datetime.fromisoformat(line.stage_timestamp) - began).total_seconds(),
        service=ours["service"],
        replica=ours["replica"],
        verb=line.verb,
        resource=f"{what.resource}{'/' if what.subresource else ''}{what.subresource}",
        namespace=what.namespace,
        name=what.name or meta.name,
        based_on=_get_precondition(line.verb, asked),
        top_owner=find_top_owner(kind, meta, origins) if kind else None,
    )


def _decode_request(raw: msgspec.Raw) -> _Asked:
    """Decode a request body; return empty fields for a JSON patch, which is a list."""
    return _Asked() if bytes(raw).startswith(b"[") else msgspec.json.decode(raw, type=_Asked)


def _get_written_version(answered: Meta, asked: _Asked) -> int:
    """Return the resource version that a write created; 0 if it changed nothing.

    The API server answers with the previous version if a write changes nothing or ends a deletion.
    """
    version = answered.resource_version
    return int(version) if version and version != asked.metadata.resource_version else 0


def _get_requested_meta(asked: _Asked, what: _Reference) -> Meta:
    """Return the written object's metadata from the request, for an answer without metadata."""
    labels = {label: value for label, value in asked.metadata.labels.items() if value is not None}
    return Meta(name=what.name, namespace=what.namespace, labels=labels)


def _get_precondition(verb: str, asked: _Asked) -> str:
    if verb == "delete":
        return asked.preconditions.uid or asked.preconditions.resource_version
    return asked.metadata.resource_version
