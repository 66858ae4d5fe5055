"""Each number of a form is held to its schema: fields do not change without a number, and a minor only adds.

`tests/golden/forms` holds the schema of every number that there ever was; none of its files is rewritten.
"""

from pathlib import Path
from typing import Any, Final, cast

import msgspec
import pytest

from cluster_reconciler.wiring import KINDS as CLUSTER_KINDS
from common.api import core
from common.bus import forms, messages
from common.bus.forms import MessageForm
from common.bus.messages import Synced
from common.ray import goal_revision, revision
from common.upgrade import traffic_record
from common.upgrade.receipt import Receipt
from common.upgrade.sources import KINDS as TRAFFIC_KINDS
from service_reconciler.promotion.receipt import PartialReceipt
from service_reconciler.wiring import KINDS as SERVICE_KINDS
from support.golden import Golden
from watcher import publish_filter

FORMS: Final[dict[str, tuple[Any, str]]] = {
    "Pod": (core.Pod, forms.get_form("Pod")),
    "EndpointSlice": (core.EndpointSlice, forms.get_form("EndpointSlice")),
    "Job": (core.Job, forms.get_form("Job")),
    "Synced": (Synced, forms.get_form("Synced")),
    "Quarantined": (messages.QuarantineNotice, forms.get_form("Quarantined")),
    # What is stored in Kubernetes outlives every build and is never of another major.
    "traffic-record": (traffic_record.Record, "1.4"),
    "serve-config-revision": (revision.RecordedConfig, "1.0"),
    "goal-revision": (goal_revision.RevisionData, "1.0"),
    "upgrade-so-far": (PartialReceipt, "1.1"),
    "upgrade-receipt": (Receipt, "1.1"),
}
"""By name: the type, and the current number of its form."""
GOLDEN: Final = Path(__file__).parents[3] / "golden" / "forms"

Schema = dict[str, Any]


def schema_of(kind: Any) -> Schema:
    """Return the definitions of a type by name, without their descriptions."""
    _, found = msgspec.json.schema_components([kind], ref_template="{name}")
    return {name: _wordless(each) for name, each in found.items()}


def _wordless(value: Any) -> Any:
    if isinstance(value, list):
        return [_wordless(each) for each in cast("list[Any]", value)]
    if isinstance(value, dict):
        parts = cast("dict[str, Any]", value)
        return {
            name: _wordless(each)
            for name, each in parts.items()
            if name not in {"title", "description"}
        }
    return value


def by_path(schema: Schema) -> Schema:
    """Return the definitions under their paths from the root: class names are no part of a form."""
    found: Schema = {}

    def expand(value: Any, path: str, above: dict[str, str]) -> Any:
        if isinstance(value, list):
            parts = cast("list[Any]", value)
            return [expand(part, f"{path}[{at}]", above) for at, part in enumerate(parts)]
        if not isinstance(value, dict):
            return value
        fields = cast("dict[str, Any]", value)
        if isinstance(name := fields.get("$ref"), str):
            if name not in above:
                found[path] = expand(schema[name], path, {**above, name: path})
            return {"$ref": above.get(name, path)}
        return {field: expand(part, f"{path}.{field}", above) for field, part in fields.items()}

    text = msgspec.json.encode(schema).decode()
    (root,) = (name for name in schema if f'"$ref":"{name}"' not in text)
    expand({"$ref": root}, "root", {})
    return found


def changed(before: Schema, after: Schema) -> list[str]:
    """Return the parts of one schema that a reader of the other would miss or misinterpret."""
    found = [f"{name} is gone" for name in before.keys() - after.keys()]
    for name in before.keys() & after.keys():
        old, new = dict(before[name]), dict(after[name])
        fields = (old.pop("properties", {}), new.pop("properties", {}))
        needed = set(new.pop("required", [])) - set(old.pop("required", []))
        found += [f"{name}.{field} must now be there" for field in needed]
        found += [
            f"{name}.{field} differs"
            for field, was in fields[0].items()
            if fields[1].get(field) != was
        ]
        found += [f"{name} differs"] * (old != new)
    return sorted(found)


