"""A wait is attributed to the fault that was active; only what another replica could have repaired has a limit."""

import pytest

from chaos.checker import gaps
from chaos.checker.gaps import Struck, Wait
from support.tables import cases

CRASH = Struck(kind="kill -9", service="cluster-reconciler", began=10.0, over=20.0, replicas=4)


def a_wait(asked: float, seconds: float | None, service: str = "cluster-reconciler") -> Wait:
    done = None if seconds is None else asked + seconds
    return Wait(probe="p", service=service, asked=asked, done=done)


@pytest.mark.parametrize(
    ("wait", "fault"),
    [
        pytest.param(a_wait(1.0, 0.1), "none", id="before"),
        pytest.param(a_wait(9.9, 0.2), "kill -9", id="across its beginning"),
        pytest.param(a_wait(12.0, 30.0), "kill -9", id="across its end"),
        pytest.param(a_wait(8.9, 5.0), "none", id="late before it"),
        pytest.param(a_wait(21.0, 0.1), "none", id="after"),
        pytest.param(a_wait(15.0, None), "kill -9", id="without end"),
    ],
)
def test_the_cause(wait: Wait, fault: str) -> None:
    assert [gap.fault for gap in gaps.summary([wait], [CRASH], end=60.0)] == [fault]


@cases(
    ("wait", "struck", "broken"),
    {
        "within the limit": (a_wait(10.0, 9.9), CRASH, 0),
        "a crash that took too long": (a_wait(10.0, 10.1), CRASH, 1),
        "never answered": (a_wait(10.0, None), CRASH, 1),
        "another service was struck": (a_wait(10.0, 30.0, "traffic-manager"), CRASH, 0),
        "no fault": (a_wait(1.0, 30.0), None, 0),
        "nobody else was there": (
            a_wait(10.0, 12.0),
            Struck(kind="kill -9", service="cluster-reconciler", began=10.0, over=20.0, replicas=1),
            0,
        ),
        "a hand-over of more than a second": (
            a_wait(10.0, 1.1),
            Struck(kind="SIGTERM", service="cluster-reconciler", began=10.0, over=20.0, replicas=2),
            1,
        ),
        "a hand-over of watchers that any service felt": (
            a_wait(10.0, 1.1),
            Struck(
                kind="SIGTERM of a watcher", service="watcher", began=10.0, over=20.0, replicas=2
            ),
            1,
        ),
        "a change of scale that was felt": (
            a_wait(10.0, 2.1),
            Struck(kind="scale", service="", began=10.0, over=20.0, replicas=2),
            1,
        ),
    },
)
def test_the_limits(wait: Wait, struck: Struck | None, broken: int) -> None:
    assert len(gaps.judge([wait], [struck] if struck else [], end=60.0)) == broken


def test_the_last_fault_counts_where_two_meet() -> None:
    later = Struck(kind="NATS kill", service="", began=15.0, over=25.0, replicas=4)
    found = gaps.summary([a_wait(14.5, 6.0)], [CRASH, later], end=60.0)
    assert [(gap.fault, gap.longest) for gap in found] == [("NATS kill", 6.0)]


def test_a_wait_that_was_late_already_is_put_down_to_the_fault_before() -> None:
    later = Struck(kind="scale", service="", began=15.0, over=25.0, replicas=4)
    found = gaps.summary([a_wait(12.0, 6.0)], [CRASH, later], end=60.0)
    assert [(gap.fault, gap.longest) for gap in found] == [("kill -9", 6.0)]


@pytest.mark.parametrize(("seconds", "broken"), [(119.0, 0), (121.0, 1), (None, 1)])
def test_a_wait_that_no_fault_explains_is_a_stalled_key_whatever_failed(
    seconds: float | None, broken: int
) -> None:
    assert len(gaps.stalled([a_wait(10.0, seconds, "traffic-manager")], end=200.0)) == broken
