"""Writes by processes without the permission, or without the version that they observed, are found."""

import pytest

from chaos.checker import writes
from common.bus.subjects import ObjectRef, compute_partition
from unit.chaos.a_history import NAMESPACE, HistoryBuilder, partitions_of

OURS = str(compute_partition(ObjectRef("RayCluster", NAMESPACE, "c")))
OTHERS = str((int(OURS) + 1) % 64)


def rules(run: HistoryBuilder) -> list[str]:
    return [each.rule for each in writes.judge(run.writes, run.seen, partitions_of).violations]


LISTED = {"scaleStrategy": {"workersToDelete": ["w1"]}}
AUTOSCALED = {"enableInTreeAutoscaling": True}


def a_deletion(run: HistoryBuilder, name: str = "w1") -> HistoryBuilder:
    return run.write(verb="delete", resource="pods", name=name, based_on="uid", of_root=None)


GOOD = [
    pytest.param(HistoryBuilder().write(), id="nobody has a Lease"),
    pytest.param(HistoryBuilder().lease("a", OURS).write(), id="the owner writes"),
    pytest.param(
        HistoryBuilder().lease("a", OURS).lease("b", OTHERS).write(),
        id="another owns something else",
    ),
    pytest.param(
        HistoryBuilder().lease("a", OURS).write().lease("a", "", is_gone=True).lease("b", OURS),
        id="before the end",
    ),
    pytest.param(
        HistoryBuilder().lease("a", OURS).lease("b", OURS).write(),
        id="a claim beside a Lease that is alive",
    ),
    pytest.param(
        HistoryBuilder().lease("b", OURS).lease("b", "").write(), id="the other has let go"
    ),
    pytest.param(
        HistoryBuilder().write(verb="create", based_on="", resource="pods"),
        id="a create is based on nothing",
    ),
    pytest.param(
        a_deletion(HistoryBuilder().cluster("c", spec=AUTOSCALED, group=LISTED).pod("w1")),
        id="the autoscaler listed the pod",
    ),
    pytest.param(a_deletion(HistoryBuilder().cluster("c").pod("w1")), id="no autoscaler"),
    pytest.param(
        a_deletion(HistoryBuilder().cluster("c", spec=AUTOSCALED | {"suspend": True}).pod("w1")),
        id="a suspended cluster",
    ),
    pytest.param(
        a_deletion(HistoryBuilder().cluster("c", spec=AUTOSCALED).pod("w1", phase="Failed")),
        id="a failed pod",
    ),
    pytest.param(
        a_deletion(HistoryBuilder().cluster("c", spec=AUTOSCALED).pod("h", node="head"), "h"),
        id="a head",
    ),
]


@pytest.mark.parametrize("run", GOOD)
def test_it_lets_pass(run: HistoryBuilder) -> None:
    assert rules(run) == []


FENCED = "no write by a fenced owner"
SPOILED = [
    pytest.param(
        HistoryBuilder().lease("b", OURS).write(), FENCED, id="another replica owns the partition"
    ),
    pytest.param(
        HistoryBuilder().lease("a", OURS).lease("a", OURS, is_gone=True).lease("b", OURS).write(),
        FENCED,
        id="a zombie writes after its Lease was taken away",
    ),
    pytest.param(
        HistoryBuilder().lease("a", OURS).lease("a", "").lease("b", OURS).write(),
        FENCED,
        id="a write after the hand-over",
    ),
    pytest.param(
        HistoryBuilder().write(based_on=""),
        "every write names its base",
        id="an update of whatever is there",
    ),
    pytest.param(
        HistoryBuilder().write(verb="delete", resource="pods", based_on=""),
        "every write names its base",
        id="a deletion by name alone",
    ),
    pytest.param(
        a_deletion(HistoryBuilder().cluster("c", spec=AUTOSCALED, group=LISTED).pod("w2"), "w2"),
        "the autoscaler's pods",
        id="a pod that the autoscaler did not list",
    ),
]


@pytest.mark.parametrize(("run", "rule"), SPOILED)
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
