"""What lets a worker that is evicted or deleted leave Ray before its processes end: a preStop hook, for clusters that ask for it.

Ray 2.60 drains a node that receives SIGTERM; earlier versions end its replicas at once, and the shell that runs `ray start` need not pass
SIGTERM on. The hook marks the node as about to be preempted, so that Serve moves its replicas to other nodes and closes its proxy, and
waits until Ray has ended the node, for at most the pod's grace period. It goes only into a container without a preStop hook, and changes no
hash: pods that run keep what they have (ADR 26). The head has none: what would be moved away runs on it.
"""

from typing import Final

from common import labels, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster

DEFAULT_GRACE: Final = 30
"""Seconds that Kubernetes gives a pod by default."""
RESERVE: Final = 5
"""Seconds of it that are left to Ray's processes after the hook."""
LEAST: Final = 5
_PROGRAM: Final = """\
import os, socket, subprocess, time
from ray._raylet import GcsClient
end, address = time.time() + {seconds}, os.environ["RAY_ADDRESS"]
own = socket.gethostbyname(socket.gethostname())
drain = ["ray", "drain-node", "--address", address, "--reason", "DRAIN_NODE_REASON_PREEMPTION"]
drain += ["--reason-message", "the pod is evicted or deleted", "--deadline-remaining-seconds", "{seconds}"]
for node in GcsClient(address=address).get_all_node_info(timeout=5).values():
    if node.node_manager_address == own and node.state == 0:
        subprocess.run([*drain, "--node-id", node.node_id.hex()], check=True)
def is_up(pid):
    try:
        status = open("/proc/" + pid + "/stat").read()
        return "(raylet)" in status and ") Z" not in status
    except OSError:
        return False
while time.time() < end and any(is_up(pid) for pid in os.listdir("/proc") if pid.isdigit()):
    time.sleep(0.5)
"""
"""Ray's command line asks for the drain, since its Python interface changes between versions; `IDLE_TERMINATION` may be rejected."""


def is_asked_for(cluster: RayCluster) -> bool:
    """Return whether the workers of a cluster are to drain before they end."""
    return cluster.metadata.annotations.get(labels.DRAIN_WORKERS, "").lower() == "true"


def configure_pod(pod: Body, cluster: RayCluster) -> None:
    """Give the Ray container of a worker the hook, unless the user gave it one."""
    container = pod_json.ray_container(pod)
    lifecycle = pod_json.body(container, "lifecycle")
    if not is_asked_for(cluster) or lifecycle.get("preStop") is not None:
        return
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    seconds = max((DEFAULT_GRACE if grace is None else int(grace)) - RESERVE, LEAST)
    command = ["timeout", str(seconds), "python", "-c", _PROGRAM.format(seconds=seconds)]
    hook: Body = {"exec": {"command": command}}
    container["lifecycle"] = {**lifecycle, "preStop": hook}
