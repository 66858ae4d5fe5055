"""The files that a COPY takes from the checkout."""

from pathlib import Path

import pytest

from localcluster.errors import ClusterError
from localcluster.images.dockerfile import Copy
from localcluster.images.plan import BuildContext

_COPY = Copy(line=3, origin="", sources=("src",), target="/")
_BINARY = Copy(line=4, origin="binaries", sources=("/tool",), target="/")


def _context(checkout: Path, **binaries: Path) -> BuildContext:
    (checkout / "src").mkdir(exist_ok=True)
    (checkout / "src/main.py").write_text("main")
    return BuildContext(checkout, binaries, "# compiled\n**/*.pyc\n.git\n")


def test_ignored_files_and_permissions_of_the_checkout_do_not_count(tmp_path: Path) -> None:
    before = _context(tmp_path).digest(_COPY)
    (tmp_path / "src/main.pyc").write_text("compiled")
    (tmp_path / "src/main.py").chmod(0o600)
    context = _context(tmp_path)
    (tmp_path / "out").mkdir()
    context.copy_files(_COPY, tmp_path / "out")

    assert context.digest(_COPY) == before
    assert [path.name for path in (tmp_path / "out/src").iterdir()] == ["main.py"]
    assert (tmp_path / "out/src/main.py").stat().st_mode & 0o777 == 0o644


def test_a_file_that_changes_during_the_build_is_refused(tmp_path: Path) -> None:
    context = _context(tmp_path)
    context.digest(_COPY)
    (tmp_path / "src/main.py").write_text("changed")

    with pytest.raises(ClusterError, match="src changed while images were built"):
        context.copy_files(_COPY, tmp_path / "out")


def test_a_missing_binary_is_named(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match="line 4: the binary 'tool' is missing"):
        _context(tmp_path).digest(_BINARY)
    with pytest.raises(ClusterError, match=r"the binary 'tool': .* is no file"):
        _context(tmp_path, tool=tmp_path / "absent").digest(_BINARY)


def test_a_missing_source_names_its_line(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"line 3: COPY src: .* does not exist"):
        BuildContext(tmp_path, {}, "").digest(_COPY)


def test_an_ignore_line_that_docker_reads_differently_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=r"dockerignore line 1: '!src' is not supported"):
        BuildContext(tmp_path, {}, "!src")
