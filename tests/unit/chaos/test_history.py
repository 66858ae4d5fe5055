"""The rules that hold at every moment find what was spoiled, and nothing else."""

import pytest

from chaos.checker import history
from unit.chaos.a_history import HistoryBuilder


def rules(run: HistoryBuilder) -> list[str]:
    return [each.rule for each in history.judge(run.seen)]


def an_upgrade() -> HistoryBuilder:
    """Blue serves, green is made, takes over in steps, blue goes."""
    run = HistoryBuilder().service(pending="blue").cluster("blue", service="s", spec_hash="1")
    run.service(active="blue").route({"blue": 100})
    run.service(active="blue", pending="green", generation=2).cluster(
        "green", service="s", spec_hash="2"
    )
    run.route({"blue": 50, "green": 50}).route({"blue": 0, "green": 100}).service(
        active="green", generation=2
    )
    return run.route({"green": 100}).cluster("blue", service="s", spec_hash="1", is_gone=True)


GOOD = [
    pytest.param(an_upgrade(), id="an upgrade in steps"),
    pytest.param(
        HistoryBuilder().cluster("c", workers=2).pod("h", node="head").pod("w1").pod("w2"),
        id="as many pods as wanted",
    ),
    pytest.param(
        HistoryBuilder()
        .pod("h1", node="head")
        .pod("h1", node="head", is_going=True)
        .pod("h2", node="head"),
        id="a head after one that is being deleted",
    ),
    pytest.param(
        HistoryBuilder()
        .pod("h1", node="head")
        .pod("h1", node="head", phase="Failed")
        .pod("h2", node="head"),
        id="a head after one that failed",
    ),
    pytest.param(
        HistoryBuilder().cluster("c", workers=2).pod("w1", index="0").pod("w2", index="1"),
        id="a pod in each place",
    ),
    pytest.param(
        HistoryBuilder()
        .cluster("c")
        .pod("w1", index="0")
        .pod("w1", index="0", is_going=True)
        .pod("w2", index="0"),
        id="a worker in the place of one that is being deleted",
    ),
    pytest.param(
        HistoryBuilder().cluster("c", workers=2).cluster("c", workers=0, at=1.0).pod("w1", at=2.0),
        id="a worker that was wanted a moment ago",
    ),
    pytest.param(
        HistoryBuilder().pod("w1").pod("w2").cluster("c", workers=2),
        id="workers of a cluster that the watch delivered late",
    ),
    pytest.param(
        an_upgrade()
        .service(active="green", pending="blue2", generation=2)
        .cluster("blue2", service="s", spec_hash="1"),
        id="a cluster for a spec after the first cluster is gone",
    ),
    pytest.param(
        an_upgrade()
        .state("RayService", "s", is_gone=True)
        .cluster("green", service="s", is_gone=True),
        id="a cluster that goes with its service",
    ),
]


@pytest.mark.parametrize("run", GOOD)
def test_it_lets_pass(run: HistoryBuilder) -> None:
    assert rules(run) == []


SPOILED = [
    pytest.param(
        HistoryBuilder().pod("h1", node="head").pod("h2", node="head"), "one head", id="two heads"
    ),
    pytest.param(
        HistoryBuilder().cluster("c").pod("w1").pod("w2"),
        "no more workers than wanted",
        id="a worker too many",
    ),
    pytest.param(
        HistoryBuilder().pod("w1").pod("w2").cluster("c"),
        "no more workers than wanted",
        id="a worker too many before the watch delivered the cluster",
    ),
    pytest.param(
        HistoryBuilder()
        .cluster("c", workers=2)
        .cluster("c", workers=1, at=1.0)
        .pod("w1", at=40.0)
        .pod("w2", at=40.0),
        "no more workers than wanted",
        id="a worker that was wanted long ago",
    ),
    pytest.param(
        HistoryBuilder().cluster("c", workers=2).pod("w1", index="0").pod("w2", index="0"),
        "one pod for one place",
        id="two workers with one index, and no more than wanted",
    ),
    pytest.param(
        HistoryBuilder().service(pending="x").cluster("x", service="s").cluster("y", service="s"),
        "one cluster for one spec",
        id="two clusters for one spec",
    ),
    pytest.param(an_upgrade().route({"green": 90}), "weights make 100", id="weights make 90"),
    pytest.param(
        an_upgrade().route({"blue": 10, "green": 90}),
        "no weight on what is gone",
        id="a weight on a cluster that went",
    ),
    pytest.param(
        an_upgrade().cluster("green", service="s", is_gone=True),
        "no weight on what is gone",
        id="a cluster goes under its weight",
    ),
    pytest.param(
        an_upgrade().cluster("green", service="s", is_going=True),
        "no weight on what is gone",
        id="a cluster is deleted under its weight",
    ),
    pytest.param(
        an_upgrade().service(generation=1),
        "no status regresses",
        id="an old status is written again",
    ),
]


@pytest.mark.parametrize(("run", "rule"), SPOILED)
def test_it_finds(run: HistoryBuilder, rule: str) -> None:
    assert rules(run) == [rule]


def test_the_order_of_versions_counts_and_not_that_of_arrival() -> None:
    run = an_upgrade()
    run.seen.reverse()
    assert rules(run) == []


def test_a_state_that_is_reported_twice_is_judged_once() -> None:
    run = HistoryBuilder().pod("h1", node="head").pod("h2", node="head")
    run.seen += run.seen
    assert rules(run) == ["one head"]
