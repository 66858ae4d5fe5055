"""The lines of the progress display, which never stops printing for long."""

from localcluster import progress
from localcluster.progress import ProgressStep, Speed
from support.tables import cases


def _step(*, estimate: float | None = None) -> ProgressStep:
    return ProgressStep("building", estimate, started=100.0)


@cases(
    ("step", "now", "line"),
    {
        "nobody knows how long": (_step(), 103, "building: 3 s"),
        "by the estimate": (_step(estimate=160), 110, "building: 10 s, about 2 min 30 s left"),
        "past the estimate": (_step(estimate=20), 200, "building: 1 min 40 s, usually 20 s"),
    },
)
def test_a_line_names_the_step_and_the_time_left(step: ProgressStep, now: float, line: str) -> None:
    assert progress.describe(step, now=now) == line


def test_the_time_left_never_rises() -> None:
    step = _step(estimate=300)
    left = [progress.estimate_time_left(step, now=step.started + second) for second in range(1200)]
    known = [seconds for seconds in left if seconds is not None]
    assert known == sorted(known, reverse=True)
    assert left == [*known, *[None] * (1200 - len(known))]


def test_estimates_follow_the_machine() -> None:
    speed = Speed()
    speed.learn(estimated=50, taken=100)
    speed.learn(estimated=1, taken=50)
    assert (speed.adapt(100), speed.adapt(5), speed.adapt(None)) == (200, 5, None)
