"""The files with the JSON schemas of events and of outputs."""

import inspect
from typing import Any, cast

import msgspec

from common.api.opaque import Json


def format_schema(schema: Json) -> str:
    """Return the content of the file of a JSON schema.

    The descriptions are docstrings. Their indentation is removed, as Python does since 3.13.
    """
    return msgspec.json.format(msgspec.json.encode(_clean(schema)), indent=2).decode() + "\n"


def _clean(part: Any) -> Any:
    if isinstance(part, list):
        return [_clean(item) for item in cast("list[Any]", part)]
    if not isinstance(part, dict):
        return part
    return {
        key: inspect.cleandoc(value)
        if key == "description" and isinstance(value, str)
        else _clean(value)
        for key, value in cast("Json", part).items()
    }
