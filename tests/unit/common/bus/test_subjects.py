"""The partition of a tree, and the fields that are read for it, are the same in every process and
release.
"""

import pytest

from common.bus.subjects import (
    MARKED_TREES,
    ObjectRef,
    StateSubject,
    TreeKind,
    TreeLocation,
    build_marker_subject,
    build_partition_filter,
    build_state_subject,
    locate_tree,
    parse_state,
)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("RayService", TreeLocation(9, TreeKind.SERVICE)),
        ("RayCluster", TreeLocation(61, TreeKind.CLUSTER)),
        ("RayJob", TreeLocation(57, TreeKind.JOB)),
        ("RayCronJob", TreeLocation(29, TreeKind.JOB)),
    ],
)
def test_a_root_has_its_place(kind: str, place: TreeLocation) -> None:
    assert locate_tree(ObjectRef(kind, "ns", "demo")) == place


def test_a_filter_is_of_a_whole_partition_or_of_its_trees_of_one_kind() -> None:
    assert build_partition_filter(9) == "ray.state.9.>"
    assert build_partition_filter("*", TreeKind.SERVICE) == "ray.state.*.service.>"


@pytest.mark.parametrize("tree", TreeKind)
def test_a_state_subject_reads_as_it_was_built(tree: TreeKind) -> None:
    place = TreeLocation(9, tree)
    subject = build_state_subject(place, "Pod", "ns", "demo.head")
    assert parse_state(subject) == StateSubject(place, "pod", "ns", "demo.head")


@pytest.mark.parametrize(
    "subject", ["ray.state.9.other.pod.ns.x", "ray.state.x.job.pod.ns.x", "ray.state.9.job.synced"]
)
def test_another_subject_is_of_no_object(subject: str) -> None:
    assert parse_state(subject) is None


@pytest.mark.parametrize("tree", [None, *MARKED_TREES])
def test_a_reader_of_some_trees_gets_the_marker_of_the_partition(tree: TreeKind | None) -> None:
    prefix = build_partition_filter(9, tree).removesuffix(">")
    assert build_marker_subject(9, tree).startswith(prefix)
