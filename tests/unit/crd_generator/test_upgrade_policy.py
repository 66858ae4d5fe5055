"""The CRD of UpgradePolicy has the fields of its reader, and validation rules whose cost the API
server can bound.
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import pytest
import yaml

from common.upgrade import policy as upgrade_policy
from common.upgrade.policy import PolicyError
from crd_generator import upgrade_policy as generator
from crd_generator.schema import Schema
from support.builders.upgrade_policy import CAREFUL
from support.manifests import DEPLOY

SPEC = generator.spec()


def objects(
    schema: Schema, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], set[str]]]:
    yield path, set(schema.get("properties", {}))
    for name, field in schema.get("properties", {}).items():
        if field["type"] == "object":
            yield from objects(field, (*path, name))
        elif field["type"] == "array" and field["items"]["type"] == "object":
            yield from objects(field["items"], (*path, name, 2))


@pytest.mark.parametrize(
    ("path", "known"),
    [pytest.param(*each, id=".".join(map(str, each[0])) or "spec") for each in objects(SPEC)],
)
def test_the_schema_has_the_fields_that_the_reader_knows(
    path: tuple[str | int, ...], known: set[str]
) -> None:
    spec: Any = deepcopy(CAREFUL)
    part = spec
    for each, following in zip(path, (*path[1:], None), strict=False):
        is_item = isinstance(each, int)
        part = (
            next((item for item in part if following in item), part[each])
            if is_item
            else part[each]
        )
    part["unknown"] = 1
    with pytest.raises(PolicyError) as refused:
        upgrade_policy.read("p", spec)
    listed = refused.value.problems[0].partition("these are: ")[2]
    assert set(filter(None, listed.split(", "))) == known


def test_it_is_what_kubectl_applies() -> None:
    applied = yaml.safe_load((DEPLOY / "crds" / generator.FILE).read_text())
    assert applied == generator.definition()
    names = applied["spec"]["names"]
    assert (applied["metadata"]["name"], applied["spec"]["scope"], names["shortNames"]) == (
        "upgradepolicies.raybus.io",
        "Namespaced",
        ["up"],
    )


def every(schema: Schema) -> Iterator[Schema]:
    yield schema
    for inner in (
        *schema.get("properties", {}).values(),
        *([schema["items"]] if "items" in schema else []),
    ):
        yield from every(inner)


def test_every_list_and_text_is_bounded_and_every_field_described() -> None:
    for each in every(SPEC):
        if each["type"] == "array":
            assert each["maxItems"] <= 20
        if each["type"] == "string":
            assert "enum" in each or each["maxLength"] <= 1000
        for field in each.get("properties", {}).values():
            assert field["description"].endswith((".", "%).", ")."))


def test_no_repetition_in_a_pattern_exceeds_what_go_takes() -> None:
    for each in every(SPEC):
        for part in each.get("pattern", "").split("{")[1:]:
            assert int(part.partition("}")[0].split(",")[-1]) <= 1000
