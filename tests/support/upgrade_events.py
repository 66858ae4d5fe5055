"""Upgrade events as docs/events shows them: an example of each kind."""

from datetime import UTC, datetime, timedelta
from typing import Final

from common.bus import cloud_events
from common.bus.cloud_events import Event
from common.upgrade import events as ue
from common.upgrade.events import ReportedSplit, Share, UpgradeEventData
from common.upgrade.gate_record import StepVerdicts, Verdict
from common.upgrade.receipt import Receipt, Seconds, UpgradeOutcome

START: Final = datetime(2026, 1, 1, 12, tzinfo=UTC)
TRACE: Final = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
UPGRADE: Final = ue.upgrade("0b7c9a52-6d1e-4a8e-9b1c-0e8f6a2d4c11", "demo-x7k2p", "demo-b4n9d")


def a_split(old: tuple[int, int], new: tuple[int, int]) -> ReportedSplit:
    """Return a split; each pair is a cluster's capacity and its share of the traffic."""
    parts = [
        Share(capacity_percent=capacity, traffic_percent=traffic)
        for capacity, traffic in (old, new)
    ]
    return ReportedSplit(old=parts[0], new=parts[1])


VERDICT: Final = Verdict(
    gate="errorRate",
    outcome="Pass",
    at=START + timedelta(seconds=75),
    requests=412,
    value=0.0024271844660194173,
    limit=0.01,
    text="errorRate: 1 of 412 requests failed (0.243%), at most 1% allowed",
)
STEP: Final = StepVerdicts(weight=5, since=START + timedelta(seconds=70), gates=(VERDICT,))
RECEIPT: Final = Receipt(
    old=UPGRADE.old,
    new=UPGRADE.new,
    outcome=UpgradeOutcome.PROMOTED,
    started=START,
    finished=START + timedelta(seconds=260),
    seconds=Seconds(preparing=70, shifting=120, draining=70),
    peak_surge_percent=20,
    lowest_capacity_percent=100,
    requests_cut=0,
    steps=(STEP,),
)
PAUSED: Final = "Paused by raybus.io/pause."
PASSED: Final = VERDICT.text
STALLED: Final = "No progress for 10m (raybus.io/progress-deadline): pods of RayCluster demo-b4n9d cannot be scheduled"
ABORTED: Final = (
    "Generation 4 is aborted by raybus.io/abort; the service stays on RayCluster demo-x7k2p."
)
FAILED: Final = "RayService failed to become ready within the configured timeout of 5m. Time spent initializing: 5m1s"
FORWARD: Final = ue.Direction.FORWARD
EXAMPLES: Final[tuple[tuple[float, UpgradeEventData], ...]] = (
    (
        0,
        ue.Started(
            upgrade=UPGRADE,
            reason=ue.Cause.SPEC_CHANGED,
            strategy="NewClusterWithIncrementalUpgrade",
            generation=4,
        ),
    ),
    (
        0,
        ue.ClusterCreated(
            upgrade=UPGRADE, cluster=UPGRADE.new, uid="7d0f6c1e-52aa-4b54-8d2a-1f0f2f6f8f3a"
        ),
    ),
    (
        60.25,
        ue.CapacityChanged(
            upgrade=UPGRADE,
            direction=FORWARD,
            before=a_split((100, 100), (0, 0)),
            after=a_split((100, 100), (20, 0)),
        ),
    ),
    (
        70.5,
        ue.TrafficShifted(
            upgrade=UPGRADE,
            direction=FORWARD,
            before=a_split((100, 100), (20, 0)),
            after=a_split((100, 95), (20, 5)),
        ),
    ),
    (
        75,
        ue.GateEvaluated(
            upgrade=UPGRADE,
            traffic_percent=5,
            gate="errorRate",
            outcome="Pass",
            requests=412,
            value=0.0024271844660194173,
            limit=0.01,
            message=PASSED,
        ),
    ),
    (80, ue.Paused(upgrade=UPGRADE, reason="PauseRequested", message=PAUSED)),
    (95, ue.Resumed(upgrade=UPGRADE)),
    (170, ue.Stalled(upgrade=UPGRADE, reason="InsufficientCapacity", message=STALLED)),
    (190, ue.Promoted(upgrade=UPGRADE)),
    (
        190,
        ue.DrainStarted(
            upgrade=UPGRADE,
            cluster=UPGRADE.old,
            deletion_delay_seconds=62,
            drain_timeout_seconds=60,
        ),
    ),
    (260, ue.Completed(upgrade=UPGRADE, receipt=RECEIPT)),
    (100, ue.Aborted(upgrade=UPGRADE, reason="AbortRequested", message=ABORTED, over=False)),
    (110, ue.RolledBack(upgrade=UPGRADE, outcome=UpgradeOutcome.ABORTED)),
    (300, ue.Failed(upgrade=UPGRADE, reason="InitializingTimeout", message=FAILED)),
)


def an_event(data: UpgradeEventData, *, seconds: float = 0) -> Event:
    """Return an event of the RayService team-a/demo."""
    identity = cloud_events.identity(data, data)
    when = START + timedelta(seconds=seconds)
    return Event(namespace="team-a", name="demo", id=identity, time=when, data=data)
