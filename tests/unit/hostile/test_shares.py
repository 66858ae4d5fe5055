"""The cause of a slow reaction is read from the audit log."""

from datetime import UTC, datetime, timedelta

from hostile import shares
from hostile.shares import Span
from support.audit_log import ACCOUNT, Line, Reference, User

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> float:
    return (START + timedelta(seconds=seconds)).timestamp()


def a_line(
    began: float,
    ended: float,
    name: str,
    what: str = "rayclusters",
    *,
    verb: str = "update",
    ours: bool = True,
) -> Line:
    return Line(
        verb=verb,
        user=User(f"{ACCOUNT}cluster-reconciler" if ours else "kwok"),
        object_ref=Reference("victim", what, name, "" if ours else "status"),
        began=START + timedelta(seconds=began),
        ended=START + timedelta(seconds=ended),
    )


LINES = [
    a_line(0.5, 1.5, "scaled-g-worker-1", "pods", verb="create"),
    a_line(1.0, 1.25, "scaled-g-worker-2", "pods", verb="create"),
    a_line(3.0, 3.0, "scaled-g-worker-1", "pods", ours=False),
    a_line(4.0, 4.0, "scaled-g-worker-2", "pods", ours=False),
    a_line(4.5, 5.0, "scaled"),
    a_line(2.0, 9.0, "upgraded-0"),
    a_line(9.5, 11.0, "scaled"),
    a_line(0.0, 60.0, "scaled", verb="watch"),
]


def test_each_second_of_a_reaction_counts_once() -> None:
    found = shares.compute_shares([Span(name="scaled", began=at(0), ended=at(10))], LINES)
    assert (found.api_server, found.nodes, found.rest) == (2.0, 2.5, 5.5)
    assert found.slowest_hundredth == [2.0, 2.5, 5.5]


def test_the_slowest_hundredth_stands_apart() -> None:
    quick = Span(name="scaled", began=at(100), ended=at(101))
    found = shares.compute_shares(
        [*[quick] * 99, Span(name="scaled", began=at(0), ended=at(10))], LINES
    )
    assert found.rest == round((99 + 5.5) / 100, 3)
    assert found.slowest_hundredth == [2.0, 2.5, 5.5]


def test_without_reactions_there_are_no_shares() -> None:
    assert shares.compute_shares([], LINES).slowest_hundredth == [0.0, 0.0, 0.0]
