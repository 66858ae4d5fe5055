"""Locations of files: names that cannot clash, and folders that contain them."""

from pathlib import Path

import msgspec
import pytest

from localcluster.errors import MisuseError
from localcluster.settings import LocalSettings

_SETTINGS = LocalSettings(
    checkout=Path("/src/one"), cache_root=Path("/cache"), state_root=Path("/state")
)


def test_two_checkouts_have_two_names() -> None:
    other = msgspec.structs.replace(_SETTINGS, checkout=Path("/src/two"))
    assert _SETTINGS.default_name != other.default_name
    assert len(_SETTINGS.default_name) == len("raybus-123456")


def test_a_user_may_name_the_cluster_once_for_all_commands(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYBUS_CLUSTER", "mine")
    assert (
        LocalSettings.from_environment().layout().name,
        LocalSettings.from_environment().layout("other").name,
    ) == ("mine", "other")


@pytest.mark.parametrize("name", ["", "A", "a_b", "-a", "a-", "a" * 16, "../x", "1a"])
def test_a_name_that_could_not_name_a_network_is_refused(name: str) -> None:
    with pytest.raises(MisuseError, match="cluster name"):
        _SETTINGS.layout(name)


def test_every_file_of_a_cluster_lies_under_its_name() -> None:
    layout = _SETTINGS.layout("mine")
    places = [layout.record, layout.work, layout.kubeconfig, layout.images, layout.resolv_conf]
    assert all(place.is_relative_to("/state/mine") for place in places)


def test_removal_keeps_the_image_store_unless_purged(tmp_path: Path) -> None:
    layout = msgspec.structs.replace(_SETTINGS, state_root=tmp_path).layout("mine")
    for folder in (layout.work, layout.images):
        folder.mkdir(parents=True)
    layout.kubeconfig.write_text("{}")
    layout.remove(purge=False)
    assert sorted(tmp_path.rglob("*")) == [layout.state, layout.images]
    layout.remove(purge=True)
    assert list(tmp_path.iterdir()) == []
