"""A run that broke only limits in seconds is repeated as often as requested, and reports that."""

import sys

import pytest

from bench import pod_network
from chaos import __main__ as chaos
from chaos.checker.evidence import Violation
from chaos.report import Report
from unit.chaos.a_report import LATE, VIOLATION, a_report


def nothing(*_arguments: object) -> None:
    pass


@pytest.mark.parametrize(
    ("options", "runs", "code"),
    [
        pytest.param(["--again=1"], [(LATE,), ()], 0, id="late once"),
        pytest.param(["--again=1"], [(LATE,), (LATE,)], 1, id="late twice"),
        pytest.param(["--again=1"], [(VIOLATION, LATE)], 1, id="a broken rule"),
        pytest.param(["--again=1"], [()], 0, id="nothing"),
        pytest.param(["--again=0"], [(LATE,)], 1, id="not asked for"),
        pytest.param(["--untimed"], [(LATE,)], 0, id="untimed and late"),
        pytest.param(["--untimed"], [(LATE, VIOLATION)], 1, id="untimed and a broken rule"),
    ],
)
def test_what_was_only_late_is_repeated(
    options: list[str],
    runs: list[tuple[Violation, ...]],
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reports = iter([a_report(*violations) for violations in runs])

    def run(_options: object) -> Report:
        return next(reports)

    monkeypatch.setattr(sys, "argv", ["chaos", *options])
    monkeypatch.setattr(pod_network, "enter", nothing)
    monkeypatch.setattr(chaos, "keep_stdout_clean", nothing)
    monkeypatch.setattr(chaos, "_run", run)
    assert chaos.main() == code
    assert next(reports, None) is None
    assert capsys.readouterr().err.count("RERUN") == len(runs) - 1
