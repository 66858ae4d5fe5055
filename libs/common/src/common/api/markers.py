"""Properties of a field of our API structs beyond its Python type: how Go writes it, and what the CRD's schema demands of it.

Stands in `Annotated[type, Api(...)]`; msgspec passes over it, the spec hash and the CRD generator read it.
"""

import msgspec


class Api(msgspec.Struct, frozen=True, kw_only=True):
    """One field's extra facts."""

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
    keys: tuple[str, ...] = ()
    """The list is a map by these fields."""
    cel: tuple[tuple[str, str], ...] = ()
    """Pairs of rule and message."""
