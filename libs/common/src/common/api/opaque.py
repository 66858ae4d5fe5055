"""Names for the parts of a spec that stay JSON: Kubernetes' own types, which we edit but never model.

A typed model would drop the fields that it does not know. The marker names the Go type, so that hashing and schema know the parts inside.
"""

from typing import Annotated, Any, TypeAlias

import msgspec


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of a field of our API structs beyond its Python type: how Go writes it, and what the CRD's schema demands of it.

    Stands in `Annotated[type, Api(...)]`; msgspec passes over it, the spec hash and the CRD generator read it.
    """

    go: str = ""
    """Type expression of `common.api.go_types`, where the Python type does not determine it."""
    keep: bool = False
    """Written even when empty (Go: no `omitempty`)."""
    optional: bool = False
    """Not required by the schema although it is always written."""
    nullable: bool = False
    default: str | int | None = None
    enum: tuple[str, ...] = ()
    minimum: int | None = None
    max_length: int | None = None
    """Characters that the CRD admits. A `msgspec.Meta` bounds what is decoded, too."""
    keys: tuple[str, ...] = ()
    """The list is a map by these fields."""
    cel: tuple[tuple[str, str], ...] = ()
    """Pairs of rule and message."""


Json: TypeAlias = dict[str, Any]
Body: TypeAlias = Json
"""A manifest, or a part of one, that we build or copy."""

PodTemplate: TypeAlias = Annotated[Json, Api(go="core/v1.PodTemplateSpec")]
ServiceTemplate: TypeAlias = Annotated[Json, Api(go="core/v1.Service")]
ResourceRequirements: TypeAlias = Annotated[Json, Api(go="core/v1.ResourceRequirements")]
EnvVar: TypeAlias = Annotated[Json, Api(go="core/v1.EnvVar")]
NetworkPolicyIngressRule: TypeAlias = Annotated[
    Json, Api(go="networking/v1.NetworkPolicyIngressRule")
]
NetworkPolicyEgressRule: TypeAlias = Annotated[
    Json, Api(go="networking/v1.NetworkPolicyEgressRule")
]
QuantityText: TypeAlias = Annotated[str | int | float, Api(go="quantity")]
"""A quantity as users write it, a bare number included; `common.quantity.parse` reads it."""
