"""Which root an object has, whatever the order in which its tree is seen."""

import itertools
from typing import cast

import pytest

from common.api.meta import ObjectMeta, OwnerReference
from common.bus.subjects import ObjectRef
from watcher.addressing import OwnerGraph, RootAddress, find_parent

SERVICE = ObjectRef("RayService", "ns", "svc")
CLUSTER = ObjectRef("RayCluster", "ns", "svc-abcde")
POD = ObjectRef("Pod", "ns", "svc-abcde-head")
HEAD_SERVICE = ObjectRef("Service", "ns", "svc-abcde-head-svc")
SLICE = ObjectRef("EndpointSlice", "ns", "svc-abcde-head-svc-x1")


def meta(*, owner: tuple[str, str] | None = None, **labels: str) -> ObjectMeta:
    owners = [OwnerReference(kind=owner[0], name=owner[1], controller=True)] if owner else []
    names = {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
    return ObjectMeta(namespace="ns", name="x", owner_references=owners, labels=names)


@pytest.mark.parametrize(
    ("kind", "found", "parent"),
    [
        pytest.param("RayService", meta(), None, id="a RayService is a root"),
        pytest.param("RayCluster", meta(), None, id="a RayCluster that a user made is a root"),
        pytest.param(
            "RayCluster",
            meta(owner=("RayService", "svc")),
            SERVICE,
            id="a RayCluster by its controller",
        ),
        pytest.param(
            "RayCluster", meta(owner=("RayJob", "job")), None, id="a RayJob is none of ours"
        ),
        pytest.param(
            "Pod", meta(owner=("RayCluster", "svc-abcde")), CLUSTER, id="a pod by its controller"
        ),
        pytest.param("Pod", meta(), None, id="a pod without anything"),
        pytest.param(
            "EndpointSlice",
            meta(owner=("Service", "svc-abcde-head-svc")),
            HEAD_SERVICE,
            id="a slice",
        ),
        pytest.param("HTTPRoute", meta(owner=("RayService", "svc")), SERVICE, id="a route"),
    ],
)
def test_an_object_stands_below_its_controller(
    kind: str, found: ObjectMeta, parent: ObjectRef | None
) -> None:
    assert find_parent(kind, found) == parent


def labelled(**labels: str) -> ObjectMeta:
    names = {
        "cluster": "ray.io/cluster",
        "origin": "ray.io/originated-from-cr-name",
        "crd": "ray.io/originated-from-crd",
    }
    owners = (
        [OwnerReference(kind="RayCluster", name="svc-abcde", controller=True)]
        if "owned" in labels
        else []
    )
    return ObjectMeta(
        namespace="ns",
        name="x",
        owner_references=owners,
        labels={names[k]: v for k, v in labels.items() if k in names},
    )


@pytest.mark.parametrize(
    ("kind", "found", "parent"),
    [
        pytest.param(
            "RayCluster",
            labelled(origin="svc", crd="RayService"),
            SERVICE,
            id="a RayCluster by its origin",
        ),
        pytest.param(
            "RayCluster",
            labelled(origin="job", crd="RayJob"),
            None,
            id="a RayCluster of a RayJob is a root",
        ),
        pytest.param(
            "Pod", labelled(cluster="svc-abcde"), CLUSTER, id="an orphaned pod by its label"
        ),
        pytest.param(
            "Service",
            labelled(origin="svc", crd="RayService"),
            SERVICE,
            id="the RayService's head Service",
        ),
        pytest.param(
            "HTTPRoute",
            labelled(origin="svc", crd="RayService"),
            SERVICE,
            id="a user's route, once marked",
        ),
        pytest.param("HTTPRoute", labelled(), None, id="a user's route before that"),
        pytest.param(
            "Service",
            labelled(origin="svc-abcde", crd="RayService", owned="yes"),
            CLUSTER,
            id="a cluster's own Serve Service has RayService in its labels, its controller knows better",
        ),
    ],
)
def test_labels_decide_where_there_is_no_controller(
    kind: str, found: ObjectMeta, parent: ObjectRef | None
) -> None:
    assert find_parent(kind, found) == parent


TREE: list[tuple[ObjectRef, ObjectRef | None]] = [
    (SERVICE, None),
    (CLUSTER, SERVICE),
    (POD, CLUSTER),
    (HEAD_SERVICE, CLUSTER),
    (SLICE, HEAD_SERVICE),
]
AT_SERVICE = RootAddress(ObjectRef("RayService", "ns", "svc"), is_certain=True)


@pytest.mark.parametrize("order", list(itertools.permutations(TREE)))
def test_the_root_does_not_depend_on_the_order(
    order: list[tuple[ObjectRef, ObjectRef | None]],
) -> None:
    graph = OwnerGraph()
    addresses: dict[ObjectRef, RootAddress] = {}
    for ref, parent in order:
        moved = graph.add(ref, parent)
        for each in [ref, *moved]:
            addresses[each] = graph.address(each)

    assert set(addresses.values()) == {AT_SERVICE}


def test_a_child_without_its_parent_is_uncertain() -> None:
    graph = OwnerGraph()
    graph.add(POD, CLUSTER)

    assert graph.address(POD) == RootAddress(
        ObjectRef("RayCluster", "ns", "svc-abcde"), is_certain=False
    )


def test_a_parent_is_remembered_while_something_stands_below_it() -> None:
    graph = OwnerGraph()
    for ref, parent in TREE:
        graph.add(ref, parent)
    graph.remove(CLUSTER)
    assert graph.address(POD) == AT_SERVICE

    for ref in (SLICE, HEAD_SERVICE, POD, SERVICE):
        graph.remove(ref)
    assert not any(vars(graph).values())


def test_a_new_parent_moves_all_that_stands_below() -> None:
    graph = OwnerGraph()
    for ref, parent in TREE:
        graph.add(ref, parent)

    moved = graph.add(CLUSTER, ObjectRef("RayService", "ns", "other"))

    assert set(moved) == {POD, HEAD_SERVICE, SLICE}
    assert graph.address(SLICE).root == ObjectRef("RayService", "ns", "other")


def test_owners_in_a_circle_end_somewhere() -> None:
    graph = OwnerGraph()
    graph.add(CLUSTER, HEAD_SERVICE)
    graph.add(HEAD_SERVICE, CLUSTER)

    assert graph.address(CLUSTER).root.namespace == "ns"


class Counted:
    """Stands for a `Ref` and counts how often it is compared."""

    comparisons = 0

    def __init__(self, number: int) -> None:
        self.number = number

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        Counted.comparisons += 1
        return self is other

    def __lt__(self, other: "Counted") -> bool:
        Counted.comparisons += 1
        return self.number < other.number


def comparisons_of_a_new_parent(children: int) -> int:
    graph = OwnerGraph()
    root, *below = (cast("ObjectRef", Counted(number)) for number in range(children + 1))
    graph.add(root, None)
    for each in below:
        graph.add(each, root)
    Counted.comparisons = 0
    assert len(graph.add(root, SERVICE)) == children
    return Counted.comparisons


def test_a_new_parent_costs_no_more_than_there_are_objects_below() -> None:
    assert comparisons_of_a_new_parent(5_000) <= 5_000


@pytest.mark.parametrize("kind", ["RayCluster", "Service", "Pod"])
def test_no_label_or_owner_makes_a_tree_deeper_than_its_kinds(kind: str) -> None:
    own = (
        labelled(origin="next", crd="RayCluster")
        if kind == "RayCluster"
        else meta(owner=("Service", "next"))
    )
    assert find_parent(kind, own) is None
