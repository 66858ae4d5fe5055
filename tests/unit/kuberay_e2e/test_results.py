"""The results of KubeRay's suites: which outputs count as a test, and which results must be
explained.
"""

from pathlib import Path

import msgspec
import pytest

from kuberay_e2e import declarations, results
from kuberay_e2e.__main__ import CONTROLLERS, ON_NODE, SUITES
from kuberay_e2e.declarations import Declarations, SourcePatch
from kuberay_e2e.results import Outcome, SuiteRun, TestResult
from localcluster.errors import ClusterError


def an_event(action: str, test: str = "", **more: object) -> bytes:
    return msgspec.json.encode({"Action": action, "Test": test, **more})


def some_declarations(**fields: object) -> Declarations:
    return msgspec.convert(
        {"environment": [], "patches": [], "exemptions": []} | fields, Declarations
    )


def a_result(name: str, outcome: Outcome) -> TestResult:
    return TestResult(name=name, outcome=outcome, seconds=1.6)


def a_run(*found: TestResult, code: int = 0) -> SuiteRun:
    return SuiteRun(suite="e2e", code=code, results=list(found))


def test_a_test_with_subtests_is_no_result_of_its_own() -> None:
    lines = [
        an_event("run", "TestA"),
        an_event("run", "TestA/one"),
        an_event("output", "TestA/one", Output="boom\n"),
        an_event("fail", "TestA/one", Elapsed=2.5),
        an_event("fail", "TestA", Elapsed=3),
        an_event("fail"),
    ]
    (found,) = results.parse(lines)
    assert found == TestResult(name="TestA/one", outcome=Outcome.FAIL, seconds=2.5, output="boom")


def test_a_test_that_fails_although_its_subtests_pass_is_a_result() -> None:
    lines = [an_event("pass", "TestA/one"), an_event("fail", "TestA")]
    assert [(each.name, each.outcome) for each in results.parse(lines)] == [
        ("TestA/one", Outcome.PASS),
        ("TestA", Outcome.FAIL),
    ]


def test_a_test_that_never_ended_has_failed() -> None:
    lines = [an_event("run", "TestA"), b"panic: test timed out\n"]
    assert [each.outcome for each in results.parse(lines)] == [Outcome.FAIL]


@pytest.mark.parametrize("outcome", [Outcome.FAIL, Outcome.SKIP])
def test_a_test_that_does_not_pass_needs_an_exemption(outcome: Outcome) -> None:
    found = a_run(a_result("TestA", outcome))
    assert results.find_problems(found, some_declarations())
    exempt = some_declarations(exemptions=[{"test": "TestA", "reason": "no docker"}])
    assert results.find_problems(found, exempt) == []


def test_an_exemption_of_a_test_that_passes_is_a_problem() -> None:
    exempt = some_declarations(exemptions=[{"test": "TestA", "reason": "no docker"}])
    assert results.find_problems(a_run(a_result("TestA", Outcome.PASS)), exempt)


def test_a_run_without_tests_is_a_problem() -> None:
    assert results.find_problems(a_run(), some_declarations())


def test_a_failure_outside_the_tests_is_a_problem() -> None:
    lines = [an_event("pass", "TestA"), an_event("output", Output="panic\n"), an_event("fail")]
    found = a_run(*results.parse(lines), code=1)
    problems = results.find_problems(found, some_declarations())
    assert problems == ["e2e: go test ended with code 1"]


def test_the_exit_code_is_explained_by_an_exempt_test_that_fails() -> None:
    found = a_run(a_result("TestA", Outcome.FAIL), code=1)
    exempt = some_declarations(exemptions=[{"test": "TestA", "reason": "no docker"}])
    assert results.find_problems(found, exempt) == []


