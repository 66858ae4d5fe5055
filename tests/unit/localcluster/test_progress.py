"""The lines of the progress display, and that it never falls silent."""

import io
import time

import pytest

from localcluster import progress
from localcluster.progress import Progress, Speed, Step


def _step(*, estimate: float | None = None) -> Step:
    return Step("building", estimate, started=100.0)


@pytest.mark.parametrize(
    ("step", "now", "line"),
    [
        pytest.param(_step(), 103, "building: 3 s", id="nobody knows how long"),
        pytest.param(
            _step(estimate=160), 110, "building: 10 s, about 2 min 30 s left", id="by the estimate"
        ),
        pytest.param(
            _step(estimate=20), 200, "building: 1 min 40 s, usually 20 s", id="past the estimate"
        ),
    ],
)
def test_a_line_names_the_step_and_the_time_left(step: Step, now: float, line: str) -> None:
    assert progress.describe(step, now=now) == line


def test_the_time_left_never_rises() -> None:
    step = _step(estimate=300)
    left = [progress.time_left(step, now=step.started + second) for second in range(1200)]
    known = [seconds for seconds in left if seconds is not None]
    assert known == sorted(known, reverse=True)
    assert left == [*known, *[None] * (1200 - len(known))]


def test_estimates_follow_the_machine() -> None:
    speed = Speed()
    speed.learn(estimated=50, taken=100)
    speed.learn(estimated=1, taken=50)
    assert (speed.adapt(100), speed.adapt(5), speed.adapt(None)) == (200, 5, None)


def test_every_step_has_a_first_and_a_last_line() -> None:
    out = io.StringIO()
    with Progress(out).step("copying", estimate=5) as step:
        step.note("half")
    first, last = out.getvalue().splitlines()
    assert first == "  … copying: 0 s, about 5 s left"
    assert last.startswith("  ✓ copying: done in 0.")


def test_a_failed_step_is_reported() -> None:
    out = io.StringIO()
    with pytest.raises(ValueError, match="no"), Progress(out).step("copying"):
        raise ValueError("no")
    assert "✗ copying: failed after" in out.getvalue()


def test_lines_keep_coming_while_a_step_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "HEARTBEAT_SECONDS", 0.01)
    out = io.StringIO()
    deadline = time.monotonic() + 5
    with Progress(out).step("copying"):
        while out.getvalue().count("\n") < 4 and time.monotonic() < deadline:
            pass
    assert out.getvalue().count("… copying") >= 4


def test_silence_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress.silent().step("copying") as step:
        step.note("half")
    assert tuple(capsys.readouterr()) == ("", "")
