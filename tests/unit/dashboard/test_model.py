"""The data that the page shows of a RayService."""

from datetime import timedelta

import msgspec

from common import labels
from raybus_cli.show.phase import Tone
from raybus_dashboard import model
from raybus_dashboard.model import GroupPods, RowUpgrade, ShownCause, TrafficShare
from raybus_dashboard.timeline import Timeline
from support.builders.snapshots import (
    BLUE,
    GREEN,
    NOW,
    READY,
    UPGRADING,
    a_condition,
    a_pod,
    a_ready_service,
    at_rest,
    gated,
    in_steps,
)
from support.upgrade_events import RECEIPT


def test_the_row_of_an_upgrade_in_steps() -> None:
    row = model.build_row(in_steps(weight=30).service, None, now=NOW)
    assert (row.phase, row.tone, row.strategy) == (
        "Upgrading",
        Tone.BUSY,
        "NewClusterWithIncrementalUpgrade",
    )
    assert row.upgrade == RowUpgrade(
        direction="forward", step=3, steps=10, next_step_at=NOW + timedelta(seconds=18)
    )
    assert row.shares == [
        TrafficShare(name=BLUE, role="active", weight=70),
        TrafficShare(name=GREEN, role="pending", weight=30),
    ]


def test_the_row_of_a_service_at_rest() -> None:
    row = model.build_row(at_rest().service, None, now=NOW)
    assert (row.tone, row.upgrade, row.shares) == (
        Tone.GOOD,
        None,
        [TrafficShare(name=BLUE, role="active", weight=100)],
    )


def test_a_row_does_not_change_by_the_clock() -> None:
    for service in (in_steps(weight=30).service, at_rest().service):
        later = model.build_row(service, None, now=NOW + timedelta(seconds=3))
        assert model.build_row(service, None, now=NOW) == later


def test_a_paused_upgrade_has_no_next_step() -> None:
    paused = in_steps(
        UPGRADING,
        a_condition("UpgradePaused", reason="PauseRequested", message="Paused by raybus.io/pause."),
    )
    row = model.build_row(paused.service, None, now=NOW)
    assert row.upgrade is not None
    assert (row.phase, row.upgrade.next_step_at, row.message) == (
        "Paused",
        None,
        "Paused by raybus.io/pause.",
    )


def test_clusters_with_target_and_ready_capacity_and_their_pods_by_group() -> None:
    waiting = a_pod(GREEN, "gpu", 2, ready=False)
    waiting["status"]["containerStatuses"] = [
        {"name": "ray", "restartCount": 3, "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    ]
    snapshot = in_steps(weight=30, pods=[a_pod(GREEN, "head"), a_pod(GREEN, "gpu", 1), waiting])
    old, new = model.build_detail(snapshot, [], now=NOW).clusters
    assert (old.role, old.weight, old.target_capacity, old.ready_capacity) == ("active", 70, 90, 90)
    assert (new.role, new.weight, new.target_capacity, new.ready_capacity) == (
        "pending",
        30,
        30,
        30,
    )
    assert new.groups == [
        GroupPods(name="head", ready=1, pods=1),
        GroupPods(name="gpu", ready=1, pods=2, others={"ImagePullBackOff": 1}, restarts=3),
    ]


def test_a_blocking_reason_has_a_remedy() -> None:
    stalled = a_condition(
        "UpgradeStalled", reason="InsufficientCapacity", message="No progress for 10m: no node"
    )
    causes = model.build_detail(in_steps(READY, UPGRADING, stalled), [], now=NOW).causes
    assert any("No progress for 10m: no node" in each.what and each.remedy for each in causes)
    assert model.build_detail(at_rest(), [], now=NOW).causes == list[ShownCause]()


def test_the_receipt_is_read_from_the_annotation() -> None:
    text = msgspec.json.encode(RECEIPT).decode()
    for written, read in ((text, RECEIPT), ("somebody's note", None)):
        snapshot = at_rest(service=a_ready_service(annotations={labels.UPGRADE_RECEIPT: written}))
        assert model.build_detail(snapshot, [], now=NOW).receipt == read


def test_the_gates_of_an_upgrade_and_their_verdicts_without_any_event() -> None:
    began = NOW - timedelta(seconds=200)
    bare = Timeline(id="seen", old=BLUE, new=GREEN, began=began)
    detail = model.build_detail(
        gated(), [bare, Timeline(id="other", old="x", new=BLUE, began=began)], now=NOW
    )
    assert detail.gates is not None
    assert [(each.outcome, each.waits) for each in detail.gates.gates] == [
        ("Pass", False),
        ("Inconclusive", True),
    ]
    current, earlier = detail.timelines
    assert [(each.weight, each.outcome) for each in current.verdicts] == [
        (10, "Pass"),
        (10, "Inconclusive"),
    ]
    assert earlier.verdicts == []
    assert detail.row is not None
    assert detail.row.upgrade is not None
    assert (detail.row.upgrade.step, detail.row.upgrade.steps) == (1, 3)


def test_a_row_counts_the_steps_of_the_policy_that_the_upgrade_began_with() -> None:
    snapshot = gated(weight=10)
    row = model.build_row(snapshot.service, snapshot.clusters[-1], now=NOW)
    assert row.upgrade is not None
    assert (row.upgrade.step, row.upgrade.steps) == (1, 3)
    unknown = model.build_row(snapshot.service, None, now=NOW)
    assert unknown.upgrade is not None
    assert unknown.upgrade.steps == 10
