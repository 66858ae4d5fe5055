"""Builds images of a tiny project for real: chroot, overlay layers, archives.  Needs root, no network."""

import io
import os
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import msgspec
import pytest

from localcluster.errors import ClusterError
from localcluster.images import builder
from localcluster.images.archive import TIMESTAMP
from localcluster.images.builder import ImageArchive
from localcluster.progress import Progress

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(os.geteuid() != 0, reason="chroot and mounts need root"),
]

_DOCKERFILE = """
FROM scratch AS base
COPY system/ /
RUN echo kept > /kept && echo gone > /gone && mkdir /full && echo x > /full/x
FROM scratch AS tools
COPY system/ /
RUN echo made > /made
FROM base AS app
LABEL raybus.image="example.test/app:1"
COPY --from=tools /made /srv/made
COPY --from=binaries /tool /srv/
RUN rm /gone && rm -r /full && mkdir /full && echo "$APP $(id -u)" > /written
ENV APP=late
USER 7:7
ENTRYPOINT ["/bin/sh"]
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
    root = tmp_path / "checkout"
    (root / "deploy/images").mkdir(parents=True)
    (root / "deploy/images/Dockerfile").write_text(
        _DOCKERFILE.replace("RUN rm", "ARG APP=early\nRUN rm")
    )
    for program in ("sh", "rm", "mkdir", "id", "sleep"):
        _add_program(root / "system", program)
    (root / "tool").write_text("a tool")
    return root


def _add_program(system: Path, name: str) -> None:
    """Copy a program of this machine with the libraries that it names."""
    program = shutil.which(name)
    assert program
    linked = subprocess.run(["ldd", program], capture_output=True, text=True, check=False).stdout
    for path in (f"/bin/{name}", *re.findall(r"/\S+", linked)):
        target = system / path.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(program if path == f"/bin/{name}" else path, target)


def _ensure(checkout: Path) -> ImageArchive:
    files = {"tool": checkout / "tool"}
    return builder.ensure(["app"], progress=Progress.silent(), files=files, checkout=checkout)[
        "app"
    ]


def _read(archive: ImageArchive) -> tuple[dict[str, object], list[dict[str, bytes]]]:
    """Return the image's configuration and, layer by layer, its files."""
    with tarfile.open(archive.path) as outer:

        def member(name: str) -> bytes:
            stream = outer.extractfile(name)
            assert stream
            return stream.read()

        manifest = msgspec.json.decode(
            member("manifest.json"), type=list[dict[str, str | list[str]]]
        )[0]
        assert manifest["RepoTags"] == [archive.ref]
        layers: list[dict[str, bytes]] = []
        for name in manifest["Layers"]:
            stream = outer.extractfile(name)
            with tarfile.open(fileobj=stream) as inner:
                files = ((each.name, inner.extractfile(each)) for each in inner if each.isreg())
                layers.append({name: file.read() for name, file in files if file is not None})
        config = msgspec.json.decode(member(str(manifest["Config"])), type=dict[str, object])
    return config, layers


def test_an_image_has_a_layer_per_stage_with_deletions_and_nothing_of_the_host(
    checkout: Path,
) -> None:
    config, (base, app) = _read(_ensure(checkout))

    assert (base["kept"], base["gone"]) == (b"kept\n", b"gone\n")
    assert app == {
        ".wh.gone": b"",
        "full/.wh..wh..opq": b"",
        "written": b"early 0\n",
        "srv/made": b"made\n",
        "srv/tool": b"a tool",
    }
    container = config["config"]
    assert isinstance(container, dict)
    assert (container["User"], container["Entrypoint"], "APP=late" in container["Env"]) == (
        "7:7",
        ["/bin/sh"],
        True,
    )


def test_the_second_build_does_nothing_and_a_change_builds_anew(checkout: Path) -> None:
    first, second = _ensure(checkout), _ensure(checkout)
    (checkout / "tool").write_text("another tool")
    third = _ensure(checkout)

    assert (first.built, second.built, third.built) == (True, False, True)
    assert first.digest == second.digest != third.digest


def test_two_checkouts_at_two_times_give_the_same_image(
    checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = _ensure(checkout)
    other = shutil.copytree(checkout, tmp_path / "another checkout")
    for path in other.rglob("*"):
        os.utime(path, (1_000_000_000, 1_000_000_000))
        path.chmod(path.stat().st_mode & 0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another cache, with: signs"))
    second = _ensure(other)

    assert second.built
    assert first.manifest == second.manifest
    assert first.path.read_bytes() == second.path.read_bytes()
    assert _times(first) == {TIMESTAMP}


def _times(image: ImageArchive) -> set[float]:
    """Return the times of all files of an archive and of its layers."""
    with tarfile.open(image.path) as outer:
        times = {entry.mtime for entry in outer}
        for name in msgspec.json.decode(
            (outer.extractfile("manifest.json") or io.BytesIO()).read()
        )[0]["Layers"]:
            with tarfile.open(fileobj=outer.extractfile(name)) as layer:
                times |= {entry.mtime for entry in layer}
    return times


def test_a_failing_command_names_its_line_and_leaves_no_mount(
    checkout: Path, tmp_path: Path
) -> None:
    path = checkout / "deploy/images/Dockerfile"
    path.write_text(
        path.read_text().replace("RUN rm /gone", "RUN echo oh no; exit 3\nRUN rm /gone")
    )

    with pytest.raises(
        ClusterError,
        match=r"Dockerfile line 13 \(stage app\) failed \(exit code 3\): oh no; all of it: ",
    ):
        _ensure(checkout)
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()
    path.write_text(path.read_text().replace("RUN echo oh no; exit 3\n", ""))
    assert _ensure(checkout).built
