"""The timeline of an upgrade, from its events and, without events, from observed state."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from common.bus.cloud_events import CloudEvent, Event
from common.upgrade import events as ue
from common.upgrade.events import UpgradeEventData
from common.upgrade.gate_record import StepVerdicts
from common.upgrade.receipt import UpgradeOutcome
from common.upgrade.traffic_record import RecordedUpgrade
from raybus_dashboard import timeline
from raybus_dashboard.timeline import ClusterShare, Sample, Severity
from support.builders.example_upgrade import a_retreat, an_example_upgrade
from support.upgrade_events import EXAMPLES, RECEIPT, START, UPGRADE, VERDICT, an_event


def _read(events: list[Event]) -> list[CloudEvent[UpgradeEventData]]:
    return [ue.decode(ue.encode(each).payload) for each in events]


def _after(seconds: float) -> timedelta:
    return timedelta(seconds=seconds)


def _a_sample(seconds: float, old: int, new: int, *, over: str = "") -> Sample:
    parts = (ClusterShare(traffic=old, capacity=100), ClusterShare(traffic=new, capacity=new))
    return Sample(
        at=START + _after(seconds), old=UPGRADE.old, new=UPGRADE.new, parts=parts, over=over
    )


def test_a_whole_upgrade_in_steps() -> None:
    found = timeline.from_events(_read(an_example_upgrade()))
    moves = [
        (each.at - START, each.old.traffic, each.new.traffic, each.old.capacity, each.new.capacity)
        for each in found.points
    ]
    assert moves == [
        (_after(0), 100, 0, 100, 0),
        (_after(60.25), 100, 0, 100, 20),
        (_after(70.5), 95, 5, 100, 20),
        (_after(190), 0, 100, 100, 20),
    ]
    assert (found.began, found.ended, found.outcome) == (
        START,
        START + _after(260),
        UpgradeOutcome.PROMOTED,
    )
    assert found.receipt == RECEIPT
    assert [each.kind for each in found.lines] == [
        ue.kind_of(each.type) for each in _read(an_example_upgrade())
    ]
    assert {each.kind: each.severity for each in found.lines}["stalled"] is Severity.BAD


def test_an_upgrade_that_goes_on_has_no_end() -> None:
    found = timeline.from_events(_read(an_example_upgrade()[:4]))
    assert (found.ended, found.outcome, found.receipt) == (None, "", None)
    assert found.points[-1].new == ClusterShare(traffic=5, capacity=20)


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        pytest.param(a_retreat()[:3], UpgradeOutcome.ABORTED, id="rolled back after an abort"),
        pytest.param(a_retreat()[:1], "", id="an abort before its traffic has rolled back"),
        pytest.param(a_retreat()[-1:], "Failed", id="never ready"),
    ],
)
def test_an_upgrade_that_came_to_nothing(events: list[Event], outcome: str) -> None:
    assert timeline.from_events(_read(events)).outcome == outcome


def test_traffic_that_moves_at_once_has_no_capacities() -> None:
    kinds = (ue.Started, ue.Promoted)
    found = timeline.from_events(
        _read(
            [
                an_event(data, seconds=seconds)
                for seconds, data in EXAMPLES
                if isinstance(data, kinds)
            ]
        )
    )
    assert [(each.old, each.new) for each in found.points] == [
        (ClusterShare(traffic=100), ClusterShare(traffic=0)),
        (ClusterShare(traffic=0), ClusterShare(traffic=100)),
    ]


def test_a_clock_that_is_behind_does_not_turn_the_picture_back() -> None:
    events = an_example_upgrade()[:4]
    behind = [*events[:3], replace(events[3], time=START)]
    points = timeline.from_events(_read(behind)).points
    assert [each.at - START for each in points] == [_after(0), _after(60.25), _after(60.25)]
    assert points[-1].new.traffic == 5


def test_a_cluster_that_was_gone_had_no_traffic_to_show() -> None:
    data = ue.Started(
        upgrade=UPGRADE, reason=ue.Cause.ACTIVE_CLUSTER_GONE, strategy="NewCluster", generation=4
    )
    assert timeline.from_events(_read([an_event(data)])).points == []


def test_what_was_seen_goes_on_after_the_last_event() -> None:
    found = timeline.from_events(_read(an_example_upgrade()[:4]))
    samples = [
        _a_sample(20, 100, 0),
        _a_sample(75, 80, 20),
        _a_sample(76, 80, 20),
        _a_sample(90, 0, 100, over="Promoted"),
    ]
    longer = timeline.extend(found, samples)
    assert [each.new.traffic for each in longer.points] == [0, 0, 5, 20, 100]
    assert [each.kind for each in longer.lines][4:] == ["seen"] * 3
    assert (longer.ended, longer.outcome) == (START + _after(90), "Promoted")


def test_a_status_that_is_behind_the_last_event_takes_nothing_back() -> None:
    found = timeline.from_events(_read(an_example_upgrade()[:4]))
    samples = [_a_sample(70.6, 100, 0), _a_sample(71, 90, 10)]
    assert [each.new.traffic for each in timeline.extend(found, samples).points] == [0, 0, 5, 10]


def test_observed_state_adds_nothing_to_an_upgrade_with_a_published_end() -> None:
    found = timeline.from_events(_read(an_example_upgrade()))
    assert timeline.extend(found, [_a_sample(900, 50, 50)]) == found


def test_an_upgrade_without_events() -> None:
    made = timeline.from_samples([_a_sample(0, 100, 0), _a_sample(5, 80, 20)])
    assert [(each.old.traffic, each.new.traffic) for each in made.points] == [(100, 0), (80, 20)]
    assert made.lines[-1].text == (
        f"seen: {UPGRADE.old} traffic 80 %, capacity 100 %; {UPGRADE.new} traffic 20 %, capacity 20 %"
    )


@pytest.mark.parametrize(
    ("outcome", "severity"),
    [
        ("Pass", Severity.GOOD),
        ("Fail", Severity.BAD),
        ("Inconclusive", Severity.WARN),
        ("Later", Severity.PLAIN),
    ],
)
def test_a_verdict_is_a_point_and_a_line_with_its_severity(
    outcome: str, severity: Severity
) -> None:
    seconds, example = next(
        (seconds, data) for seconds, data in EXAMPLES if isinstance(data, ue.GateEvaluated)
    )
    event = an_event(replace(example, outcome=outcome), seconds=seconds)
    found = timeline.from_events(_read([event]))
    (verdict,) = found.verdicts
    assert (verdict.at, verdict.weight, verdict.gate) == (START + _after(75), 5, "errorRate")
    assert (verdict.outcome, verdict.text) == (outcome, example.message)
    assert [each.severity for each in found.lines] == [severity]


def test_texts_of_a_forged_event_are_bounded() -> None:
    _, example = next(
        (seconds, data) for seconds, data in EXAMPLES if isinstance(data, ue.GateEvaluated)
    )
    forged = replace(example, message="x" * 9000, gate="\x1b[31m" + "g" * 9000, outcome="o" * 9000)
    (verdict,) = timeline.from_events(_read([an_event(forged)])).verdicts
    assert (len(verdict.text), len(verdict.gate), len(verdict.outcome)) <= (200, 64, 64)
    assert "\x1b" not in verdict.gate


def test_verdicts_of_the_record_fill_in_where_no_event_brought_any() -> None:
    step = StepVerdicts(
        weight=1, since=START, gates=(VERDICT, replace(VERDICT, outcome="Inconclusive"))
    )
    upgrade = RecordedUpgrade(
        old="a", new="b", began_at=START, max_capacity=100, min_capacity=100, steps=(step,)
    )
    bare = timeline.Timeline(id="seen", old="a", new="b", began=START)
    found = timeline.add_verdicts(bare, upgrade)
    assert [(each.weight, each.outcome) for each in found.verdicts] == [(1, "Pass")]
    assert timeline.add_verdicts(found, None) == found
    other = replace(found, verdicts=found.verdicts * 2)
    assert timeline.add_verdicts(other, upgrade) == other
