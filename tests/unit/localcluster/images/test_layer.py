"""A layer's tar: the same bytes for the same content."""

import os
import tarfile
from pathlib import Path

from localcluster.images import layer


def _tree(folder: Path, *, time: int) -> Path:
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "file").write_text("content")
    (folder / "a").symlink_to("b/file")
    os.link(folder / "b" / "file", folder / "c")
    for path in (folder / "b" / "file", folder / "b"):
        os.utime(path, (time, time))
    return folder


def test_times_and_order_of_creation_leave_no_trace(tmp_path: Path) -> None:
    first = layer.write_tar(_tree(tmp_path / "1", time=1_000_000_000), tmp_path / "1.tar")
    second = layer.write_tar(_tree(tmp_path / "2", time=1_100_000_000), tmp_path / "2.tar")

    assert first == second
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()


def test_links_stay_links(tmp_path: Path) -> None:
    layer.write_tar(_tree(tmp_path / "tree", time=0), tmp_path / "layer.tar")

    with tarfile.open(tmp_path / "layer.tar") as tar:
        kinds = {member.name: (member.type, member.linkname) for member in tar}
    assert kinds == {
        "a": (tarfile.SYMTYPE, "b/file"),
        "b": (tarfile.DIRTYPE, ""),
        "b/file": (tarfile.REGTYPE, ""),
        "c": (tarfile.LNKTYPE, "b/file"),
    }
