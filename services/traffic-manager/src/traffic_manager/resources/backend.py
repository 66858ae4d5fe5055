"""One cluster's share of the requests, as a route holds it (spec rayservice §9.2)."""

from collections.abc import Sequence

import msgspec

from common import names
from common.api.gateway import RouteRule
from common.api.opaque import Json


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """A cluster and its share."""

    cluster: str
    port: int
    weight: int


def references(namespace: str, backends: Sequence[Backend]) -> list[Json]:
    """Return the `backendRefs` of a rule."""
    return [
        {
            "name": names.serve_service(each.cluster),
            "namespace": namespace,
            "port": each.port,
            "weight": each.weight,
        }
        for each in backends
    ]


def is_held(rule: RouteRule, namespace: str, backends: Sequence[Backend]) -> bool:
    """Return whether a rule sends to these backends and to no others."""
    held = [(each.name, each.namespace, each.port, each.weight) for each in rule.backend_refs]
    return held == [(names.serve_service(each.cluster), namespace, each.port, each.weight) for each in backends]
