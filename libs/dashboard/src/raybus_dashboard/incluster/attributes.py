"""Derives the authorization attributes of an API server request from method, path and query.

Does no I/O. Only paths in the canonical form are accepted, as `common.kube.resources` builds them.
A dot segment, an empty segment, a percent sign or a query inside the path could mean a different
object to the API server than to this parser, so such a path is refused.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
import re2

from common import errors

SHOWN: Final = 100
"""Maximum characters of a refused path in a message."""
VERBS: Final = {
    "GET": "get",
    "POST": "create",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
OF_COLLECTIONS: Final = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
NAMESPACES: Final = "namespaces"
PROXY: Final = "proxy"
AMBIGUOUS: Final = frozenset({"watch", PROXY, "status", "finalize"})
"""Names that the API server does not read as a resource at the start of a path.

It reads them as an old verb, or as a subresource of a namespace."""
_END: Final = 3
"""Number of segments in RESOURCE/NAME/SUBRESOURCE."""
_END_OF_NAMESPACED: Final = 2 + _END
TRUE: Final = frozenset({"1", "true", "True", "TRUE", "t", "T"})
"""Values that Kubernetes parses as true."""
_SEGMENT: Final = re2.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:-]*[A-Za-z0-9])?")
_TAIL: Final = re2.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_-])?")
"""Matches a path segment after `proxy/`, which is sent to a Service."""
_VERSION: Final = re2.compile(r"v[0-9]+(?:(?:alpha|beta)[0-9]+)?")


class Unparsable(errors.Forbidden):
    """The authorization attributes of a request cannot be determined from its path."""


class Attributes(msgspec.Struct, frozen=True, kw_only=True):
    """The attributes that a SubjectAccessReview checks."""

    verb: str
    resource: str
    group: str = ""
    version: str = "v1"
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        """Format the attributes for messages, such as `list rayservices in namespace a`."""
        what = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        named = f"{what} {self.name}" if self.name else what
        return (
            f"{self.verb} {named} in "
            f"{f'namespace {self.namespace}' if self.namespace else 'all namespaces'}"
        )


def parse(method: str, path: str, query: Mapping[str, str] | None = None) -> Attributes:
    """Return the attributes of a request.

    Raise `Unparsable` if they cannot be determined with certainty.

    Segments are interpreted by position, as the API server does: a pod may be called `proxy` or
    `status`.
    """
    group, version, rest = _parse_group(path)
    tail: list[str] = []
    end = _END_OF_NAMESPACED if rest[0] == NAMESPACES and len(rest) > 2 else _END
    if rest[end - 1 : end] == [PROXY]:
        rest, tail = rest[:end], rest[end:]
    if tail and tail[-1] == "":  # Ray's paths end with a slash
        tail.pop()
    if not all(map(_SEGMENT.fullmatch, rest)) or not all(map(_TAIL.fullmatch, tail)):
        raise _build_unparsable(path)
    namespace = ""
    if rest[0] == NAMESPACES and len(rest) > 1:
        namespace, rest = rest[1], rest[2:] or rest
    if len(rest) > 3 or rest[0] in AMBIGUOUS:
        raise _build_unparsable(path)
    resource, name, subresource = (*rest, "", "")[:3]
    return Attributes(
        verb=_decide_verb(method, path, query or {}, has_name=bool(name)),
        group=group,
        version=version,
        resource=resource,
        subresource=subresource,
        namespace=namespace,
        name=name,
    )


def _parse_group(path: str) -> tuple[str, str, list[str]]:
    """Return group, version and the remaining segments.

    Raise `Unparsable` for a path without a resource.
    """
    match path.split("/"):
        case ["", "api", "v1", *rest] if rest:
            return "", "v1", rest
        case ["", "apis", group, version, *rest] if (
            rest and _SEGMENT.fullmatch(group) and _VERSION.fullmatch(version)
        ):
            return group, version, rest
        case _:
            raise _build_unparsable(path)


def _decide_verb(method: str, path: str, query: Mapping[str, str], *, has_name: bool) -> str:
    verb = (VERBS if has_name else OF_COLLECTIONS).get(method)
    if verb is None:
        raise _build_unparsable(f"{method} {path}")
    if "watch" in query:
        if method != "GET" or query["watch"] not in TRUE:
            raise _build_unparsable(f"{method} {path}?watch")
        return "watch"
    return verb


def _build_unparsable(path: str) -> Unparsable:
    shown = path if len(path) <= SHOWN else f"{path[:SHOWN]}…"
    return Unparsable(
        f"the request {msgspec.json.encode(shown).decode()} is refused: its object cannot be "
        "determined"
    )
