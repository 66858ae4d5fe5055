"""The root of an object, which is the same in whatever order its tree is seen."""

import itertools
from typing import cast

import pytest

from common.api.meta import ObjectMeta, OwnerReference
from common.bus.subjects import ObjectRef
from support.tables import cases
from watcher.addressing import OwnerGraph, RootAddress, find_parent

SERVICE = ObjectRef("RayService", "ns", "svc")
CLUSTER = ObjectRef("RayCluster", "ns", "svc-abcde")
POD = ObjectRef("Pod", "ns", "svc-abcde-head")
HEAD_SERVICE = ObjectRef("Service", "ns", "svc-abcde-head-svc")
SLICE = ObjectRef("EndpointSlice", "ns", "svc-abcde-head-svc-x1")
JOB = ObjectRef("RayJob", "ns", "job")
CRON_JOB = ObjectRef("RayCronJob", "ns", "cron")


def meta(*, owner: tuple[str, str] | None = None, **labels: str) -> ObjectMeta:
    owners = [OwnerReference(kind=owner[0], name=owner[1], controller=True)] if owner else []
    names = {key.replace("__", "/").replace("_", "-"): value for key, value in labels.items()}
    return ObjectMeta(namespace="ns", name="x", owner_references=owners, labels=names)


@cases(
    ("kind", "found", "parent"),
    {
        "a RayService is a root": ("RayService", meta(), None),
        "a RayCluster that a user made is a root": ("RayCluster", meta(), None),
        "a RayCluster by its controller": (
            "RayCluster",
            meta(owner=("RayService", "svc")),
            SERVICE,
        ),
        "a RayJob's cluster": ("RayCluster", meta(owner=("RayJob", "job")), JOB),
        "a RayCronJob": ("RayCronJob", meta(owner=("RayService", "svc")), None),
        "a RayJob that a user made is a root": ("RayJob", meta(), None),
        "a RayJob of a schedule": ("RayJob", meta(owner=("RayCronJob", "cron")), CRON_JOB),
        "another owner": ("RayJob", meta(owner=("CronJob", "cron")), None),
        "a submitter": ("Job", meta(owner=("RayJob", "job")), JOB),
        "a Job of someone else": ("Job", meta(owner=("CronJob", "cron")), None),
        "a pod by its controller": ("Pod", meta(owner=("RayCluster", "svc-abcde")), CLUSTER),
        "a pod without anything": ("Pod", meta(), None),
        "a slice": ("EndpointSlice", meta(owner=("Service", "svc-abcde-head-svc")), HEAD_SERVICE),
        "a route": ("HTTPRoute", meta(owner=("RayService", "svc")), SERVICE),
    },
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


OF_SERVICE = labelled(origin="svc", crd="RayService")
OF_JOB = labelled(origin="job", crd="RayJob")


@cases(
    ("kind", "found", "parent"),
    {
        "a RayCluster by its origin": ("RayCluster", OF_SERVICE, SERVICE),
        "a RayCluster of a RayJob by its origin": ("RayCluster", OF_JOB, JOB),
        "no RayCluster stands right below a RayCronJob": (
            "RayCluster",
            labelled(origin="cron", crd="RayCronJob"),
            None,
        ),
        "the RayJob's head Service": ("Service", OF_JOB, JOB),
        "a RayJob has no parent by labels": ("RayJob", labelled(origin="next", crd="RayJob"), None),
        "an orphaned pod by its label": ("Pod", labelled(cluster="svc-abcde"), CLUSTER),
        "the RayService's head Service": ("Service", OF_SERVICE, SERVICE),
        "a user's route, once marked": ("HTTPRoute", OF_SERVICE, SERVICE),
        "a user's route before that": ("HTTPRoute", labelled(), None),
        "a cluster's own Serve Service has RayService in its labels, its controller knows better": (
            "Service",
            labelled(origin="svc-abcde", crd="RayService", owned="yes"),
            CLUSTER,
        ),
    },
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
JOB_TREE: list[tuple[ObjectRef, ObjectRef | None]] = [
    (CRON_JOB, None),
    (JOB, CRON_JOB),
    (CLUSTER, JOB),
    (HEAD_SERVICE, CLUSTER),
    (SLICE, HEAD_SERVICE),
]
AT_SERVICE = RootAddress(ObjectRef("RayService", "ns", "svc"), is_certain=True)


@pytest.mark.parametrize("tree", [TREE, JOB_TREE])
@pytest.mark.parametrize("order", list(itertools.permutations(range(5))))
def test_the_root_does_not_depend_on_the_order(
    tree: list[tuple[ObjectRef, ObjectRef | None]], order: tuple[int, ...]
) -> None:
    graph = OwnerGraph()
    addresses: dict[ObjectRef, RootAddress] = {}
    for ref, parent in (tree[number] for number in order):
        moved = graph.add(ref, parent)
        for each in [ref, *moved]:
            addresses[each] = graph.address(each)

    assert set(addresses.values()) == {RootAddress(tree[0][0], is_certain=True)}


def test_a_child_without_its_parent_is_uncertain() -> None:
    graph = OwnerGraph()
    graph.add(POD, CLUSTER)

    assert graph.address(POD) == RootAddress(
        ObjectRef("RayCluster", "ns", "svc-abcde"), is_certain=False
    )


def test_a_ray_job_may_have_a_ray_cron_job_until_it_is_observed() -> None:
    graph = OwnerGraph()
    graph.add(CLUSTER, JOB)
    assert graph.address(CLUSTER) == RootAddress(JOB, is_certain=False)

    graph.add(JOB, CRON_JOB)
    assert graph.address(CLUSTER) == RootAddress(CRON_JOB, is_certain=True)


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
    """Replaces a `Ref` and counts its comparisons."""

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


@pytest.mark.parametrize("kind", ["RayCronJob", "RayJob", "RayCluster", "Service", "Pod"])
def test_no_label_or_owner_makes_a_tree_deeper_than_its_kinds(kind: str) -> None:
    own = (
        labelled(origin="next", crd="RayCluster")
        if kind == "RayCluster"
        else meta(owner=("Service", "next"))
    )
    assert find_parent(kind, own) is None
