"""Where a tree stands is the same in every process and release."""

import pytest

from common.bus.subjects import Place, Ref, Tree, place_of


@pytest.mark.parametrize(
    ("kind", "place"),
    [("RayService", Place(9, Tree.SERVICE)), ("RayCluster", Place(61, Tree.CLUSTER))],
)
def test_a_root_has_its_place(kind: str, place: Place) -> None:
    assert place_of(Ref(kind, "ns", "demo")) == place
