"""A layer's tar: the same bytes for the same content."""

import os
import py_compile
import tarfile
from pathlib import Path
from py_compile import PycInvalidationMode

import pytest

from localcluster.errors import ClusterError
from localcluster.images import archive


def _tree(folder: Path, *, time: int) -> Path:
    (folder / "b").mkdir(parents=True)
    (folder / "b" / "file").write_text("content")
    (folder / "a").symlink_to("b/file")
    os.link(folder / "b" / "file", folder / "c")
    for path in (folder / "b" / "file", folder / "b"):
        os.utime(path, (time, time))
    return folder


def test_times_and_order_of_creation_leave_no_trace(tmp_path: Path) -> None:
    first = archive.write_tar(_tree(tmp_path / "1", time=1_000_000_000), tmp_path / "1.tar")
    second = archive.write_tar(_tree(tmp_path / "2", time=1_100_000_000), tmp_path / "2.tar")

    assert first == second
    assert (tmp_path / "1.tar").read_bytes() == (tmp_path / "2.tar").read_bytes()


def test_a_compiled_file_may_not_hold_the_time_of_its_source(tmp_path: Path) -> None:
    source = tmp_path / "module.py"
    source.write_text("")
    compiled = tmp_path / "tree" / "module.pyc"

    py_compile.compile(
        str(source), str(compiled), invalidation_mode=PycInvalidationMode.UNCHECKED_HASH
    )
    archive.write_tar(tmp_path / "tree", tmp_path / "layer.tar")
    py_compile.compile(str(source), str(compiled), invalidation_mode=PycInvalidationMode.TIMESTAMP)
    with pytest.raises(ClusterError, match=r"/module\.pyc holds the time of its source"):
        archive.write_tar(tmp_path / "tree", tmp_path / "layer.tar")


def test_links_stay_links(tmp_path: Path) -> None:
    archive.write_tar(_tree(tmp_path / "tree", time=0), tmp_path / "layer.tar")

    with tarfile.open(tmp_path / "layer.tar") as tar:
        kinds = {member.name: (member.type, member.linkname) for member in tar}
    assert kinds == {
        "a": (tarfile.SYMTYPE, "b/file"),
        "b": (tarfile.DIRTYPE, ""),
        "b/file": (tarfile.REGTYPE, ""),
        "c": (tarfile.LNKTYPE, "b/file"),
    }
