"""Writes by processes without the permission, or without the version that they observed, are found."""

from chaos.checker import writes
from common.bus.subjects import ObjectRef, compute_partition
from support.tables import cases
from unit.chaos.a_history import NAMESPACE, HistoryBuilder, partitions_of

OURS = str(compute_partition(ObjectRef("RayCluster", NAMESPACE, "c")))
OTHERS = str((int(OURS) + 1) % 64)


def rules(run: HistoryBuilder) -> list[str]:
    return [each.rule for each in writes.judge(run.writes, run.seen, partitions_of).violations]


LISTED = {"scaleStrategy": {"workersToDelete": ["w1"]}}
AUTOSCALED = {"enableInTreeAutoscaling": True}


def a_deletion(run: HistoryBuilder, name: str = "w1") -> HistoryBuilder:
    return run.write(verb="delete", resource="pods", name=name, based_on="uid", top_owner=None)


GOOD = {
    "nobody has a Lease": HistoryBuilder().write(),
    "the owner writes": HistoryBuilder().lease("a", OURS).write(),
    "another owns something else": HistoryBuilder().lease("a", OURS).lease("b", OTHERS).write(),
    "before the end": HistoryBuilder()
    .lease("a", OURS)
    .write()
    .lease("a", "", is_gone=True)
    .lease("b", OURS),
    "a claim beside a Lease that is alive": HistoryBuilder()
    .lease("a", OURS)
    .lease("b", OURS)
    .write(),
    "the other has let go": HistoryBuilder().lease("b", OURS).lease("b", "").write(),
    "a create is based on nothing": HistoryBuilder().write(
        verb="create", based_on="", resource="pods"
    ),
    "the autoscaler listed the pod": a_deletion(
        HistoryBuilder().cluster("c", spec=AUTOSCALED, group=LISTED).pod("w1")
    ),
    "no autoscaler": a_deletion(HistoryBuilder().cluster("c").pod("w1")),
    "a suspended cluster": a_deletion(
        HistoryBuilder().cluster("c", spec=AUTOSCALED | {"suspend": True}).pod("w1")
    ),
    "a failed pod": a_deletion(
        HistoryBuilder().cluster("c", spec=AUTOSCALED).pod("w1", phase="Failed")
    ),
    "a head": a_deletion(HistoryBuilder().cluster("c", spec=AUTOSCALED).pod("h", node="head"), "h"),
}


@cases("run", GOOD)
def test_it_lets_pass(run: HistoryBuilder) -> None:
    assert rules(run) == []


FENCED = "no write by a fenced owner"
SPOILED = {
    "another replica owns the partition": (HistoryBuilder().lease("b", OURS).write(), FENCED),
    "a zombie writes after its Lease was taken away": (
        HistoryBuilder().lease("a", OURS).lease("a", OURS, is_gone=True).lease("b", OURS).write(),
        FENCED,
    ),
    "a write after the hand-over": (
        HistoryBuilder().lease("a", OURS).lease("a", "").lease("b", OURS).write(),
        FENCED,
    ),
    "an update of whatever is there": (
        HistoryBuilder().write(based_on=""),
        "every write names its base",
    ),
    "a deletion by name alone": (
        HistoryBuilder().write(verb="delete", resource="pods", based_on=""),
        "every write names its base",
    ),
    "a pod that the autoscaler did not list": (
        a_deletion(HistoryBuilder().cluster("c", spec=AUTOSCALED, group=LISTED).pod("w2"), "w2"),
        "the autoscaler's pods",
    ),
}


@cases(("run", "rule"), SPOILED)
def test_it_finds(run: HistoryBuilder, rule: str) -> None:
    assert rules(run) == [rule]


def test_it_reports_how_much_was_read() -> None:
    run = a_deletion(
        HistoryBuilder()
        .lease("a", OURS)
        .cluster("c", spec=AUTOSCALED, group=LISTED)
        .pod("w1")
        .write()
    )
    judged = writes.judge(run.writes, run.seen, partitions_of)
    assert (judged.against_leases, judged.with_base, judged.autoscaled) == (1, 2, 1)
