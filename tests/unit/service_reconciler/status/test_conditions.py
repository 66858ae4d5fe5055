"""Conditions: set in place, computed from facts; spec rayservice §13.2, §15."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from common import conditions
from common.api import ray_service
from common.api.meta import Condition
from common.conditions import ConditionUpdate
from common.upgrade.service_conditions import ConditionType, Reason
from service_reconciler.observed import Names, Observed
from service_reconciler.promotion.control import Control
from service_reconciler.promotion.rollback import PendingChange, RollbackDecision
from service_reconciler.settings import Config
from service_reconciler.status.conditions import Assessment, ready, starts_anew, upgrade_in_progress
from support.builders.ray_service import a_ray_service
from support.tables import cases

THEN = datetime(2026, 1, 1, tzinfo=UTC)
NOW = THEN + timedelta(seconds=30)


def a_condition(kind: str, status: str, reason: str, message: str = "m") -> Condition:
    return Condition(
        type=kind, status=status, reason=reason, message=message, last_transition_time=THEN
    )


def an_assessment(
    before: list[Condition],
    names: Names,
    *,
    endpoints: int = 0,
    limit: int | None = None,
    now: datetime = NOW,
) -> Assessment:
    """Return the assessment of a RayService with these conditions; `limit` is its initializing
    timeout in seconds.
    """
    annotations = {} if limit is None else {"ray.io/initializing-timeout": str(limit)}
    service = ray_service.decode(a_ray_service(annotations=annotations))
    service = replace(service, status=replace(service.status, conditions=before))
    observed = Observed(service=service, config=Config(), names=names, endpoints=endpoints)
    decision = RollbackDecision(change=PendingChange.KEEP, names=names, note="")
    return Assessment(
        observed=observed, now=now, control=Control(), decision=decision, names=names, problem=None
    )


def test_only_a_new_status_has_a_new_transition_time() -> None:
    before = [
        a_condition("Ready", "False", "Initializing"),
        a_condition("Suspended", "False", "RayServiceResumed"),
    ]
    same = ConditionUpdate(
        type=ConditionType.READY, status="False", reason=Reason.ZERO_SERVE_ENDPOINTS, message="n"
    )
    kept = conditions.updated(before, same, generation=3, now=NOW)
    assert [each.type for each in kept] == ["Ready", "Suspended"]
    assert (kept[0].last_transition_time, kept[0].reason, kept[0].observed_generation) == (
        THEN,
        "ZeroServeEndpoints",
        3,
    )
    other = ConditionUpdate(
        type=ConditionType.READY, status="True", reason=Reason.NON_ZERO_SERVE_ENDPOINTS, message="n"
    )
    assert conditions.updated(before, other, generation=3, now=NOW)[0].last_transition_time == NOW


INITIAL = a_condition("Ready", "False", "Initializing", "RayService is initializing")
SERVES = a_condition("Ready", "True", "NonZeroServeEndpoints")
INVALID = a_condition("Ready", "False", "ValidationFailed")


@cases(
    ("before", "endpoints", "has_active", "limit", "expected"),
    {
        "new": ([], 0, False, None, ("False", "Initializing")),
        "serves": ([INITIAL], 2, True, None, ("True", "NonZeroServeEndpoints")),
        "not yet": ([INITIAL], 0, True, None, ("False", "Initializing")),
        "in time": ([INITIAL], 0, False, 31, ("False", "Initializing")),
        "out of time": ([INITIAL], 0, False, 30, ("False", "InitializingTimeout")),
        "ready in the last moment": ([INITIAL], 1, False, 30, ("True", "NonZeroServeEndpoints")),
        "lost": ([SERVES], 0, True, 1, ("False", "ZeroServeEndpoints")),
        "fixed": ([INVALID], 0, False, 1, ("False", "Initializing")),
        "idle": ([INVALID], 0, True, 1, ("False", "ZeroServeEndpoints")),
    },
)
def test_ready(
    before: list[Condition],
    endpoints: int,
    has_active: bool,
    limit: int | None,
    expected: tuple[str, str],
) -> None:
    names = Names(active="a" if has_active else "")
    found = ready(an_assessment(before, names, endpoints=endpoints, limit=limit))
    assert (found.status, found.reason) == expected


@pytest.mark.parametrize(
    ("ahead", "limit", "anew"),
    [
        pytest.param(0, 60, False, id="in time"),
        pytest.param(60, 60, False, id="clocks that differ a little"),
        pytest.param(3600, 60, True, id="the clock was set back"),
        pytest.param(3600, None, False, id="no limit"),
    ],
)
def test_the_time_to_become_ready_counts_anew_when_the_clock_was_set_back(
    ahead: int, limit: int | None, *, anew: bool
) -> None:
    found = an_assessment([INITIAL], Names(), limit=limit, now=THEN - timedelta(seconds=ahead))
    assert starts_anew(found) is anew


@cases(
    ("before", "names", "expected"),
    {
        "new": ([], Names(pending="p"), ("False", "Initializing")),
        "at rest": ([], Names(active="a"), ("False", "NoPendingCluster")),
        "upgrading": (
            [],
            Names(active="a", pending="p"),
            ("True", "BothActivePendingClustersExist"),
        ),
        "as it is": (
            [a_condition("UpgradeInProgress", "False", "Initializing")],
            Names(pending="p"),
            None,
        ),
        "lost": (
            [a_condition("UpgradeInProgress", "False", "NoPendingCluster")],
            Names(),
            ("Unknown", "NoActiveCluster"),
        ),
    },
)
def test_upgrade_in_progress(
    before: list[Condition], names: Names, expected: tuple[str, str] | None
) -> None:
    found = upgrade_in_progress(an_assessment(before, names))
    assert (None if found is None else (found.status, found.reason)) == expected
