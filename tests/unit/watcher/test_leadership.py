"""The candidate that may take the Lease, by our observations and not by clocks."""

from datetime import UTC, datetime, timedelta

import pytest

from common.api.core import LeaseSpec
from support.tables import cases
from watcher import leadership
from watcher.leadership import LeaderRole, Preparation, Successor, WatcherLease, WatcherObservation

AT = datetime(2026, 1, 1, 12, 0, 0, 123456, tzinfo=UTC)
KUBERAY = LeaseSpec(
    holder_identity="kuberay", lease_duration_seconds=15, renew_time="1", lease_transitions=3
)


def a_lease(spec: LeaseSpec, *, watcher: str = "", following: str = "") -> WatcherLease:
    annotations = {leadership.ANNOTATION: watcher, leadership.NEXT_ANNOTATION: following}
    return WatcherLease({"annotations": annotations}, spec)


@cases(
    ("spec", "seen_for", "waits_for"),
    {
        "the holder's time is not up": (KUBERAY, 14.9, "kuberay"),
        "the holder's time is up": (KUBERAY, 15.0, None),
        "nobody holds it": (LeaseSpec(), 0.0, None),
        "it was let go": (LeaseSpec(holder_identity=""), 0.0, None),
        "a restart in the same pod goes on at once": (LeaseSpec(holder_identity="me"), 0.0, None),
        "no duration means ours": (LeaseSpec(holder_identity="x"), 5.9, "x"),
    },
)
def test_another_holder_is_waited_for(
    spec: LeaseSpec, seen_for: float, waits_for: str | None
) -> None:
    assert (
        leadership.find_blocking_holder(
            WatcherObservation(spec, None, 100.0), "me", now=100.0 + seen_for
        )
        == waits_for
    )


@pytest.mark.parametrize(
    ("annotation", "role"),
    [
        pytest.param("kuberay leads", LeaderRole.LEADS, id="the holder is a watcher"),
        pytest.param("kuberay yields", LeaderRole.YIELDS, id="it makes room for another watcher"),
        pytest.param("me leads", None, id="left from a watcher before KubeRay took the Lease"),
        pytest.param("", None, id="never held by a watcher"),
        pytest.param("kuberay sleeps", None, id="a value of another release"),
        pytest.param("kuberay", None, id="no value"),
    ],
)
def test_the_annotation_contains_what_the_holder_does(
    annotation: str, role: LeaderRole | None
) -> None:
    assert a_lease(KUBERAY, watcher=annotation).role is role


def test_a_watcher_that_yields_is_not_waited_for_and_kuberay_sees_a_held_lease() -> None:
    mine = leadership.build_taken_spec(None, "first", at=AT)
    seen = leadership.observe(None, a_lease(mine, watcher="first yields"), now=0.0)

    assert leadership.find_blocking_holder(seen, "second", now=0.0) is None
    assert (mine.holder_identity, mine.lease_duration_seconds) == (
        "first",
        leadership.DURATION_SECONDS,
    )


HANDED_OVER = leadership.format_annotation("a", LeaderRole.HANDED_OVER)
PREPARED = Successor("b", Preparation.DONE)


@pytest.mark.parametrize(
    "successor", [PREPARED, Successor("pod of a node", Preparation.BEGUN)], ids=str
)
def test_a_successor_is_read_as_it_was_written(successor: Successor) -> None:
    assert a_lease(KUBERAY, following=str(successor)).successor == successor


@pytest.mark.parametrize(
    "annotation", ["", "b", "b leads", " prepares", "prepares", "b is-prepared "]
)
def test_any_other_text_names_no_successor(annotation: str) -> None:
    """Therefore a watcher that reads it prepares, and writes its own name over it."""
    assert a_lease(KUBERAY, following=annotation).successor is None


@pytest.mark.parametrize(
    ("holder", "annotation", "expected"),
    [
        pytest.param("", HANDED_OVER, "b", id="handed over"),
        pytest.param("", "a leads", "", id="released by a leader that waited for no other"),
        pytest.param("kuberay", HANDED_OVER, "", id="KubeRay was first"),
    ],
)
def test_a_lease_is_handed_over_to_the_watcher_that_is_prepared(
    holder: str, annotation: str, expected: str
) -> None:
    spec = LeaseSpec(holder_identity=holder)
    assert a_lease(spec, watcher=annotation, following=str(PREPARED)).next_holder == expected
    assert a_lease(spec, watcher=annotation).next_holder == ""


