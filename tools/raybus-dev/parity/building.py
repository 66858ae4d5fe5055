"""Compiles a program with KubeRay's code: the version that `kuberay/go.mod` names, or a checkout.

The line `require github.com/ray-project/kuberay/ray-operator` in `go.mod` has the version; `go mod
tidy` in that folder renews the hashes in `go.sum`.
"""

import asyncio
import re
import shutil
from pathlib import Path
from typing import Final

import msgspec

from localcluster import binaries, processes
from localcluster.errors import ClusterError
from localcluster.progress import Progress
from localcluster.settings import LocalSettings

SOURCES: Final = Path(__file__).with_name("kuberay")
MODULE: Final = "github.com/ray-project/kuberay/ray-operator"
SECONDS: Final = 240
"""Estimated seconds of a first build on two cores. Later builds take seconds."""
_SINCE_1_7: Final = Path("controllers") / "ray" / "raycluster_mtls_controller.go"
"""A file that exists in KubeRay v1.7 and newer."""


def pinned() -> str:
    """Return the released version of KubeRay that `go.mod` names, such as `v1.6.2`."""
    match = re.search(rf"{re.escape(MODULE)} (v\S+)", (SOURCES / "go.mod").read_text())
    assert match is not None, f"kuberay/go.mod requires no {MODULE}"
    return match[1]


async def build(checkout: Path | None, progress: Progress) -> tuple[Path, Path]:
    """Compile the program that runs KubeRay's code. Return its path and that of KubeRay's source.

    `checkout` is a `ray-operator` folder to compile instead of the pinned version of KubeRay.
    Raises `ClusterError` if the folder has no `go.mod` or the build fails.
    """
    if checkout is not None and not (checkout / "go.mod").is_file():
        raise ClusterError(
            f"KUBERAY={checkout}: there is no go.mod; name the folder ray-operator of a checkout "
            "of KubeRay"
        )
    settings = LocalSettings.from_environment()
    go = str(await binaries.find_go_toolchain(settings, progress))
    folder = settings.cache_root / "parity" / ("checkout" if checkout else pinned())
    shutil.rmtree(folder / "source", ignore_errors=True)
    shutil.copytree(SOURCES, folder / "source")
    source = folder / "source"
    if checkout is not None:
        _replace(source, checkout)
    what = f"KubeRay of {checkout}" if checkout else f"KubeRay {pinned()}"
    with progress.step(f"compiling {what}", estimate=SECONDS) as step:
        own = checkout or Path(
            msgspec.json.decode(await _go([go, "mod", "download", "-json", MODULE], source))["Dir"]
        )
        tags = [] if (own / _SINCE_1_7).exists() else ["-tags", "kuberay_1_6"]
        argv = [go, "build", "-v", *tags, "-o", str(folder / "parity"), "."]
        finished = await processes.follow(
            argv,
            lambda line: step.note(line[:60]),
            environment=binaries.build_go_environment(),
            cwd=source,
        )
        if finished.code != 0:
            raise ClusterError(f"go build failed: {processes.find_last_line(finished.errors)}")
    return folder / "parity", own


def _replace(source: Path, checkout: Path) -> None:
    """Write a `go.mod` that requires the checkout, and copy the checkout's `go.sum`."""
    text = (
        f"module parity\n\ngo 1.26.0\n\nrequire {MODULE} v0.0.0\n\nreplace {MODULE} => "
        f"{checkout.resolve()}\n"
    )
    (source / "go.mod").write_text(text)
    shutil.copyfile(checkout / "go.sum", source / "go.sum")


async def _go(argv: list[str], folder: Path) -> str:
    finished = await processes.run(argv, environment=binaries.build_go_environment(), cwd=folder)
    if finished.code != 0:
        cause = processes.find_last_line(finished.errors or finished.output)
        raise ClusterError(f"{' '.join(argv[1:])} failed: {cause}; check GOPROXY and the network")
    return finished.output


def program(checkout: Path | None, progress: Progress) -> tuple[Path, Path]:
    """Run `build` and return its result, for callers without an event loop."""
    return asyncio.run(build(checkout, progress))
