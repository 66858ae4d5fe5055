"""A report as a run would produce it."""

from chaos.checker.evidence import Violation
from chaos.checker.gaps import Gap
from chaos.report import Report

VIOLATION = Violation(rule="one head", about="ns/c", text="2 heads at once", at=60.0)
LATE = Violation(rule="no long gap", about="probe-1", text="probe-1 waited 1.1 s", at=70.0)


def a_report(*violations: Violation) -> Report:
    gap = Gap(
        fault="kill -9",
        waits=3,
        p50=0.1,
        longest=12.0,
        probe="probe-1",
        began=5.0,
        limit=10.0,
        over_limit=1,
    )
    return Report(
        seed=7,
        minutes=5.0,
        replicas=4,
        jobs=60,
        faults=20,
        changes=200,
        drivers=70,
        states=1000,
        writes=500,
        against_leases=400,
        with_base=450,
        autoscaled=3,
        machine_percent=55.5,
        watches={},
        unreconciled=[],
        gaps=[gap],
        violations=list(violations),
        timeline=[],
    )