def test_the_watcher_that_is_prepared_has_the_first_try() -> None:
    """Any other watcher would first list everything; it takes the Lease only if the prepared one
    does not.
    """
    spec = leadership.build_released_spec(leadership.build_taken_spec(None, "a", at=AT), at=AT)
    handed_over = a_lease(spec, watcher=HANDED_OVER, following=str(PREPARED))
    seen = leadership.observe(None, handed_over, now=10.0)
    assert leadership.find_blocking_holder(seen, "b", now=10.0) is None
    assert leadership.find_blocking_holder(seen, "c", now=10.9) == "b"
    assert leadership.find_blocking_holder(seen, "c", now=11.0) is None
    assert leadership.observe(seen, handed_over, now=12.0) is seen
    assert leadership.observe(seen, a_lease(spec), now=12.0).since == 12.0


@pytest.mark.parametrize(
    ("watcher", "holder", "following", "expected"),
    [
        pytest.param("a leaves", "a", "", True, id="no other one prepares"),
        pytest.param("a leaves", "a", "me prepares", True, id="it does already"),
        pytest.param("a leaves", "a", "b prepares", False, id="another one prepares"),
        pytest.param("a leads", "a", "", False, id="the leader stays"),
        pytest.param("a yields", "a", "", False, id="the leader yields"),
        pytest.param("", "kuberay", "", False, id="KubeRay leads"),
        pytest.param("me leaves", "me", "", False, id="this replica leads"),
    ],
)
def test_one_watcher_prepares_for_a_leader_that_leaves(
    watcher: str, holder: str, following: str, expected: bool
) -> None:
    lease = a_lease(LeaseSpec(holder_identity=holder), watcher=watcher, following=following)
    assert leadership.may_prepare(lease, "me") is expected


def test_a_renewal_starts_the_wait_anew_and_a_second_observation_does_not() -> None:
    first = leadership.observe(None, a_lease(KUBERAY), now=10.0)
    again = leadership.observe(first, a_lease(KUBERAY), now=20.0)
    renewed = leadership.observe(
        again, a_lease(LeaseSpec(holder_identity="kuberay", renew_time="2")), now=21.0
    )

    assert (first.since, again.since, renewed.since) == (10.0, 10.0, 21.0)


@pytest.mark.parametrize("minutes", [-5, 5])
def test_a_leader_with_a_wrong_clock_is_judged_by_what_we_observed(minutes: int) -> None:
    theirs = leadership.build_taken_spec(None, "other", at=AT + timedelta(minutes=minutes))
    seen = leadership.observe(None, a_lease(theirs), now=100.0)

    assert (
        leadership.find_blocking_holder(seen, "me", now=99.9 + leadership.DURATION_SECONDS)
        == "other"
    )
    assert (
        leadership.find_blocking_holder(seen, "me", now=100.0 + leadership.DURATION_SECONDS) is None
    )


def test_taking_over_counts_a_transition_and_renewing_does_not() -> None:
    taken = leadership.build_taken_spec(KUBERAY, "me", at=AT)
    renewed = leadership.build_taken_spec(taken, "me", at=AT.replace(second=5))

    assert (taken.lease_transitions, taken.acquire_time) == (4, "2026-01-01T12:00:00.123456Z")
    assert (renewed.lease_transitions, renewed.acquire_time) == (4, taken.acquire_time)
    assert renewed.renew_time == "2026-01-01T12:00:05.123456Z"
    assert leadership.build_taken_spec(None, "me", at=AT).lease_transitions == 0


def test_letting_go_lets_the_next_one_begin_at_once() -> None:
    released = leadership.build_released_spec(
        leadership.build_taken_spec(KUBERAY, "me", at=AT), at=AT
    )

    assert (
        leadership.find_blocking_holder(WatcherObservation(released, None, 0.0), "other", now=0.0)
        is None
    )


def test_a_leader_stops_before_its_lease_can_expire() -> None:
    assert leadership.RENEW_SECONDS < leadership.DEADLINE_SECONDS < leadership.DURATION_SECONDS
