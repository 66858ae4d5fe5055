"""Where a tree stands, and what is read of it, is the same in every process and release."""

import pytest

from common.bus.subjects import Place, Ref, Tree, partition_filter, place_of


@pytest.mark.parametrize(
    ("kind", "place"),
    [("RayService", Place(9, Tree.SERVICE)), ("RayCluster", Place(61, Tree.CLUSTER))],
)
def test_a_root_has_its_place(kind: str, place: Place) -> None:
    assert place_of(Ref(kind, "ns", "demo")) == place


def test_a_filter_is_of_a_whole_partition_or_of_its_trees_of_one_kind() -> None:
    assert partition_filter(9) == "ray.state.9.>"
    assert partition_filter("*", Tree.SERVICE) == "ray.state.*.service.>"
