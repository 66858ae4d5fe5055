"""Two versions of a CRD: each change that may concern an object has a kind and a text."""

from typing import Any

import pytest

from crd_generator import comparison, manifest
from crd_generator.comparison import ChangeKind, FieldChange
from support.tables import cases

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NUMBER: Schema = {"type": "integer"}


def definition(fields: Schema, *, stored: tuple[str, ...] = ("v1",)) -> Schema:
    """Return a CRD with these fields of `spec`."""
    spec = {"type": "object", "properties": fields}
    schema = {"type": "object", "properties": {"spec": spec}}
    version = {"name": "v1", "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {"spec": {"versions": [version]}, "status": {"storedVersions": list(stored)}}


def a_list(**fields: Schema) -> Schema:
    return {"type": "array", "items": {"type": "object", "properties": fields}}


def an_object(*required: str, **fields: Schema) -> Schema:
    return {"type": "object", "properties": fields, "required": list(required)}


def change(kind: ChangeKind, path: str, text: str = "") -> FieldChange:
    return FieldChange(path=path, kind=kind, text=text)


@cases(
    ("before", "after", "expected"),
    {
        "a new field": ({}, {"a": TEXT}, change(ChangeKind.ADDED, "spec.a")),
        "a removed field": ({"a": TEXT}, {}, change(ChangeKind.REMOVED, "spec.a")),
        "a removed group": (
            {"a": an_object(b=TEXT, c=TEXT)},
            {},
            change(ChangeKind.REMOVED, "spec.a"),
        ),
        "a removed field of a list": (
            {"a": a_list(b=TEXT, c=TEXT)},
            {"a": a_list(b=TEXT)},
            change(ChangeKind.REMOVED, "spec.a.c"),
        ),
        "a field of a map": (
            {"a": {"type": "object", "additionalProperties": an_object(b=TEXT)}},
            {"a": {"type": "object", "additionalProperties": an_object()}},
            change(ChangeKind.REMOVED, "spec.a.b"),
        ),
        "another type": (
            {"a": TEXT},
            {"a": NUMBER},
            change(ChangeKind.TYPE, "spec.a", "string, now integer"),
        ),
        "another type of the elements": (
            {"a": {"type": "array", "items": TEXT}},
            {"a": {"type": "array", "items": NUMBER}},
            change(ChangeKind.TYPE, "spec.a", "array of string, now array of integer"),
        ),
        "a number that may be a text": (
            {"a": {"x-kubernetes-int-or-string": True}},
            {"a": NUMBER},
            change(ChangeKind.TYPE, "spec.a", "integer or string, now integer"),
        ),
        "a field that becomes required": (
            {"a": an_object(b=TEXT)},
            {"a": an_object("b", b=TEXT)},
            change(ChangeKind.REQUIRED, "spec.a.b", "now required"),
        ),
        "fewer values": (
            {"a": TEXT | {"enum": ["x", "y"]}},
            {"a": TEXT | {"enum": ["x", "z"]}},
            change(ChangeKind.RULE, "spec.a", "no longer y"),
        ),
        "values where all were allowed": (
            {"a": TEXT},
            {"a": TEXT | {"enum": ["x", "y"]}},
            change(ChangeKind.RULE, "spec.a", "now one of x, y"),
        ),
        "a lower maximum": (
            {"a": NUMBER | {"maximum": 9}},
            {"a": NUMBER | {"maximum": 8}},
            change(ChangeKind.RULE, "spec.a", "maximum 9, now 8"),
        ),
        "a minimum where there was none": (
            {"a": NUMBER},
            {"a": NUMBER | {"minimum": 0}},
            change(ChangeKind.RULE, "spec.a", "minimum none, now 0"),
        ),
        "another pattern": (
            {"a": TEXT},
            {"a": TEXT | {"pattern": "^x$"}},
            change(ChangeKind.RULE, "spec.a", "now with the pattern ^x$"),
        ),
        "a rule for the elements of a list": (
            {"a": {"type": "array", "items": TEXT}},
            {"a": {"type": "array", "items": TEXT | {"maxLength": 3}}},
            change(ChangeKind.RULE, "spec.a", "maxLength none, now 3"),
        ),
        "a new rule in CEL": (
            {"a": TEXT},
            {"a": TEXT | {"x-kubernetes-validations": [{"rule": "self != 'x'"}]}},
            change(ChangeKind.RULE, "spec.a", "now with the rule: self != 'x'"),
        ),
    },
)
def test_a_change_is_found(
    before: dict[str, Schema], after: dict[str, Schema], expected: FieldChange
) -> None:
    assert comparison.compare(definition(before), definition(after)) == [expected]


@cases(
    ("before", "after"),
    {
        "more values": ({"a": TEXT | {"enum": ["x"]}}, {"a": TEXT | {"enum": ["x", "y"]}}),
        "a higher maximum": ({"a": NUMBER | {"maximum": 8}}, {"a": NUMBER | {"maximum": 9}}),
        "no rule any more": ({"a": TEXT | {"pattern": "^x$"}}, {"a": TEXT}),
        "an optional field": ({"a": an_object("b", b=TEXT)}, {"a": an_object(b=TEXT)}),
        "a description": ({"a": TEXT}, {"a": TEXT | {"description": "A text."}}),
        "a field of a pod template": (
            {"template": an_object(spec=an_object(x=TEXT))},
            {"template": an_object(spec=an_object())},
        ),
        "a field of an object that keeps what it does not know": (
            {"a": an_object(b=TEXT)},
            {"a": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
        ),
    },
)
def test_a_change_that_concerns_no_object_is_not_reported(
    before: dict[str, Schema], after: dict[str, Schema]
) -> None:
    assert comparison.compare(definition(before), definition(after)) == []


@pytest.mark.parametrize("file", manifest.list_definitions())
def test_a_crd_does_not_differ_from_itself(file: str) -> None:
    whole = manifest.list_definitions()[file]
    assert comparison.compare(whole, whole) == []
    assert comparison.find_lost_versions(whole, whole) == []


def test_a_version_with_objects_that_goes_away_is_found() -> None:
    before = definition({}, stored=("v1alpha1", "v1"))
    assert comparison.find_lost_versions(before, definition({})) == ["v1alpha1"]


@cases(
    ("path", "is_set", "is_missing"),
    {
        "a field": ("spec.a", True, False),
        "an absent field": ("spec.b", False, True),
        "a field of one element": ("spec.groups.name", True, True),
        "a field below an absent one": ("spec.b.c", False, False),
        "a field below a text": ("spec.a.c", False, False),
    },
)
def test_objects_have_fields(path: str, *, is_set: bool, is_missing: bool) -> None:
    document = {"spec": {"a": "x", "groups": [{"name": "g"}, {}]}}
    assert comparison.is_set(document, path) is is_set
    assert comparison.is_missing(document, path) is is_missing
