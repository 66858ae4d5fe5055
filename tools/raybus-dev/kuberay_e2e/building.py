"""Copies KubeRay's checkout, patches the copy, and compiles its tests and its submitter."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from kuberay_e2e import declarations
from kuberay_e2e.declarations import Declarations
from localcluster import binaries, processes, settings
from localcluster.errors import ClusterError
from localcluster.images import archive
from localcluster.images.archive import Layer
from localcluster.images.dockerfile import ImageConfig
from localcluster.progress import Progress
from localcluster.settings import LocalSettings

SUBMITTER_IMAGE: Final = "docker.io/kuberay/submitter:nightly"
"""The image name under which the suite e2erayjobsubmitter requests KubeRay's own submitter."""
_COMPILE_SECONDS: Final = 120
"""Estimated seconds of a first build on two cores. Later builds take seconds."""
_FOLDERS: Final = ("apis", "config", "controllers", "internal", "pkg", "rayjob-submitter", "test")
_FILES: Final = ("go.mod", "go.sum")
_TEST_DOUBLES: Final = (Path(__file__).with_name("raybus_test.go.txt"),)
"""Go files that are copied into KubeRay's folder controllers/ray. The suffix `.txt` is removed."""


class SuiteSource(msgspec.Struct, frozen=True, kw_only=True):
    """The patched copy of the folder ray-operator, and how to run Go in it."""

    folder: Path
    go: Path
    environment: dict[str, str]


async def prepare(checkout: Path, declared: Declarations, progress: Progress) -> SuiteSource:
    """Copy KubeRay's source into the cache, and patch the copy.

    `checkout` is a checkout of KubeRay, or its folder ray-operator. Raises `ClusterError` if it is
    neither, or if a patch does not fit.
    """
    origin = checkout / "ray-operator" if (checkout / "ray-operator").is_dir() else checkout
    if not (origin / "test" / "e2erayjob").is_dir():
        raise ClusterError(
            f"KUBERAY={checkout}: there is no folder ray-operator/test/e2erayjob; name a checkout "
            "of github.com/ray-project/kuberay"
        )
    given = LocalSettings.from_environment()
    folder = given.cache_root / "kuberay-e2e" / "ray-operator"
    shutil.rmtree(folder, ignore_errors=True)
    for name in _FOLDERS:
        shutil.copytree(origin / name, folder / name)
    for name in _FILES:
        shutil.copyfile(origin / name, folder / name)
    for patch in declared.patches:
        declarations.apply(folder, patch)
    for path in _TEST_DOUBLES:
        shutil.copyfile(path, folder / "controllers" / "ray" / path.stem)
    go = await binaries.find_go_toolchain(given, progress)
    environment = binaries.build_go_environment() | {"GOFLAGS": "-buildvcs=false"}
    return SuiteSource(folder=folder, go=go, environment=environment)


async def obtain_assets(progress: Progress) -> Path:
    """Return a folder with the programs of a control plane, for `KUBEBUILDER_ASSETS`."""
    names = ["etcd", "kube-apiserver", "kubectl"]
    programs = await binaries.obtain(names, LocalSettings.from_environment(), progress)
    return programs.path("kube-apiserver").parent


async def compile_tests(source: SuiteSource, packages: Sequence[str], progress: Progress) -> None:
    """Compile the tests of Go packages, so that `go test` starts at once later."""
    argv = [str(source.go), "test", "-vet=off", "-run", "^$", *packages]
    await _run_go(argv, source, "compiling KubeRay's tests", progress)


async def build_submitter(source: SuiteSource, progress: Progress) -> Path:
    """Compile KubeRay's submitter.

    Return the archive of an image that contains only the submitter.
    """
    tree = source.folder.with_name("submitter")
    shutil.rmtree(tree, ignore_errors=True)
    tree.mkdir(mode=0o755)
    argv = [str(source.go), "build", "-trimpath", "-ldflags=-s -w", "-o", str(tree / "submitter")]
    await _run_go([*argv, "./rayjob-submitter/cmd"], source, "compiling its submitter", progress)
    layer = source.folder.with_name("submitter-layer.tar")
    image = source.folder.with_name("submitter-image.tar")
    archive.write(
        image,
        SUBMITTER_IMAGE,
        ImageConfig(user="65532:65532", entrypoint=("/submitter",)),
        [Layer(path=layer, digest=archive.write_tar(tree, layer))],
        architecture=settings.find_go_architecture(),
    )
    return image


async def _run_go(argv: Sequence[str], source: SuiteSource, title: str, progress: Progress) -> None:
    with progress.step(title, estimate=_COMPILE_SECONDS) as step:
        finished = await processes.follow(
            argv,
            lambda line: step.note(line[:60]),
            environment=source.environment,
            cwd=source.folder,
        )
    if finished.code != 0:
        raise ClusterError(
            f"go {argv[1]} failed: {processes.find_last_line(finished.errors)}; try "
            f"'{' '.join(argv)}' in {source.folder}"
        )