def test_the_table_has_results_reasons_and_patches() -> None:
    patch = {"file": "test/e2e/a.go", "find": "x", "replace": "y", "reason": "no registry"}
    declared = some_declarations(
        patches=[patch], exemptions=[{"test": "TestB", "reason": "no docker"}]
    )
    found = a_run(a_result("TestA/a_b", Outcome.PASS), a_result("TestB", Outcome.SKIP))
    assert results.format_table(found, declared) == (
        "| e2e | result | seconds |\n|---|---|---|\n"
        "| A: a b | pass | 2 |\n| B | skip: no docker | 2 |\n"
        "\n1 patched lines:\n\n- `test/e2e/a.go`: no registry\n"
    )


def a_spec(text: str, state: str, *, kind: str = "It", message: str = "") -> dict[str, object]:
    return {
        "ContainerHierarchyTexts": ["RayJob"],
        "LeafNodeType": kind,
        "LeafNodeText": text,
        "State": state,
        "RunTime": 1_600_000_000,
        "Failure": {"Message": message},
    }


def test_a_report_of_ginkgo_has_the_specs_that_were_to_run() -> None:
    specs = [
        a_spec("passes", "passed"),
        a_spec("fails", "panicked", message="boom"),
        a_spec("follows a failure", "skipped", message="an earlier spec failed"),
        a_spec("is not in the focus", "skipped"),
        a_spec("", "passed", kind="BeforeSuite"),
        a_spec("", "failed", kind="AfterSuite", message="no end"),
    ]
    found = results.parse_report(msgspec.json.encode([{"SpecReports": specs}]))
    assert [(each.name, each.outcome, each.output) for each in found] == [
        ("RayJob / passes", Outcome.PASS, ""),
        ("RayJob / fails", Outcome.FAIL, "boom"),
        ("RayJob / follows a failure", Outcome.SKIP, "an earlier spec failed"),
        ("RayJob / AfterSuite", Outcome.FAIL, "no end"),
    ]
    assert found[0].seconds == 1.6


def test_patches_of_the_shared_package_belong_to_each_suite_on_the_node() -> None:
    files = ["test/support/a.go", "test/e2e/a.go", "controllers/ray/a.go"]
    patches = [{"file": file, "find": "x", "replace": "y", "reason": "z"} for file in files]
    declared = some_declarations(patches=patches)
    assert [each.file for each in declared.list_patches("e2e")] == files[:2]
    assert [each.file for each in declared.list_patches("controllers/ray")] == files[2:]


def test_a_patch_replaces_its_text_in_all_its_files(tmp_path: Path) -> None:
    (tmp_path / "a.go").write_text("old, old")
    (tmp_path / "b.go").write_text("old")
    patch = SourcePatch(file="*.go", find="old", replace="new", reason="why", count=3)
    declarations.apply(tmp_path, patch)
    assert [path.read_text() for path in sorted(tmp_path.iterdir())] == ["new, new", "new"]


def test_a_patch_that_does_not_fit_names_its_file_and_text(tmp_path: Path) -> None:
    (tmp_path / "a.go").write_text("old")
    patch = SourcePatch(file="a.go", find="old", replace="new", reason="why", count=2)
    with pytest.raises(ClusterError, match=r"a\.go has 1 times the text 'old', expected 2"):
        declarations.apply(tmp_path, patch)
    assert (tmp_path / "a.go").read_text() == "old"


def test_each_patch_belongs_to_a_suite_and_changes_no_assertion() -> None:
    declared = declarations.load()
    assert declared.patches
    for patch in declared.patches:
        assert any(patch in declared.list_patches(suite) for suite in SUITES), patch.file
    for patch in declared.list_patches(CONTROLLERS):
        assert patch.file == f"{CONTROLLERS}/suite_test.go", "a file with specs is patched"
    for suite in ON_NODE:
        for patch in declared.list_patches(suite):
            assert "Expect" not in patch.find, "an assertion is patched"


def test_no_test_is_exempt_twice_and_each_exemption_has_a_reason() -> None:
    exemptions = declarations.load().exemptions
    assert exemptions
    assert len({exemption.test for exemption in exemptions}) == len(exemptions)
    assert all(exemption.reason.strip() for exemption in exemptions)
