"""Conditions: set in place, computed from facts; spec rayservice §13.2, §15."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from common import conditions
from common.api import ray_service
from common.api.meta import Condition
from common.conditions import ConditionUpdate
from common.upgrade.service_conditions import ConditionType, Reason
from service_reconciler.observed import Names, Observed
from service_reconciler.promotion.control import Control
from service_reconciler.promotion.rollback import Decision, Step
from service_reconciler.settings import Config
from service_reconciler.status.conditions import Assessment, ready, starts_anew, upgrade_in_progress
from support.builders.ray_service import a_ray_service

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
    """Return what a reconcile found of a RayService with these conditions; `limit` is its initializing timeout in seconds."""
    annotations = {} if limit is None else {"ray.io/initializing-timeout": str(limit)}
    service = ray_service.decode(a_ray_service(annotations=annotations))
    service = msgspec.structs.replace(
        service, status=msgspec.structs.replace(service.status, conditions=before)
    )
    observed = Observed(service=service, config=Config(), names=names, endpoints=endpoints)
    decision = Decision(step=Step.KEEP, names=names, note="")
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


@pytest.mark.parametrize(
    ("before", "endpoints", "has_active", "limit", "expected"),
    [
        pytest.param([], 0, False, None, ("False", "Initializing"), id="new"),
        pytest.param([INITIAL], 2, True, None, ("True", "NonZeroServeEndpoints"), id="serves"),
        pytest.param([INITIAL], 0, True, None, ("False", "Initializing"), id="not yet"),
        pytest.param([INITIAL], 0, False, 31, ("False", "Initializing"), id="in time"),
        pytest.param([INITIAL], 0, False, 30, ("False", "InitializingTimeout"), id="out of time"),
        pytest.param(
            [INITIAL],
            1,
            False,
            30,
            ("True", "NonZeroServeEndpoints"),
            id="ready in the last moment",
        ),
        pytest.param(
            [a_condition("Ready", "True", "NonZeroServeEndpoints")],
            0,
            True,
            1,
            ("False", "ZeroServeEndpoints"),
            id="lost",
        ),
        pytest.param(
            [a_condition("Ready", "False", "ValidationFailed")],
            0,
            False,
            1,
            ("False", "Initializing"),
            id="fixed",
        ),
        pytest.param(
            [a_condition("Ready", "False", "ValidationFailed")],
            0,
            True,
            1,
            ("False", "ZeroServeEndpoints"),
            id="idle",
        ),
    ],
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


@pytest.mark.parametrize(
    ("before", "names", "expected"),
    [
        pytest.param([], Names(pending="p"), ("False", "Initializing"), id="new"),
        pytest.param([], Names(active="a"), ("False", "NoPendingCluster"), id="at rest"),
        pytest.param(
            [],
            Names(active="a", pending="p"),
            ("True", "BothActivePendingClustersExist"),
            id="upgrading",
        ),
        pytest.param(
            [a_condition("UpgradeInProgress", "False", "Initializing")],
            Names(pending="p"),
            None,
            id="as it is",
        ),
        pytest.param(
            [a_condition("UpgradeInProgress", "False", "NoPendingCluster")],
            Names(),
            ("Unknown", "NoActiveCluster"),
            id="lost",
        ),
    ],
)
def test_upgrade_in_progress(
    before: list[Condition], names: Names, expected: tuple[str, str] | None
) -> None:
    found = upgrade_in_progress(an_assessment(before, names))
    assert (None if found is None else (found.status, found.reason)) == expected
