"""Our dashboards are what Grafana's own generated types can hold: no unknown field, no value of another type.

Grafana itself cannot be had where these tests run; grafana-foundation-sdk is made by Grafana from its schema.
"""

import json
import types
from collections.abc import Iterator
from enum import Enum
from functools import cache
from typing import Any, Literal, Union, cast, get_args, get_origin, get_type_hints

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from generators.monitoring.dashboards import DASHBOARDS
from generators.monitoring.grafana import render


def read(name: str) -> dict[str, Any]:
    return json.loads(render(DASHBOARDS[name]))


def parsed(name: str) -> Dashboard:
    register_default_plugins()
    return Dashboard.from_json(read(name))


def lost(have: object, kept: object, where: str = "") -> Iterator[str]:
    """Return the parts of the file that were lost or changed when it was read."""
    match have, kept:
        case dict(), dict():
            known = cast("dict[str, object]", kept)
            for key, each in cast("dict[str, object]", have).items():
                yield from (
                    lost(each, known[key], f"{where}.{key}")
                    if key in known
                    else (f"{where}.{key} is unknown",)
                )
        case list(), list():
            pairs = zip(cast("list[object]", have), cast("list[object]", kept), strict=True)
            for index, (each, other) in enumerate(pairs):
                yield from lost(each, other, f"{where}[{index}]")
        case _:
            if have != kept:
                yield f"{where} is {have!r}, read as {kept!r}"


def fits(value: object, hint: Any) -> bool:
    """Return whether a value has a type, as far as the schema defines the type."""
    origin, inner = get_origin(hint) or hint, get_args(hint)
    match origin:
        case _ if origin in {Union, types.UnionType}:
            return any(fits(value, each) for each in inner)
        case _ if origin is Literal:
            return value in inner
        case _ if origin is list:
            return isinstance(value, list) and all(
                fits(each, inner[0]) for each in cast("list[object]", value)
            )
        case type() if issubclass(origin, Enum):
            return value in [each.value for each in origin]
        case _:
            return origin is Any or isinstance(value, (int, float) if origin is float else origin)


@cache
def hints_of(kind: type) -> dict[str, Any]:
    """Return the types of the schema's fields; the package has them as text, which takes time to
    evaluate.
    """
    return get_type_hints(kind)


def odd(node: object, where: str = "") -> Iterator[str]:
    """Return the values whose type is not the one in the schema."""
    if isinstance(node, list):
        for index, each in enumerate(cast("list[object]", node)):
            yield from odd(each, f"{where}[{index}]")
    elif type(node).__module__.startswith("grafana_foundation_sdk"):
        for name, hint in hints_of(type(node)).items():
            value: object = getattr(node, name)
            if not fits(value, hint):
                yield f"{where}.{name} is {value!r}, not {hint}"
            yield from odd(value, f"{where}.{name}")


@pytest.mark.parametrize("name", DASHBOARDS)
def test_grafana_knows_every_field(name: str) -> None:
    assert (
        list(lost(read(name), json.loads(JSONEncoder(sort_keys=True).encode(parsed(name))))) == []
    )


@pytest.mark.long
@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_value_has_the_type_that_the_schema_gives_it(name: str) -> None:
    assert list(odd(parsed(name))) == []


def test_a_wrong_dashboard_is_found_out() -> None:
    register_default_plugins()
    body = {
        "title": 7,
        "graphTooltip": 9,
        "panels": [{"type": "stat", "title": "x", "colour": "red"}],
    }
    read_back = Dashboard.from_json(body)
    assert list(lost(body, json.loads(JSONEncoder(sort_keys=True).encode(read_back)))) == [
        ".panels[0].colour is unknown"
    ]
    assert [each.split(" ")[0] for each in odd(read_back)] == [".title", ".graph_tooltip"]


@pytest.mark.parametrize("name", DASHBOARDS)
def test_panels_have_ids_of_their_own_and_do_not_overlap(name: str) -> None:
    panels = read(name)["panels"]
    assert len({each["id"] for each in panels}) == len(panels)
    cells = [
        (each["gridPos"]["x"] + dx, each["gridPos"]["y"] + dy)
        for each in panels
        for dx in range(each["gridPos"]["w"])
        for dy in range(each["gridPos"]["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
