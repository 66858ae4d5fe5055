"""What lets a pod that is evicted or deleted finish its requests before its processes end: a preStop hook, for clusters that ask for it.

Ray 2.60 drains a node that receives SIGTERM; earlier versions end its replicas at once, and the shell that runs `ray start` need not pass
SIGTERM on. The hook of a worker marks the node as about to be preempted, so that Serve moves its replicas to other nodes and closes its
proxy, and waits until Ray has ended the node. Ray cannot drain a head: its hook, for a RayService, waits until its proxy has no request
any more, while the workers' proxies get the new ones. Either waits for at most the pod's grace period, goes only into a container
without a preStop hook, and changes no hash: pods that run keep what they have (ADR 26).
"""

from typing import Final

from common import feature_gates, labels, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits
from common.ray import ports

DEFAULT_GRACE: Final = 30
"""Seconds that Kubernetes gives a pod by default."""
RESERVE: Final = 5
"""Seconds of it that are left to Ray's processes after the hook."""
LEAST: Final = 5
_OF_WORKER: Final = """\
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


SETTLING: Final = 5
"""Seconds in which gateways and proxies learn that a pod ends, and send it requests until then."""
FRESH_AFTER: Final = 15
"""Seconds after which the metrics are of a time when they had learnt it: Ray exports them every 10 s."""
_OF_HEAD: Final = """\
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
"""A gateway keeps idle connections open, and Ray drops the number of a proxy with long requests alone: either is enough, neither is needed."""


def configure(pod: Body, cluster: RayCluster, *, is_head: bool) -> None:
    """Have a worker drain in Ray before it ends, and the head of a RayService finish its requests, if the cluster asks for that."""
    container = pod_json.ray_container(pod)
    lifecycle = pod_json.body(container, "lifecycle")
    is_asked_for = feature_gates.is_on(cluster.metadata.annotations, labels.DRAIN_WORKERS)
    if not is_asked_for or lifecycle.get("preStop") is not None:
        return
    program, values = _OF_WORKER, dict[str, object]()
    if is_head:
        taken = [each["port"] for each in ports.of_serve(cluster.raw_spec)]
        if not taken or not traits.is_for_a_service(cluster):
            return
        metrics = ports.of_head(cluster.raw_spec).get("metrics", ports.METRICS)
        program = _OF_HEAD
        values = {"ports": taken, "metrics": metrics, "settling": SETTLING, "fresh": FRESH_AFTER}
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    seconds = max((DEFAULT_GRACE if grace is None else int(grace)) - RESERVE, LEAST)
    command = ["timeout", str(seconds), "python", "-c", program.format(seconds=seconds, **values)]
    container["lifecycle"] = {**lifecycle, "preStop": {"exec": {"command": command}}}
