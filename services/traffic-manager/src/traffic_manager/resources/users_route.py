"""A HTTPRoute that the user brings: we write the backends that are ours, the traffic record, and its owner.

Hostnames, parents, matches, filters, other rules and other backends with their weights stay. The labels that name the owner are
those by which everything of a RayService is found; with them the watcher puts the route beside its RayService.
"""

from collections.abc import Sequence, Set
from typing import Any, cast

import msgspec

from common import names
from common.api.gateway import HttpRoute, RouteRule
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.ray import owner
from common.upgrade import weighted_route
from common.upgrade.traffic_record import ANNOTATION, Record
from traffic_manager.resources import backend, http_route
from traffic_manager.resources.backend import Backend


def drift(have: HttpRoute, service: ObjectMeta, own: Set[str], backends: Sequence[Backend]) -> str | None:
    """Return why our part of a route must be rewritten; `own` are the Services that are ours wherever a rule names them."""
    if any(have.metadata.labels.get(key) != value for key, value in owner.marks(service.name).items()):
        return "its labels do not name its RayService"
    rules = have.spec.rules
    wanted = [(names.serve_service(each.cluster), each.port, each.weight) for each in backends]
    for index in weighted_route.rules_of(have, own):
        if _ours(rules[index], own) != wanted:
            return "its backends differ"
    return None


def patch(have: HttpRoute, service: ObjectMeta, own: Set[str], backends: Sequence[Backend], record: Record) -> Json:
    """Return the merge patch that writes our backends and the record in one request."""
    references = backend.references(service.namespace, backends)
    meta = {**http_route.record_patch(have, record)["metadata"], "labels": owner.marks(service.name)}
    return {"metadata": meta, "spec": {"rules": _rules(have, own, references)}}


def is_held(have: HttpRoute) -> bool:
    """Return whether a route holds anything of ours."""
    return ANNOTATION in have.metadata.annotations


def release(have: HttpRoute, service: ObjectMeta, own: Set[str]) -> Json:
    """Return the merge patch that takes everything of ours out of a route, and nothing else."""
    meta: Json = {
        "resourceVersion": have.metadata.resource_version,
        "labels": dict.fromkeys(owner.marks(service.name)),
        "annotations": {ANNOTATION: None},
    }
    return {"metadata": meta, "spec": {"rules": _rules(have, own, [])}}


def _rules(have: HttpRoute, own: Set[str], references: list[Json]) -> list[Json]:
    """Return all rules, ours with these backends in the place of our old ones, or after the others."""
    held = cast("list[Json]", msgspec.json.decode(have.spec_json, type=dict[str, Any]).get("rules") or [])
    ours = weighted_route.rules_of(have, own)
    return [
        {**rule, "backendRefs": _merged(rule, own, references)} if index in ours else rule
        for index, rule in enumerate(held)
    ]


def _merged(rule: Json, own: Set[str], references: list[Json]) -> list[Json]:
    held = cast("list[Json]", rule.get("backendRefs") or [])
    places = [index for index, each in enumerate(held) if each.get("name", "") in own]
    kept: Json = {} if not places else {key: held[places[0]][key] for key in ("filters",) if key in held[places[0]]}
    first = places[0] if places else len(held)
    before = [each for index, each in enumerate(held[:first]) if index not in places]
    after = [each for index, each in enumerate(held) if index > first and index not in places]
    return [*before, *({**kept, **each} for each in references), *after]


def _ours(rule: RouteRule, own: Set[str]) -> list[tuple[str, int | None, int | None]]:
    return [(each.name, each.port, each.weight) for each in rule.backend_refs if each.name in own]
