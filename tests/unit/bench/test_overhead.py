"""What an operator adds to the floor, beside what a peer adds."""

import pytest
from msgspec.structs import replace

from bench import overhead
from bench.overhead import API_SERVER, OverheadRound
from bench.scale_up import ScaleUpFigures, sum_bytes

PAGE = """\
# HELP apiserver_response_sizes [STABLE] Response size distribution in bytes
apiserver_response_sizes_bucket{verb="GET",le="1000"} 5
apiserver_response_sizes_sum{verb="GET",resource="pods"} 1.5e+03
apiserver_response_sizes_count{verb="GET",resource="pods"} 5
apiserver_watch_events_sizes_sum{resource="pods"} 2048
apiserver_watch_events_sizes_count{resource="pods"} 3
"""


def figures(wall: float, server: float = 1.0, sent: int = 100, cpu: float = 0.0) -> ScaleUpFigures:
    """Build the figures of ten clusters."""
    return ScaleUpFigures(
        name="operator",
        clusters=10,
        wall=wall,
        ready_at=[],
        cpu_seconds=cpu,
        control_plane_cpu={API_SERVER: server},
        server_bytes=sent,
    )


def a_round(own: float, peer: float) -> OverheadRound:
    """Build a round in which the floor takes 10 s."""
    return OverheadRound(
        floor=figures(10.0),
        own=figures(own, server=2.0, sent=300, cpu=1.0),
        peer=figures(peer, server=3.0, sent=500, cpu=2.0),
    )


def test_the_overhead_is_what_is_added_to_the_floor_as_a_share_of_what_the_peer_adds() -> None:
    found = overhead.compute([a_round(own=11.0, peer=14.0)])
    assert [each.ratios for each in found] == [[0.25], [0.5], [0.5], [0.5]]
    assert [each.goal.is_reached for each in found] == [True, True, True, True]


def test_the_median_of_the_rounds_is_judged_and_the_spread_is_shown() -> None:
    rounds = [a_round(own=own, peer=14.0) for own in (11.0, 13.0, 12.0)]
    goal = overhead.compute(rounds)[0].goal
    assert goal.value == "0.50 (0.25 to 0.75)"
    assert goal.is_reached
    assert not overhead.compute([*rounds[1:], a_round(own=14.0, peer=14.0)])[0].goal.is_reached


@pytest.mark.parametrize("peer", [10.0, 9.5])
def test_a_round_in_which_the_peer_adds_nothing_is_not_judged(peer: float) -> None:
    found = overhead.compute([a_round(own=11.0, peer=peer)])[0]
    assert (found.ratios, found.goal.is_reached) == ([], None)
    assert "added anything" in found.goal.value


def test_bytes_sent_are_those_of_answers_and_of_watch_events() -> None:
    assert sum_bytes(PAGE) == 3548


def test_the_time_that_an_operator_adds_is_known_for_each_program() -> None:
    floor = figures(10.0, server=1.0)
    own = replace(figures(12.0, server=3.0), control_plane_cpu={API_SERVER: 3.0, "etcd": 0.0})
    own = replace(own, cpu_by_program={"watcher": 0.5})
    assert overhead.compute_by_program([floor], [own]) == {API_SERVER: 200.0, "watcher": 50.0}
