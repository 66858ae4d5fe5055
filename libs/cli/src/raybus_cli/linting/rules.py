"""The validations of the services, each with the field that its text names; and whether the HTTPRoute of a RayService agrees to it."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final, cast

import msgspec

from common import labels
from common.api import ray_cluster, ray_service
from common.api.gateway import HttpRoute
from common.api.opaque import Json
from common.feature_gates import Gates
from common.kube.resources import HTTP_ROUTE
from common.ray import serve_config
from common.upgrade import controls as upgrade_controls
from common.upgrade import weighted_route
from common.validation import ray_cluster as cluster_rules
from raybus_cli.linting.shape import Problem
from raybus_cli.manifests.reading import Document, Place
from raybus_cli.reading import observing

_PATH: Final = re.compile(r"[Ss]pec(?:\.[A-Za-z][A-Za-z0-9]*)+")
_FIELD: Final = re.compile(r"\b[a-z]+(?:[A-Z][A-Za-z0-9]*)+\b")
"""The form of the names of most fields: two parts or more."""


def problems(document: Document, gates: Gates) -> list[Problem]:
    """Return the rules that a manifest violates; the services stop at the first one, and so does each list of rules here."""
    body: Json = {**document.body, "spec": document.body.get("spec") or {}}
    found = _of_service(body, gates) if document.kind == ray_service.KIND else _of_cluster(body, gates)
    return [(_place(document, text), text) for text in found]


def problems_of_route(document: Document, beside: Sequence[Document]) -> Iterator[Problem]:
    """Yield why the route that a RayService names would be refused."""
    if document.kind != ray_service.KIND:
        return
    service = ray_service.decode({**document.body, "spec": document.body.get("spec") or {}})
    if not weighted_route.is_users(service):
        return
    name = weighted_route.name_of(service)
    for each in beside:
        if each.kind == HTTP_ROUTE.kind and each.name == name and each.namespace == document.namespace:
            route = msgspec.json.decode(msgspec.json.encode(each.body), type=HttpRoute)
            if (why := weighted_route.refusal(service, route)) is not None:
                yield ("metadata", "annotations", labels.HTTP_ROUTE), f"HTTPRoute {name} {why.message}"


def _of_service(body: Json, gates: Gates) -> Iterator[str]:
    service = ray_service.decode(body)
    if (violation := observing.violation(service, gates)) is not None:
        yield violation
    text = service.raw_spec.get("serveConfigV2")
    if isinstance(text, str) and (wrong := serve_config.read(text).problem) is not None:
        yield wrong
    yield from upgrade_controls.of(service).problems


def _of_cluster(body: Json, gates: Gates) -> Iterator[str]:
    cluster = ray_cluster.decode(body)
    try:
        rules = (
            cluster_rules.metadata(cluster),
            cluster_rules.spec(cluster, gates),
            cluster_rules.upgrade_options(cluster),
        )
    except msgspec.ValidationError as problem:
        rules = (str(problem),)
    yield from (each for each in rules if each is not None)


def _place(document: Document, text: str) -> Place:
    """Return the field that a text names: an annotation, a path from the spec on, or the first name of a field in it."""
    annotations: Json = cast("Json", document.body.get("metadata") or {}).get("annotations") or {}
    for name in annotations:
        if name in text:
            return ("metadata", "annotations", name)
    for found in _PATH.findall(text):
        place = tuple(part[:1].lower() + part[1:] for part in str(found).split("."))
        while len(place) > 1:
            if place in document.lines:
                return place
            place = place[:-1]
    for field in _FIELD.findall(text):
        places = [each for each in document.lines if each and each[-1] == field]
        if places:
            return max(places, key=lambda each: (_is_in_named_group(document, each, text), -len(each)))
    return ("spec",)


def _is_in_named_group(document: Document, place: Place, text: str) -> bool:
    """Return whether a field is in a worker group that a text names."""
    value: object = document.body
    for part in place:
        value = cast("Any", value)[part]
        name = cast("Json", value).get("groupName") if isinstance(value, dict) else None
        if name is not None and f" {name} " in f" {text} ":
            return True
    return False
