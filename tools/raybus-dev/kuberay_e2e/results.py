"""Reads the results of tests from `go test -json` or Ginkgo, and formats them. Does no I/O."""

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from kuberay_e2e.declarations import Declarations, count_lines

_ANNOUNCEMENTS: Final = ("=== ", "--- ")


class Outcome(StrEnum):
    """The result of a test, in Go's words."""

    PASS = "pass"  # noqa: S105 - not a password
    FAIL = "fail"
    SKIP = "skip"


class TestResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one test."""

    __test__ = False

    name: str
    outcome: Outcome
    seconds: float
    output: str = ""
    """The output of the test; empty if it passed."""


class SuiteRun(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a suite, and how its `go test` ended."""

    suite: str
    code: int
    """Exit code of `go test`; negative if a signal ended it."""
    results: list[TestResult]


class _Event(msgspec.Struct, frozen=True, rename="pascal"):
    action: str
    test: str = ""
    elapsed: float = 0.0
    output: str = ""


def parse(lines: Iterable[bytes]) -> list[TestResult]:
    """Return the results from the lines of `go test -json`, in the order in which the tests ended.

    Tests with subtests are left out, unless they failed and no subtest did. A test that has begun
    and not ended counts as failed, because its process ended first. Lines that are not JSON, such
    as errors of the compiler, are ignored.
    """
    outputs: dict[str, list[str]] = {}
    ended: dict[str, _Event] = {}
    for line in lines:
        event = parse_event(line)
        if event is None or not event.test:
            continue
        outputs.setdefault(event.test, [])
        if event.action == "output":
            outputs[event.test].append(event.output)
        elif event.action in set(Outcome):
            ended[event.test] = event
    names = [*ended, *(name for name in outputs if name not in ended)]
    results = {name: _build_result(name, ended.get(name), outputs[name]) for name in names}
    return [result for result in results.values() if _is_shown(result, results.values())]


class _Failure(msgspec.Struct, frozen=True, rename="pascal"):
    message: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="pascal"):
    leaf_node_type: str
    leaf_node_text: str
    state: str
    container_hierarchy_texts: list[str] | None = None
    run_time: int = 0
    failure: _Failure = _Failure()


class _Report(msgspec.Struct, frozen=True, rename="pascal"):
    spec_reports: list[_Spec] | None = None


_NANOSECONDS: Final = 1_000_000_000
_STATES: Final = {"passed": Outcome.PASS, "skipped": Outcome.SKIP, "pending": Outcome.SKIP}


def parse_report(report: bytes) -> list[TestResult]:
    """Return the results of the specs in a JSON report of Ginkgo.

    A spec that is skipped without a message is left out, because the run did not select it. A step
    before or after the specs is a result only if it failed.
    """
    suites = msgspec.json.decode(report, type=list[_Report])
    specs = [spec for suite in suites for spec in suite.spec_reports or ()]
    return [_build_spec_result(spec) for spec in specs if _has_run(spec)]


def _has_run(spec: _Spec) -> bool:
    if spec.leaf_node_type != "It":
        return spec.state != "passed"
    return spec.state != "skipped" or bool(spec.failure.message)


def _build_spec_result(spec: _Spec) -> TestResult:
    texts = [*(spec.container_hierarchy_texts or ()), spec.leaf_node_text or spec.leaf_node_type]
    return TestResult(
        name=" / ".join(texts),
        outcome=_STATES.get(spec.state, Outcome.FAIL),
        seconds=spec.run_time / _NANOSECONDS,
        output=spec.failure.message,
    )


def _is_shown(result: TestResult, results: Iterable[TestResult]) -> bool:
    subtests = [other for other in results if other.name.startswith(f"{result.name}/")]
    has_failed_alone = result.outcome is Outcome.FAIL and all(
        subtest.outcome is not Outcome.FAIL for subtest in subtests
    )
    return not subtests or has_failed_alone


def parse_event(line: bytes) -> _Event | None:
    """Decode a line of `go test -json`; None if it is no event."""
    try:
        return msgspec.json.decode(line, type=_Event)
    except msgspec.DecodeError:
        return None


def _build_result(name: str, event: _Event | None, output: Sequence[str]) -> TestResult:
    outcome = Outcome.FAIL if event is None else Outcome(event.action)
    seconds = 0.0 if event is None else event.elapsed
    said = [text for text in output if not text.lstrip().startswith(_ANNOUNCEMENTS)]
    return TestResult(
        name=name,
        outcome=outcome,
        seconds=seconds,
        output="" if outcome is Outcome.PASS else "".join(said).strip(),
    )


def find_problems(run: SuiteRun, declared: Declarations) -> list[str]:
    """Return a line for each test whose result `suites.yaml` does not explain.

    If `go test` failed without a failed test, such as by a panic in `TestMain`, one line gives the
    exit code.
    """
    results = run.results
    problems = [] if results else ["no test ran"]
    if run.code and all(result.outcome is not Outcome.FAIL for result in results):
        problems.append(f"{run.suite}: go test ended with code {run.code}")
    problems += [
        f"{result.name}: {result.outcome}, and suites.yaml declares no reason"
        for result in results
        if result.outcome is not Outcome.PASS and not declared.find_reason(result.name)
    ]
    problems += [
        f"{result.name} passes: remove its exemption from suites.yaml"
        for result in results
        if result.outcome is Outcome.PASS and declared.find_reason(result.name)
    ]
    return problems


def format_rows(run: SuiteRun, declared: Declarations) -> dict[str, str]:
    """Return a line of a Markdown table for each test of a suite, by the displayed test name."""
    rows: dict[str, str] = {}
    for result in run.results:
        name = _format_name(result.name)
        rows[name] = f"| {name} | {_explain(result, declared)} | {result.seconds:.0f} |"
    return rows


def _format_name(test: str) -> str:
    """Return `TestA/does_b` as `A: does b`. The names of Ginkgo's specs stay as they are."""
    if not test.startswith("Test"):
        return test
    return test.removeprefix("Test").replace("/", ": ", 1).replace("_", " ")


def _explain(result: TestResult, declared: Declarations) -> str:
    reason = declared.find_reason(result.name)
    return f"{result.outcome}: {reason}" if reason else str(result.outcome)


def format_table(run: SuiteRun, declared: Declarations) -> str:
    """Return the results of a suite as a table in Markdown, with the patches below it."""
    lines = [f"| {run.suite} | result | seconds |", "|---|---|---|"]
    lines += format_rows(run, declared).values()
    patches = declared.list_patches(run.suite)
    if patches:
        lines += ["", f"{count_lines(patches)} patched lines:", ""]
    lines += [f"- `{patch.file}`: {patch.reason}" for patch in patches]
    return "\n".join(lines) + "\n"
