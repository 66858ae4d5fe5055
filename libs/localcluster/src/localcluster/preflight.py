"""The requirements of a node on this machine; each missing one is a line that names the remedy."""

import shutil
import sys
from pathlib import Path

from localcluster import settings
from localcluster.errors import ClusterError

PACKAGES = {
    "containerd": ("containerd",),
    "runc": ("runc",),
    "containernetworking-plugins": ("/usr/lib/cni/ptp", "/opt/cni/bin/ptp"),
    "nftables": ("nft",),
    "iproute2": ("ip",),
}
"""Debian package → its programs; one of them suffices."""

RUN_GIB = 10
"""Images, container file systems and logs of a demo."""

_CONTROLLERS = ("cpu", "cpuset", "memory", "pids")
_CGROUPS = Path("/sys/fs/cgroup")


def check(state_root: Path) -> None:
    """Fail on the first thing that is missing and that we do not install ourselves."""
    if not sys.platform.startswith("linux"):
        raise ClusterError("the driver 'built' needs Linux; start Docker and use --driver kind")
    if not settings.is_root():
        raise ClusterError(
            "the driver 'built' makes namespaces and cgroups: run it as root, or start Docker and use --driver kind"
        )
    missing = [controller for controller in _CONTROLLERS if not has_controller(controller)]
    if missing:
        raise ClusterError(
            f"the cgroup controllers {', '.join(missing)} are not available; mount /sys/fs/cgroup with them (cgroup v1 or v2)"
        )
    check_disk(state_root, RUN_GIB, "images and containers")


def check_disk(folder: Path, gibibytes: int, purpose: str) -> None:
    """Fail if the file system under `folder` (which need not exist yet) has too little free space."""
    existing = next(parent for parent in (folder, *folder.parents) if parent.exists())
    free = shutil.disk_usage(existing).free / 2**30
    if free < gibibytes:
        raise ClusterError(
            f"{existing} has {free:.1f} GiB free, {purpose} need {gibibytes} GiB: free some, or point XDG_CACHE_HOME and XDG_STATE_HOME at a larger disk"
        )


def has_controller(name: str) -> bool:
    """Return whether pods can be limited by this cgroup controller."""
    unified = _CGROUPS / "cgroup.controllers"
    if unified.exists():
        return name in unified.read_text().split()
    return (_CGROUPS / name / "cgroup.procs").exists()
