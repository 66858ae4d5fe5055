"""Performs one step of a stage inside the private mount namespace that `sandbox` created.

This module runs as a program (`python -m localcluster.images.inside`) with a `StepJob` as JSON on
standard input. The program mounts the root file system, then copies files or becomes the RUN
command. It is pid 1 of its own PID namespace, so all its mounts and processes end with it.
"""

import os
import posixpath
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import msgspec

from localcluster.images.dockerfile import MakeFolder, Run

MOUNT = "/run/build"
"""Where `HostFiles.folder` is mounted for a RUN. `/run` is a new tmpfs."""

_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
_PLAIN_OVERLAY = "index=off,redirect_dir=off,metacopy=off"
"""Mount options of overlayfs that make the upper folder a complete layer.

They disable redirects, and copies that have only metadata.
"""
_MAX_LINKS = 40


class CopyFiles(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A step that copies `sources` to `target`.

    The sources are in the file system made of `layers` (top first), or in `folder`.
    """

    line: int
    sources: tuple[str, ...]
    target: str
    layers: tuple[str, ...] = ()
    folder: str = ""


class HostFiles(msgspec.Struct, frozen=True, kw_only=True):
    """Files of this machine that let a RUN reach package indexes.

    They are mounted into the root file system, and never become part of a layer.
    """

    resolv_conf: str
    folder: str
    """Folder of certificates and configuration, which is mounted at `MOUNT`."""
    find_links: tuple[str, ...] = ()
    """Local folders of wheels, each mounted at /run/wheels-NUMBER."""


class StepJob(msgspec.Struct, frozen=True, kw_only=True):
    """One step of a stage, and the layers of the root file system that it changes."""

    root: str
    """An empty folder on which the root file system of the step is mounted."""

    store: str
    """Folder to which the paths of layers, `upper` and `work` are relative.

    Relative paths keep the mount options short, and free of characters that mount(8) interprets.
    """

    lowers: tuple[str, ...]
    """Paths of the lower layers, top first."""

    upper: str
    work: str
    host: HostFiles
    step: Run | CopyFiles | MakeFolder


class StepError(Exception):
    """The step failed; the message is for the user."""


def perform(job: StepJob) -> None:
    """Mount the root file system and perform the step.

    A RUN replaces this process, so the call does not return. Raises `StepError` if the step fails.
    """
    os.umask(0o022)
    root = Path(job.root)
    lowers = ":".join(job.lowers)
    options = f"lowerdir={lowers},upperdir={job.upper},workdir={job.work},{_PLAIN_OVERLAY}"
    _mount("-t", "overlay", "-o", options, "overlay", job.root, folder=job.store)
    match job.step:
        case MakeFolder(path=path):
            _make_folders(root, path)
        case CopyFiles():
            _copy(root, job.step, job)
        case Run():
            _mount_system(root, job.host)
            _become(root, job.step)


def resolve(root: Path, path: str) -> Path:
    """Return the path on this machine of `path` inside the root file system `root`.

    Symbolic links are followed as by a process inside. Parts that do not exist are kept. Raises
    `StepError` for more than 40 links.
    """
    done = root
    parts = [part for part in reversed(path.split("/")) if part not in {"", "."}]
    links = 0
    while parts:
        part = parts.pop()
        if part == "..":
            done = done if done == root else done.parent
            continue
        candidate = done / part
        if not candidate.is_symlink():
            done = candidate
            continue
        links += 1
        if links > _MAX_LINKS:
            raise StepError(f"{path}: too many symbolic links")
        target = str(candidate.readlink())
        if target.startswith("/"):
            done = root
        parts.extend(part for part in reversed(target.split("/")) if part not in {"", "."})
    return done


def copy_entry(source: Path, target: Path) -> None:
    """Copy a file, link or folder with its permissions.

    Folders are merged; existing files are replaced. Raises `StepError` for other types.
    """
    kind = source.lstat().st_mode
    if stat.S_ISDIR(kind):
        if target.is_symlink() or not target.is_dir():
            target.unlink(missing_ok=True)
            target.mkdir()
        target.chmod(stat.S_IMODE(kind))
        for child in sorted(source.iterdir()):
            copy_entry(child, target / child.name)
        return
    if target.is_dir() and not target.is_symlink():
        raise StepError(f"{target} is a folder, {source.name} is not")
    target.unlink(missing_ok=True)
    if stat.S_ISLNK(kind):
        target.symlink_to(source.readlink())
    elif stat.S_ISREG(kind):
        shutil.copyfile(source, target)
        target.chmod(stat.S_IMODE(kind))
    else:
        raise StepError(f"{source.name} is neither a file, a folder nor a link")


def _copy(root: Path, step: CopyFiles, job: StepJob) -> None:
    origin = Path(step.folder) if step.folder else _mount_origin(step, job)
    target = resolve(root, step.target)
    into = step.target.endswith("/") or len(step.sources) > 1 or target.is_dir()
    for name in step.sources:
        source = resolve(origin, name)
        if not source.exists():
            raise StepError(f"line {step.line}: COPY {name}: no such file; correct the path")
        if source.is_dir():
            destination = _make_folders(root, step.target)
        elif into:
            destination = _make_folders(root, step.target) / source.name
        else:
            destination = _make_folders(root, posixpath.dirname(step.target)) / target.name
        copy_entry(source, destination)


def _mount_origin(step: CopyFiles, job: StepJob) -> Path:
    """Mount the stage from which files are copied; return the mount point.

    The mount point is beside the root file system. Without an upper folder, overlayfs needs at
    least two lower layers. Every stage has them.
    """
    origin = Path(job.root).with_name("origin")
    origin.mkdir(exist_ok=True)
    _mount(
        "-t",
        "overlay",
        "-o",
        f"lowerdir={':'.join(step.layers)}",
        "overlay",
        str(origin),
        folder=job.store,
    )
    return origin


def _make_folders(root: Path, path: str) -> Path:
    folder = resolve(root, path)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _mount_system(root: Path, host: HostFiles) -> None:
    for name in ("dev", "proc", "run"):
        (root / name).mkdir(exist_ok=True)
    _mount("-t", "proc", "proc", str(root / "proc"))
    _mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(root / "run"))
    _mount("-t", "tmpfs", "-o", "mode=0755", "tmpfs", str(root / "dev"))
    for device in _DEVICES:
        (root / "dev" / device).touch()
        _mount("--bind", f"/dev/{device}", str(root / "dev" / device))
    (root / "dev" / "fd").symlink_to("/proc/self/fd")
    (root / "dev" / "shm").mkdir(mode=0o1777)
    (root / "dev" / "shm").chmod(0o1777)
    resolv_conf = root / "etc" / "resolv.conf"
    if resolv_conf.exists():
        _mount("--bind", host.resolv_conf, str(resolv_conf))
    here = root / MOUNT.lstrip("/")
    here.mkdir()
    _mount("--bind", host.folder, str(here))
    for number, folder in enumerate(host.find_links):
        wheels = root / "run" / f"wheels-{number}"
        wheels.mkdir()
        _mount("--bind", folder, str(wheels))


def _become(root: Path, step: Run) -> None:
    """Replace this process by the command of a RUN, with the command's user and environment."""
    uid, gid = find_identity(root, step.user)
    os.chroot(root)
    os.chdir(step.workdir)
    if uid or gid:
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    # The command comes from the project's own Dockerfile.
    os.execvpe(step.argv[0], step.argv, step.env)  # noqa: S606


def find_identity(root: Path, user: str) -> tuple[int, int]:
    """Return the uid and gid for an image's `USER`: numbers, or a name in its /etc/passwd.

    Raises `StepError` for any other value.
    """
    name, _, group = user.partition(":")
    if not name:
        return 0, 0
    if name.isdigit() and (group.isdigit() or not group):
        return int(name), int(group or 0)
    for line in (root / "etc" / "passwd").read_text().splitlines():
        fields = line.split(":")
        if fields[0] == name and not group:
            return int(fields[2]), int(fields[3])
    raise StepError(f"USER {user}: not in the image's /etc/passwd; use numbers (uid:gid)")


def _mount(*arguments: str, folder: str | None = None) -> None:
    done = subprocess.run(
        ["mount", *arguments], cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StepError(f"mount {' '.join(arguments)}: {done.stderr.strip()}")


def main() -> int:
    """Read a `StepJob` from standard input and perform it. Return the exit code."""
    job = msgspec.json.decode(sys.stdin.buffer.read(), type=StepJob)
    try:
        perform(job)
    except (StepError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
