"""docs/reference matches the code, and docs/troubleshooting.md mentions every reported problem.

`make golden` rewrites docs/reference.
"""

import re
from collections.abc import Callable

import msgspec
import pytest

from cluster_reconciler.settings import OperatorFile
from generators.docs import (
    annotations,
    conditions,
    configuration,
    field_texts,
    fields,
    outputs,
    packages,
    sizing,
    upgrade_policy,
)
from raybus_cli.show.cause_texts import PAGE, Code
from support.golden import Golden
from support.manifests import ROOT
from support.tables import cases

PAGES: dict[str, Callable[[], str]] = {
    "fields": fields.page,
    "annotations": annotations.page,
    "conditions": conditions.page,
    "configuration": configuration.page,
    "outputs": outputs.page,
    "upgrade-policy": upgrade_policy.page,
}
TROUBLESHOOTING = ROOT / "docs" / "troubleshooting.md"


@pytest.mark.parametrize("name", PAGES)
def test_the_page_matches_the_code(name: str, request: pytest.FixtureRequest) -> None:
    pages = Golden(
        root=ROOT / "docs" / "reference", update=bool(request.config.getoption("--update-golden"))
    )
    pages.check(f"{name}.md", PAGES[name]())


@pytest.mark.parametrize("name", outputs.OUTPUTS)
def test_the_schema_of_an_output_is_that_of_its_type(
    name: str, request: pytest.FixtureRequest
) -> None:
    files = Golden(
        root=ROOT / "docs/reference/outputs",
        update=bool(request.config.getoption("--update-golden")),
    )
    files.check(f"{name}.json", outputs.text(name))


def test_no_schema_is_of_an_output_that_is_gone() -> None:
    assert {each.stem for each in (ROOT / "docs/reference/outputs").iterdir()} == set(
        outputs.OUTPUTS
    )


def test_the_page_of_sizes_matches_what_the_code_computes(request: pytest.FixtureRequest) -> None:
    pages = Golden(
        root=ROOT / "docs" / "how-to", update=bool(request.config.getoption("--update-golden"))
    )
    plan = (ROOT / "tests" / "golden" / "cli" / "plan-new-cluster.txt").read_text()
    page = (pages.root / "sizing.md").read_text()
    page = _with(page, sizing.BEGIN, sizing.END, sizing.table())
    pages.check(
        "sizing.md", _with(page, sizing.RECORDED, sizing.RECORDED_END, sizing.recorded(plan))
    )


def _with(page: str, begin: str, end: str, text: str) -> str:
    before, rest = page.split(begin)
    return before + text + rest.split(end)[1]


def test_the_picture_of_packages_matches_the_imports(request: pytest.FixtureRequest) -> None:
    pages = Golden(root=ROOT / "docs", update=bool(request.config.getoption("--update-golden")))
    page = (pages.root / "architecture.md").read_text()
    pages.check("architecture.md", _with(page, packages.BEGIN, packages.END, packages.picture()))


@cases(
    ("imports", "rows"),
    {
        "a chain": ({"a": "b", "b": ""}, [["a → b"], ["b"]]),
        "b implies c": ({"a": "bc", "b": "c", "c": ""}, [["a → b"], ["b → c"], ["c"]]),
        "two of a row": ({"a": "c", "b": "c", "c": ""}, [["a → c", "b → c"], ["c"]]),
        "a cycle is one row": ({"a": "b", "b": "ac", "c": ""}, [["a → b", "b → a, c"], ["c"]]),
        "c alone": ({"a": "b", "b": "", "c": ""}, [["a → b", "c"], ["b"]]),
    },
)
def test_a_package_is_above_what_it_imports(imports: dict[str, str], rows: list[list[str]]) -> None:
    picture = packages.draw(
        {name: set(targets) for name, targets in imports.items()}, dict.fromkeys(imports, "libs")
    )
    drawn = picture.split("```")[1].removeprefix("text\n")
    assert [
        [" ".join(line.split()[1:]) for line in row.strip("\n").splitlines()]
        for row in re.split("\n +─+\n", drawn)
    ] == rows


def test_every_field_has_a_meaning_and_every_meaning_a_field() -> None:
    assert fields.paths() == set(field_texts.TEXTS)


def test_every_annotation_label_and_finalizer_of_the_code_is_described_once() -> None:
    described = annotations.described()
    assert sorted(described) == sorted(annotations.named())


def test_every_condition_and_every_reason_has_a_meaning() -> None:
    known = conditions.SERVICES | conditions.CLUSTERS
    assert set(known) == conditions.types()
    named = {reason for each in known.values() for reason in each.reasons}
    assert conditions.reasons() - named == set()


def test_every_event_has_a_meaning() -> None:
    assert [
        reason for reason in sorted(conditions.events()) if not conditions.is_explained(reason)
    ] == []
    assert {*conditions.NORMAL, *conditions.WARNINGS} - conditions.events() == set()


def test_every_variable_that_a_service_reads_is_described() -> None:
    assert set(configuration.variables()) == set(configuration.TEXTS)
    assert configuration.named() <= set(configuration.TEXTS)


def test_every_field_of_the_operators_file_is_described() -> None:
    assert configuration.fields() == {
        field.encode_name for field in msgspec.structs.fields(OperatorFile)
    }


def test_every_trouble_that_the_services_name_is_on_the_page_for_it() -> None:
    page = TROUBLESHOOTING.read_text()
    assert sorted(name for name in conditions.trouble() if f"`{name}`" not in page) == []


def test_the_troubleshooting_page_names_what_the_services_report() -> None:
    first_cells = re.findall(r"^\| (`[^|]*`) \|", TROUBLESHOOTING.read_text(), re.MULTILINE)
    names = {name for cell in first_cells for name in re.findall(r"`([A-Z]\w+)`", cell)}
    assert names - conditions.events() - conditions.reasons() - conditions.types() == set()


@pytest.mark.parametrize("code", Code)
def test_every_anchor_that_explain_prints_is_a_section_with_symptom_cause_and_remedy(
    code: Code,
) -> None:
    sections = re.findall(r"^### (\S+)\n\n((?:.+\n)+)", TROUBLESHOOTING.read_text(), re.MULTILINE)
    (text,) = [text for heading, text in sections if f"{PAGE}#{heading.lower()}" == code.anchor]
    assert re.findall(r"^- \*\*(\w+)\*\*: ", text, re.MULTILINE) == ["Symptom", "Cause", "Remedy"]
    assert 3 <= text.count("\n") <= 8
    assert ROOT / PAGE == TROUBLESHOOTING
