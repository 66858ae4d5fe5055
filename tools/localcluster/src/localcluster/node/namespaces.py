"""Creates the namespaces of a node, runs programs in them, and removes them.

The removal ends all processes of the node. Paths that the node's programs expect (/run,
/var/lib/kubelet, /var/lib/cni, logs, /etc/resolv.conf) are replaced by mounts in the node's own
mount namespace. Therefore nodes do not interfere, and a killed node leaves no mounts.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from localcluster import processes
from localcluster.errors import ClusterError
from localcluster.node import first_process
from localcluster.processes import ProcessId, Spawned

ADDRESS = "10.200.0.1"
"""The node's IP address. Every node has its own network namespace, so all use the same address."""

_MARKER = "raybus-node="
_CGROUPS = Path("/sys/fs/cgroup")

_SETUP = """
set -e
work=$1
mount --make-rshared /
resolv=$(readlink -m /etc/resolv.conf)
mount -t tmpfs -o mode=755 tmpfs /run
mkdir -p /run/netns /run/lock "$(dirname "$resolv")"
[ -e "$resolv" ] || : > "$resolv"
mount --bind "$work/resolv.conf" "$resolv"
for place in /var/lib/kubelet /var/lib/cni /var/log/pods /var/log/containers; do
  mkdir -p "$place" "$work/rooted$place"
  mount --bind "$work/rooted$place" "$place"
done
ip link set lo up
ip link add eth0 type veth peer name eth0-peer
ip link set eth0-peer up
ip addr add ADDRESS/24 dev eth0
ip link set eth0 up
ip route add default via 10.200.0.254
sysctl -qw net.ipv4.ip_forward=1
"""


class Namespaces(msgspec.Struct, frozen=True, kw_only=True):
    """The namespaces of a running node, which are identified by its first process."""

    first: ProcessId

    def enter(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` in the node's mount, network and PID namespaces."""
        return ["nsenter", f"--target={self.first.pid}", "--mount", "--net", "--pid", "--", *argv]

    def enter_network(self, argv: Sequence[str], resolv_conf: Path) -> list[str]:
        """Return the command that runs `argv` with the node's network and DNS.

        The program sees the files and processes of this machine.
        """
        script = 'mount --bind "$0" /etc/resolv.conf && exec "$@"'
        inside = ["unshare", "--mount", "--", "sh", "-c", script, str(resolv_conf), *argv]
        return ["nsenter", f"--target={self.first.pid}", "--net", "--", *inside]


def build_marker(name: str) -> str:
    """Return the argument that identifies a node's first process by its command line."""
    return f"{_MARKER}{name}"


def find(name: str) -> Namespaces | None:
    """Return the running node of a cluster; None if there is none."""
    for process in processes.find_by_argument(build_marker(name)):
        if _is_first(process.pid):
            return Namespaces(first=msgspec.structs.replace(process, name="node"))
    return None


async def create(name: str, work: Path) -> Namespaces:
    """Create the namespaces of a node, with their network and mounts.

    `work` is the folder of the node's files. Raises `ClusterError` if this machine does not permit
    namespaces.
    """
    log = work / "logs" / "node.log"
    argv = [
        "unshare",
        "--mount",
        "--net",
        "--ipc",
        "--pid",
        "--fork",
        "--kill-child=KILL",
        "--mount-proc",
        "--",
    ]
    program = [sys.executable, "-I", "-S", str(Path(first_process.__file__)), build_marker(name)]
    outside = processes.spawn("node", [*argv, *program], log, dies_with_us=False)
    namespaces = await _wait_for_namespaces(name, outside)
    setup = _SETUP.replace("ADDRESS", ADDRESS)
    await processes.run_checked(
        "setting up the node's network and mounts",
        namespaces.enter(["sh", "-c", setup, "setup", str(work)]),
    )
    return namespaces


async def destroy(name: str) -> None:
    """Kill a node with all its processes, in any state. Does nothing if there is no node."""
    pids = processes.find_by_argument(build_marker(name))
    for process in pids:
        processes.kill(process)
    left = await processes.wait_until_gone(pids, timeout=30)
    if left:
        raise ClusterError(
            f"process {left[0].pid} of cluster {name} does not end; check "
            f"/proc/{left[0].pid}/stack and try again"
        )


def make_cgroups(name: str) -> None:
    """Create the cgroup in which the kubelet puts the pods of a node.

    On cgroup v1 there is one cgroup for each controller.
    """
    for parent in _list_cgroup_parents():
        (parent / name).mkdir(exist_ok=True)
    if (_CGROUPS / "cgroup.controllers").exists():
        for folder in (_CGROUPS, _CGROUPS / name):
            wanted = [f"+{controller}" for controller in ("cpu", "memory", "pids", "cpuset")]
            (folder / "cgroup.subtree_control").write_text(" ".join(wanted))


def remove_cgroups(name: str) -> None:
    """Remove the cgroups of a node. Its processes must have ended."""
    for parent in _list_cgroup_parents():
        if (parent / name).is_dir():
            for folder, _, _ in os.walk(parent / name, topdown=False):
                Path(folder).rmdir()


def list_cgroups(name: str) -> list[Path]:
    """Return the cgroups of a node that still exist."""
    return [parent / name for parent in _list_cgroup_parents() if (parent / name).exists()]


def _list_cgroup_parents() -> list[Path]:
    if (_CGROUPS / "cgroup.controllers").exists():
        return [_CGROUPS]
    # cgroup v1: one tree for each controller; some are links to a shared mount.
    return [
        entry
        for entry in _CGROUPS.iterdir()
        if (entry / "cgroup.procs").exists() and not entry.is_symlink()
    ]


async def _wait_for_namespaces(name: str, outside: Spawned) -> Namespaces:
    for _ in range(250):
        namespaces = find(name)
        if namespaces is not None:
            return namespaces
        if outside.popen.poll() is not None:
            cause = processes.find_last_line(outside.log.read_text(errors="replace"))
            raise ClusterError(
                f"this machine does not let us make namespaces ({cause}); run as root outside a "
                "container"
            )
        await asyncio.sleep(0.02)
    raise ClusterError(f"the node's first process did not start; see {outside.log}")


def _is_first(pid: int) -> bool:
    """Return whether a process has number 1 in a nested PID namespace."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    line = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
    _, *numbers = line.split() or [""]
    return len(numbers) > 1 and numbers[-1] == "1"
