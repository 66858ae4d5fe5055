"""The preStop hook with which a deleted or evicted pod finishes its requests.

Only clusters that ask for the hook get it. Ray 2.60 drains a node that receives SIGTERM. Earlier
versions stop the node's Serve replicas at once, and the shell that runs `ray start` may not pass
SIGTERM on. The hook of a worker marks the node as about to be preempted and waits until Ray has
ended the node. Meanwhile Serve moves its replicas to other nodes and closes the node's proxy. Ray
cannot drain a head. The hook of a RayService's head waits until the head's proxy has no more
requests, while the workers' proxies receive new requests. Both hooks wait at most for the pod's
grace period and are added only to containers without a preStop hook. The hooks change no hash, so
running pods stay as they are (ADR 26).
"""

from typing import Final

from common import feature_gates, labels, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits
from common.ray import ports

DEFAULT_GRACE: Final = 30
"""Seconds of the grace period if the pod sets none (Kubernetes' default)."""
RESERVE: Final = 5
"""Seconds of the grace period that Ray's processes get after the hook."""
MIN_SECONDS: Final = 5
_WORKER_PROGRAM: Final = """\
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
"""Program of a worker's hook: it drains the pod's node and waits until Ray has ended the node.

The program calls Ray's command line, because Ray's Python interface changes between versions. It
gives a preemption as the reason, because Ray may reject a drain for `IDLE_TERMINATION`.
"""


SETTLING: Final = 5
"""Seconds after which no gateway or proxy sends new requests to a pod that is being deleted."""
FRESH_AFTER: Final = 15
"""Seconds after which Ray's metrics no longer count earlier requests.

Ray exports its metrics every 10 s.
"""
_HEAD_PROGRAM: Final = """\
import time
from urllib.request import ProxyHandler, build_opener
in_flight = b"ray_serve_num_ongoing_http_requests", b"ray_serve_num_ongoing_grpc_requests"
ports, began = {ports}, time.time()
def is_connected():
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = open(table).readlines()[1:]
        except OSError:
            continue
        for line in lines:
            own, state = line.split()[1:4:2]
            if state == "01" and int(own.rpartition(":")[2], 16) in ports:
                return True
    return False
def is_idle():
    try:
        with build_opener(ProxyHandler({{}})).open("http://127.0.0.1:{metrics}/metrics", timeout=2) as answer:
            lines = [line.decode().rsplit(" ", 1) for line in answer if line.startswith(in_flight)]
        return bool(lines) and not any(float(value) for _, value in lines)
    except (OSError, ValueError):
        return False
while True:
    passed = time.time() - began
    if (passed >= {settling} and not is_connected()) or (passed >= {fresh} and is_idle()):
        break
    time.sleep(0.5)
"""
"""Program of the head's hook: it exits when the proxy has no connection, or no request in flight.

Either of these is enough. Both are checked, because one of them may never be observed: a gateway
keeps idle connections open, and Ray drops the metric of a proxy that has only long requests.
"""


def configure(pod: Body, cluster: RayCluster, *, is_head: bool) -> None:
    """Add the preStop hook to a worker or a RayService's head, if the cluster asks for the hook."""
    container = pod_json.ray_container(pod)
    lifecycle = pod_json.body(container, "lifecycle")
    is_asked_for = feature_gates.is_on(cluster.metadata.annotations, labels.DRAIN_WORKERS)
    if not is_asked_for or lifecycle.get("preStop") is not None:
        return
    program, values = _WORKER_PROGRAM, dict[str, object]()
    if is_head:
        used_ports = [port["port"] for port in ports.of_serve(cluster.raw_spec)]
        if not used_ports or not traits.is_for_a_service(cluster):
            return
        metrics = ports.of_head(cluster.raw_spec).get("metrics", ports.METRICS)
        program = _HEAD_PROGRAM
        values = {
            "ports": used_ports,
            "metrics": metrics,
            "settling": SETTLING,
            "fresh": FRESH_AFTER,
        }
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    seconds = max((DEFAULT_GRACE if grace is None else int(grace)) - RESERVE, MIN_SECONDS)
    command = ["timeout", str(seconds), "python", "-c", program.format(seconds=seconds, **values)]
    container["lifecycle"] = {**lifecycle, "preStop": {"exec": {"command": command}}}
