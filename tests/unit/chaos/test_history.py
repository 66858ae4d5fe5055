"""The rules that hold at every moment find what was changed, and nothing else."""

from chaos.checker import history
from support.tables import cases
from unit.chaos.a_history import HistoryBuilder


def rules(run: HistoryBuilder) -> list[str]:
    return [each.rule for each in history.judge(run.seen)]


def an_upgrade() -> HistoryBuilder:
    """Return the history of an upgrade: blue serves, green is created, takes over in steps, blue is
    deleted.
    """
    run = HistoryBuilder().service(pending="blue").cluster("blue", service="s", spec_hash="1")
    run.service(active="blue").route({"blue": 100})
    run.service(active="blue", pending="green", generation=2).cluster(
        "green", service="s", spec_hash="2"
    )
    run.route({"blue": 50, "green": 50}).route({"blue": 0, "green": 100}).service(
        active="green", generation=2
    )
    return run.route({"green": 100}).cluster("blue", service="s", spec_hash="1", is_gone=True)


GOOD = {
    "an upgrade in steps": an_upgrade(),
    "as many pods as wanted": HistoryBuilder()
    .cluster("c", workers=2)
    .pod("h", node="head")
    .pod("w1")
    .pod("w2"),
    "a head after one that is being deleted": HistoryBuilder()
    .pod("h1", node="head")
    .pod("h1", node="head", is_going=True)
    .pod("h2", node="head"),
    "a head after one that failed": HistoryBuilder()
    .pod("h1", node="head")
    .pod("h1", node="head", phase="Failed")
    .pod("h2", node="head"),
    "a pod in each place": HistoryBuilder()
    .cluster("c", workers=2)
    .pod("w1", index="0")
    .pod("w2", index="1"),
    "a worker in the place of one that is being deleted": HistoryBuilder()
    .cluster("c")
    .pod("w1", index="0")
    .pod("w1", index="0", is_going=True)
    .pod("w2", index="0"),
    "a worker that was wanted a moment ago": HistoryBuilder()
    .cluster("c", workers=2)
    .cluster("c", workers=0, at=1.0)
    .pod("w1", at=2.0),
    "workers of a cluster that the watch delivered late": HistoryBuilder()
    .pod("w1")
    .pod("w2")
    .cluster("c", workers=2),
    "a cluster for a spec after the first cluster is gone": an_upgrade()
    .service(active="green", pending="blue2", generation=2)
    .cluster("blue2", service="s", spec_hash="1"),
    "a cluster that goes with its service": an_upgrade()
    .state("RayService", "s", is_gone=True)
    .cluster("green", service="s", is_gone=True),
}


@cases("run", GOOD)
def test_it_lets_pass(run: HistoryBuilder) -> None:
    assert rules(run) == []


SPOILED = {
    "two heads": (HistoryBuilder().pod("h1", node="head").pod("h2", node="head"), "one head"),
    "a worker too many": (
        HistoryBuilder().cluster("c").pod("w1").pod("w2"),
        "no more workers than wanted",
    ),
    "a worker too many before the watch delivered the cluster": (
        HistoryBuilder().pod("w1").pod("w2").cluster("c"),
        "no more workers than wanted",
    ),
    "a worker that was wanted long ago": (
        HistoryBuilder()
        .cluster("c", workers=2)
        .cluster("c", workers=1, at=1.0)
        .pod("w1", at=40.0)
        .pod("w2", at=40.0),
        "no more workers than wanted",
    ),
    "two workers with one index, and no more than wanted": (
        HistoryBuilder().cluster("c", workers=2).pod("w1", index="0").pod("w2", index="0"),
        "one pod for one place",
    ),
    "two clusters for one spec": (
        HistoryBuilder().service(pending="x").cluster("x", service="s").cluster("y", service="s"),
        "one cluster for one spec",
    ),
    "weights make 90": (an_upgrade().route({"green": 90}), "weights make 100"),
    "a weight on a cluster that went": (
        an_upgrade().route({"blue": 10, "green": 90}),
        "no weight on what is gone",
    ),
    "a cluster goes under its weight": (
        an_upgrade().cluster("green", service="s", is_gone=True),
        "no weight on what is gone",
    ),
    "a cluster is deleted under its weight": (
        an_upgrade().cluster("green", service="s", is_going=True),
        "no weight on what is gone",
    ),
    "an old status is written again": (an_upgrade().service(generation=1), "no status regresses"),
}


@cases(("run", "rule"), SPOILED)
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
