"""`make mutants` changes existing code by texts that occur in it, and runs existing tests."""

from pathlib import Path

import pytest

from mutants import operators
from mutants.__main__ import DECIDING, ROOT, generated
from mutants.table import TABLE, Mutant


@pytest.mark.parametrize("place", DECIDING)
def test_the_deciding_code_is_there_with_its_tests_and_has_something_to_change(place: str) -> None:
    assert (ROOT / place).exists()
    assert [each for each in DECIDING[place] if not (ROOT / "tests" / each).exists()] == []
    assert next(generated(place), None) is not None


@pytest.mark.parametrize("mutant", TABLE, ids=lambda each: each.test.rpartition("::")[2])
def test_a_written_mutant_changes_one_place_of_each_file_and_names_a_test(mutant: Mutant) -> None:
    assert [
        each for each in mutant.edits if (ROOT / each.file).read_text().count(each.old) != 1
    ] == []
    assert len({each.file.partition("/src/")[0] for each in mutant.edits}) == 1
    file, _, name = mutant.test.partition("::")
    assert f"def {name.partition('[')[0]}(" in Path(ROOT / "tests" / file).read_text()


@pytest.mark.parametrize(
    ("line", "mutant"),
    [
        ('DELETE = "FailedDeleteHeadPod"', "DELETE = ('FailedDeleteHeadPodX')"),
        ('SHELL = "ENABLE_LOGIN_SHELL"', "SHELL = ('ENABLE_LOGIN_SHELLX')"),
        ("made = AStatus(time=now)", "made = AStatus(time=(AStatus().time))"),
    ],
)
def test_reasons_settings_and_fields_of_a_status_are_drawn(line: str, mutant: str) -> None:
    assert [each.source for each in operators.generate_mutants(line)] == [mutant]


@pytest.mark.parametrize(
    "line", ['kind = "Pod"', 'text = f"{a} FailedDelete"', '"""Do TwoThings."""', 'x = "UTF"']
)
def test_other_texts_are_not_drawn(line: str) -> None:
    assert list(operators.generate_mutants(line)) == []
