"""The JSON schemas and the pages in docs/events, generated from the types of the events."""

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from common import event_catalogue
from common.api.opaque import Json
from common.bus.cloud_events import CloudEvent, Event, EventFamily
from generators.docs.schema_file import format_schema
from support.upgrade_events import TRACE

BEGIN: Final = "<!-- generated from the types: begin -->"
END: Final = "<!-- generated from the types: end -->"
SHARED_FIELDS: Final = frozenset({"upgrade", "attempt"})
"""Fields of all events of a family; the top of its page describes them."""


def schema(kind: str) -> Json:
    """Return the JSON schema of an event of a kind."""
    made: dict[str, Any] = msgspec.json.schema(CloudEvent[event_catalogue.KINDS[kind]])
    parts: dict[str, Any] = made["$defs"]
    whole: dict[str, Any] = parts.pop(made["$ref"].removeprefix("#/$defs/"))
    whole["properties"]["type"] = {"const": _type_of(kind)}
    whole["required"] = [field for field in whole["properties"] if field != "traceparent"]
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": _type_of(kind)}
    return (
        head
        | {"description": _when(kind)}
        | {key: value for key, value in whole.items() if key not in {"title", "description"}}
        | {"$defs": parts}
    )


def schema_text(kind: str) -> str:
    """Return the content of the file of a schema."""
    return format_schema(schema(kind))


def page(text: str, family: EventFamily[Any], examples: Sequence[Event]) -> str:
    """Return a page with its generated part updated from the types."""
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    sections = "".join(_section(family, example) for example in examples)
    return f"{before}{BEGIN}\n\n{_table(family)}\n{sections}{END}{after}"


def _table(family: EventFamily[Any]) -> str:
    lines = ["| type | when |", "|---|---|"]
    lines += [f"| [`{_type_of(kind)}`](#{kind}) | {_when(kind)} |" for kind in family.kinds]
    return "\n".join(lines) + "\n"


def _section(family: EventFamily[Any], event: Event) -> str:
    kind = event.data.kind
    example = msgspec.json.format(family.encode(event, trace=TRACE).payload, indent=2).decode()
    fields = schema(kind)["$defs"][type(event.data).__name__]["properties"]
    rows = [
        f"| `data.{name}` | {_describe(field)} |"
        for name, field in fields.items()
        if name not in SHARED_FIELDS
    ]
    table = "\n".join(["| field | |", "|---|---|", *rows]) + "\n\n" if rows else ""
    return (
        f"## {kind}\n\n{_when(kind)}\nSchema: [{kind}.json]({kind}.json).\n\n"
        f"{table}```json\n{example}\n```\n\n"
    )


def _describe(field: dict[str, Any]) -> str:
    """Return the description of a field; for a field that may be null, the description is in its
    first variant.
    """
    variants: list[dict[str, Any]] = [field, *field.get("anyOf", [])]
    return next((text for variant in variants if (text := variant.get("description"))), "")


def _type_of(kind: str) -> str:
    family = next(family for family in event_catalogue.FAMILIES if kind in family.kinds)
    return family.type_of(kind)


def _when(kind: str) -> str:
    return (event_catalogue.KINDS[kind].__doc__ or "").partition("\n")[0]
