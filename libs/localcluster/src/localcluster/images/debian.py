"""Makes the base that `FROM debian:bookworm-slim` names, with debootstrap: Debian's minimal set, trimmed as the official slim image is."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from localcluster.images import sandbox
from localcluster.images.host import SUITE, Host
from localcluster.images.layer import TIMESTAMP
from localcluster.progress import Progress

SECONDS = 55.0
_PROGRAM = "debootstrap"
TOOLS = {_PROGRAM: (_PROGRAM,)}
"""Debian package → its program."""
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


def bootstrap(tree: Path, host: Host, progress: Progress, log: Path, environment: Mapping[str, str]) -> None:
    """Make the base in the new folder `tree`."""
    command = [_PROGRAM, "--variant=minbase", SUITE, str(tree), host.mirror]
    with progress.step("image base: Debian's minimal set", estimate=SECONDS) as shown:
        # /etc/shadow contains the day on which an account was made.
        dated = {**environment, "SOURCE_DATE_EPOCH": str(TIMESTAMP)}
        sandbox.run(command, what="debootstrap", shown=shown, log=log, environment=dated)
        _trim(tree)
    tree.chmod(0o755)


def _trim(tree: Path) -> None:
    """Empty generated files, remove documentation that a container does not need; licences stay."""
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
