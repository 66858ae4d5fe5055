"""Creates the base image `debian:bookworm-slim`, and installs missing Debian packages.

The base image is made by debootstrap and trimmed like the official slim image. Only one apt-get of
this program runs at a time, and it waits for locks of other programs (unattended upgrades, another
test run).
"""

import shutil
import subprocess
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from localcluster import settings
from localcluster.errors import ClusterError
from localcluster.images import sandbox
from localcluster.images.archive import TIMESTAMP
from localcluster.images.sandbox import SUITE, Host
from localcluster.processes import find_last_line
from localcluster.progress import Progress, ProgressStep

LOCK_SECONDS: Final = 600
"""Maximum seconds to wait for the locks of dpkg and apt."""
_RETRY_SECONDS: Final = 2.0
_HELD: Final = ("Could not get lock", "Unable to lock")
"""Error texts of apt-get if another program holds the lock of package lists or downloads.

apt-get itself waits only for dpkg's lock (`DPkg::Lock::Timeout`).
"""

Packages = Mapping[str, tuple[str, ...]]
"""Debian packages, each with the files by which it is recognized.

A file is a program on the PATH or an absolute path. A package counts as installed if one of its
files exists.
"""


def list_missing(packages: Packages) -> list[str]:
    """Return the packages that are not installed."""
    return [package for package, brought in packages.items() if not any(map(_is_present, brought))]


def install(packages: Packages, progress: Progress) -> None:
    """Install the packages that are missing. Blocks, so call it from a thread.

    Raises:
        ClusterError: apt-get does not exist, or cannot install a package.
    """
    lacking = list_missing(packages)
    if not lacking:
        return
    with _hold_lock(progress, lacking):
        wanted = list_missing(packages)  # another run may have installed them meanwhile
        if not wanted:
            return
        progress.report(
            f"Installing Debian packages: {' '.join(wanted)} (apt-get install "
            "--no-install-recommends)"
        )
        with progress.step("installing Debian packages", estimate=30) as step:
            done = _run_with_lists(["install", "-y", "--no-install-recommends", *wanted], step)
    if done.returncode:
        raise ClusterError(
            f"apt-get could not install {' '.join(wanted)}: {find_last_line(done.stderr)}"
        )


def unpack(package: str, target: Path, progress: Progress) -> None:
    """Download a package and unpack it into the folder `target`, without installing it. Blocks.

    Raises:
        ClusterError: This system is not Debian, or apt-get cannot download the package.
    """
    with (
        _hold_lock(progress, [package]),
        progress.step(f"downloading {package} from Debian", estimate=15) as step,
    ):
        target.mkdir(parents=True, exist_ok=True)
        done = _run_with_lists(["download", package], step, folder=target)
        if done.returncode:
            raise ClusterError(
                f"apt-get could not download {package}: {find_last_line(done.stderr)}"
            )
        for archive in target.glob(f"{package}_*.deb"):
            command = ["dpkg-deb", "-x", str(archive), str(target)]
            unpacked = subprocess.run(command, capture_output=True, text=True, check=False)
            if unpacked.returncode:
                raise ClusterError(
                    f"dpkg-deb could not unpack {archive.name}: {find_last_line(unpacked.stderr)}"
                )


def _run_with_lists(
    arguments: Sequence[str], step: ProgressStep, *, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run apt-get. If it fails, update the package lists and run it again."""
    done = _run_apt(arguments, step, folder)
    if done.returncode:
        step.note("updating package lists")
        _run_apt(["update"], step, folder)
        step.note("")
        done = _run_apt(arguments, step, folder)
    return done


def _run_apt(
    arguments: Sequence[str], step: ProgressStep, folder: Path | None
) -> subprocess.CompletedProcess[str]:
    environment = settings.copy_environment() | {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    command = ["apt-get", "-q", "-o", f"DPkg::Lock::Timeout={LOCK_SECONDS}", *arguments]
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=environment, cwd=folder
        )
        is_held = bool(done.returncode) and any(message in done.stderr for message in _HELD)
        if not is_held or time.monotonic() > deadline:
            return done
        step.note("waiting for another apt-get")
        time.sleep(_RETRY_SECONDS)


@contextmanager
def _hold_lock(progress: Progress, wanted: Sequence[str]) -> Generator[None]:
    if shutil.which("apt-get") is None:
        raise ClusterError(
            f"install {', '.join(wanted)} with this system's package manager, then try again"
        )
    folder = settings.LocalSettings.from_environment().cache_root
    folder.mkdir(parents=True, exist_ok=True)
    with progress.locked(
        folder / ".apt.lock", "waiting for another run that installs Debian packages"
    ):
        yield


def _is_present(brought: str) -> bool:
    return Path(brought).exists() if brought.startswith("/") else shutil.which(brought) is not None


SECONDS = 55.0
_PROGRAM = "debootstrap"
TOOLS = {_PROGRAM: (_PROGRAM,)}
"""The Debian package that has debootstrap, with its program."""
_EMPTIED = ("dev", "run", "var/cache", "var/lib/apt/lists", "var/log", "tmp", "proc", "sys")
_DROPPED = (
    "usr/share/doc",
    "usr/share/man",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/lintian",
    "usr/share/groff",
)
_SLIM = """\
path-exclude /usr/share/doc/*
path-include /usr/share/doc/*/copyright
path-exclude /usr/share/man/*
path-exclude /usr/share/info/*
path-exclude /usr/share/locale/*
path-exclude /usr/share/lintian/*
path-exclude /usr/share/groff/*
"""
_CANONICAL = """\
deb http://deb.debian.org/debian bookworm main
deb http://deb.debian.org/debian bookworm-updates main
deb http://deb.debian.org/debian-security bookworm-security main
"""


def create_base(
    tree: Path, host: Host, progress: Progress, log: Path, environment: Mapping[str, str]
) -> None:
    """Create the files of the base image in the new folder `tree`.

    Raises `ClusterError` if debootstrap fails; its output is in `log`.
    """
    command = [_PROGRAM, "--variant=minbase", SUITE, str(tree), host.mirror]
    with progress.step("image base: Debian's minimal set", estimate=SECONDS) as shown:
        # /etc/shadow contains the day on which an account was created.
        dated = {**environment, "SOURCE_DATE_EPOCH": str(TIMESTAMP)}
        sandbox.run(command, what="debootstrap", shown=shown, log=log, environment=dated)
        _trim(tree)
    tree.chmod(0o755)


def _trim(tree: Path) -> None:
    """Empty files that differ in each build; remove documentation that a container does not use.

    Licences are kept.
    """
    for name in _DROPPED:
        for path in sorted((tree / name).glob("**/*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                if not any(path.iterdir()):
                    path.rmdir()
            elif path.name != "copyright":
                path.unlink()
    for name in _EMPTIED:
        for path in (tree / name).iterdir():
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    for name in ("etc/machine-id", "etc/resolv.conf", "etc/hostname"):
        path = tree / name
        path.unlink(missing_ok=True)
        path.touch()
    (tree / "var/cache/apt/archives/partial").mkdir(parents=True)
    (tree / "var/lib/apt/lists/partial").mkdir()
    (tree / "var/log/apt").mkdir()
    (tree / "etc/apt/sources.list").write_text(_CANONICAL)
    (tree / "etc/dpkg/dpkg.cfg.d/slim").write_text(_SLIM)
    policy = tree / "usr/sbin/policy-rc.d"
    policy.write_text("#!/bin/sh\nexit 101\n")
    policy.chmod(0o755)
