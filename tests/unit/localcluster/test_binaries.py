"""Which program is taken: a given one, a cached one, or none yet."""

from pathlib import Path

from localcluster import binaries
from localcluster.settings import Settings


def test_given_programs_go_before_cached_ones_and_the_rest_is_missing(tmp_path: Path) -> None:
    given = Settings(
        checkout=tmp_path,
        cache_root=tmp_path / "c",
        state_root=tmp_path,
        assets=tmp_path / "assets",
    )
    for folder, names in (
        (tmp_path / "assets", ["etcd"]),
        (given.binary_cache, ["etcd", "kubelet"]),
    ):
        folder.mkdir(parents=True)
        for name in names:
            (folder / name).touch()
    found, missing = binaries.locate(["etcd", "kubelet", "kwok"], given)
    assert found == {
        "etcd": tmp_path / "assets" / "etcd",
        "kubelet": given.binary_cache / "kubelet",
    }
    assert missing == ["kwok"]