@pytest.mark.parametrize("name", FORMS)
def test_fields_do_not_change_without_another_number(name: str, golden: Golden) -> None:
    kind, form = FORMS[name]
    held, schema = GOLDEN / f"{name}-{form}.json", schema_of(kind)
    if not held.exists():
        encoded = msgspec.json.encode(schema, order="sorted")
        golden.check(f"forms/{held.name}", msgspec.json.format(encoded, indent=1).decode() + "\n")
    assert by_path(msgspec.json.decode(held.read_bytes())) == by_path(schema), (
        f"the fields of {name} differ from form {form}: give them the next number "
        "(in common.bus.forms, or here), then run pytest --update-golden, which adds its file"
    )


@pytest.mark.parametrize("name", FORMS)
def test_a_minor_only_adds_fields_that_need_not_be_there(name: str) -> None:
    kind, form = FORMS[name]
    major = form.partition(".")[0]
    for path in sorted(GOLDEN.glob(f"{name}-{major}.*.json")):
        before = by_path(msgspec.json.decode(path.read_bytes()))
        assert changed(before, by_path(schema_of(kind))) == [], path.name


def test_a_class_name_is_no_part_of_a_form() -> None:
    before: Schema = {"A": {"properties": {"b": {"$ref": "B"}}}, "B": {"properties": {"a": {}}}}
    renamed: Schema = {"X": {"properties": {"b": {"$ref": "Y"}}}, "Y": {"properties": {"a": {}}}}
    assert by_path(before) == by_path(renamed)
    assert by_path(before) != by_path({**renamed, "Y": {"properties": {"c": {}}}})


def test_what_is_stored_in_kubernetes_keeps_its_major() -> None:
    assert {
        form.partition(".")[0] for name, (_, form) in FORMS.items() if name not in forms.FORMS
    } == {"1"}
    assert traffic_record.Record().version == traffic_record.MAJOR == 1


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (
            {
                "P": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "b": {}},
                    "required": ["a"],
                }
            },
            [],
        ),
        ({"P": {"type": "object", "properties": {"a": {"type": "string"}}}, "Q": {}}, []),
        ({"P": {"type": "object", "properties": {}, "required": []}}, ["P.a differs"]),
        (
            {"P": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}},
            ["P.a differs"],
        ),
        (
            {
                "P": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}, "b": {}},
                    "required": ["a", "b"],
                }
            },
            ["P.b must now be there"],
        ),
        ({"P": {"enum": ["a"]}}, ["P differs", "P.a differs"]),
        ({}, ["P is gone"]),
    ],
)
def test_a_change_that_is_no_addition_is_found(after: Schema, expected: list[str]) -> None:
    before = {"P": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}}

    assert changed(before, after) == expected


def test_whatever_is_watched_or_read_has_a_form() -> None:
    kinds = {
        resource.kind
        for resource in (*(kind for kind, _ in publish_filter.REQUIRED), *publish_filter.OPTIONAL)
    }

    assert kinds <= forms.FORMS.keys()
    assert CLUSTER_KINDS.keys() | SERVICE_KINDS.keys() | TRAFFIC_KINDS.keys() <= kinds
    assert publish_filter.VIEWS.keys() <= FORMS.keys(), (
        "each view that is published has its schema held here"
    )


def test_a_service_lists_the_forms_that_it_would_read() -> None:
    assert forms.explain_unreadable_marker(forms.list_forms(), forms.FIRST_KINDS) is None
    assert forms.explain_unreadable_marker({}, forms.FIRST_KINDS) is None


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("2.3", True),
        ("2.4", True),
        ("2.10", True),
        ("2.2", False),
        ("1.9", False),
        ("3.0", False),
        ("1", False),
        ("", False),
    ],
)
def test_own_major_and_no_older_minor(
    text: str, *, is_read: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(forms.FORMS, "Service", MessageForm(2, 3))

    assert (forms.explain_unreadable("Service", text) is None) is is_read


@pytest.mark.parametrize("kind", ["Pod", "Job"])
def test_pods_and_jobs_of_the_release_before_ray_jobs_are_read(kind: str) -> None:
    assert forms.get_form(kind) == "1.1"
    assert forms.explain_unreadable(kind, "1.0") is None


def test_no_decision_follows_a_watcher_that_knows_no_trees_of_ray_jobs() -> None:
    assert forms.explain_unreadable("Synced", "") is not None
    assert forms.explain_unreadable_marker({}, ["RayJob"]) is not None


def test_a_refusal_names_what_was_found_what_was_expected_and_the_remedy() -> None:
    assert forms.explain_unreadable("Pod", "2.0") == (
        "the watcher publishes a form that this build does not read: Pod 2.0, expected 1.0 or a later 1.x; "
        "run the watcher and this service in one version"
    )
