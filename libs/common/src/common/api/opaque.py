"""Type names for the parts of a spec that stay JSON.

raybus edits these Kubernetes types but does not model them, because a model would drop unknown
fields. The marker `Api` names the Go type of such a part, so that the spec hash and the CRD schema
know its fields.
"""

from typing import Annotated, Any, TypeAlias

import msgspec


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """Properties of an API field that its Python type lacks, such as its Go type and CRD limits.

    It is used as `Annotated[type, Api(...)]`. msgspec ignores it; the spec hash and the CRD
    generator read it.
    """

    go: str = ""
    """The Go type, written as in `common.api.go_types`; empty if the Python type determines it."""
    keep: bool = False
    """Whether the field is written even when empty (Go: no `omitempty`)."""
    optional: bool = False
    """Whether the field is optional in the schema although it is always written."""
    nullable: bool = False
    default: str | int | None = None
    enum: tuple[str, ...] = ()
    minimum: int | None = None
    min_length: int | None = None
    """Minimum characters that the CRD requires."""
    min_items: int | None = None
    """Minimum entries of a list that the CRD requires."""
    max_length: int | None = None
    """Maximum characters that the CRD allows. To limit decoding as well, use `msgspec.Meta`."""
    keys: tuple[str, ...] = ()
    """Key fields of a list that server-side apply treats as a map."""
    list_type: str = ""
    """How server-side apply merges a list without `keys`: `atomic` replaces the whole list."""
    cel: tuple[tuple[str, str], ...] = ()
    """CEL validations as pairs of a rule and its error message."""


Json: TypeAlias = dict[str, Any]
Body: TypeAlias = Json
"""A manifest, or a part of one, that raybus builds or copies."""

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
"""A quantity as written by users, possibly a bare number; `common.quantity.parse` reads it."""
