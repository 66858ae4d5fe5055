"""Where a tree stands, and what is read of it, is the same in every process and release."""

import pytest

from common.bus.subjects import (
    ObjectRef,
    TreeKind,
    TreeLocation,
    build_partition_filter,
    locate_tree,
)


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("RayService", TreeLocation(9, TreeKind.SERVICE)),
        ("RayCluster", TreeLocation(61, TreeKind.CLUSTER)),
    ],
)
def test_a_root_has_its_place(kind: str, place: TreeLocation) -> None:
    assert locate_tree(ObjectRef(kind, "ns", "demo")) == place


def test_a_filter_is_of_a_whole_partition_or_of_its_trees_of_one_kind() -> None:
    assert build_partition_filter(9) == "ray.state.9.>"
    assert build_partition_filter("*", TreeKind.SERVICE) == "ray.state.*.service.>"
