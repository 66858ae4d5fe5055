"""Pods in network namespaces with the NetworkPolicies of a cluster in force between them; prints which connections pass.

    python -m integration.network_policies.isolating

The node is a network namespace of this program's own: it routes between the pods, each in a namespace of its own behind a veth pair, and
enforces the policies in its nftables.
"""

import ctypes
import os
import select
import socket
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

import msgspec

from bench.report import keep_stdout_clean
from cluster_reconciler.resources import network_policy
from common.api.opaque import Json
from integration.isolated import print_result
from support import firewall
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.firewall import Pod

CLONE_NEWNET: Final = 0x40000000
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
INSIDE: Final = "RAYBUS_TEST_POLICIES"
SECONDS: Final = 2.0
"""Seconds without an answer or a refusal after which a connection counts as blocked."""
PORTS: Final = {"tcp": (80, 6379, 8265), "udp": (53,)}
RULES: Final[Json] = {
    "head": {
        "ingressRules": [
            {
                "from": [
                    {"namespaceSelector": {"matchLabels": {firewall.NAMESPACE_NAME: "raybus"}}}
                ],
                "ports": [{"port": 8265}],
            }
        ]
    },
    "worker": {
        "egressRules": [
            {
                "to": [
                    {"namespaceSelector": {"matchLabels": {firewall.NAMESPACE_NAME: "kube-system"}}}
                ],
                "ports": [{"port": 53, "protocol": "UDP"}],
            }
        ]
    },
}


class Attempt(msgspec.Struct, frozen=True):
    """A connection from one pod to another."""

    source: str
    target: str
    port: int
    protocol: str


class Report(msgspec.Struct, frozen=True):
    """Which attempts passed, by the mode of the policies; `None` has no policies."""

    passed: dict[str, list[Attempt]]
    tried: int


def _of_cluster(name: str, cluster: str, node_type: str, group: str, number: int) -> Pod:
    labels = {"ray.io/cluster": cluster, "ray.io/node-type": node_type, "ray.io/group": group}
    return Pod(name=name, namespace="ns", address=f"10.50.{number}.2", labels=labels)


PODS: Final = (
    _of_cluster("head", "c", "head", "headgroup", 1),
    _of_cluster("worker", "c", "worker", "g", 2),
    _of_cluster("other-group", "c", "worker", "h", 3),
    _of_cluster("other-cluster", "d", "worker", "g", 4),
    Pod(name="other-pod", namespace="ns", address="10.50.5.2"),
    Pod(name="raybus", namespace="raybus", address="10.50.6.2"),
    Pod(name="dns", namespace="kube-system", address="10.50.7.2"),
    # the labels of this cluster, in a namespace of another tenant
    msgspec.structs.replace(
        _of_cluster("same-labels", "c", "head", "headgroup", 8), namespace="tenant"
    ),
)


def modes() -> dict[str, Json | None]:
    """Return what a user writes as `networkPolicy`: rules stand only in a direction that the mode denies."""
    head, worker = RULES["head"], RULES["worker"]
    return {
        "None": None,
        "DenyAll": {"head": head, "worker": worker},
        "DenyAllIngress": {"mode": "DenyAllIngress", "head": head},
        "DenyAllEgress": {"mode": "DenyAllEgress", "worker": worker},
    }


def run() -> Report:
    """Try every connection in each mode."""
    _sh(
        "mount -t tmpfs tmpfs /run && mkdir -p /run/netns && sysctl -qw net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0 && ip link set lo up"
    )
    for pod in PODS:
        node = pod.address.removesuffix(".2") + ".1"
        _sh(
            f"ip netns add {pod.name} && ip link add v{node[6]} type veth peer name eth0 netns {pod.name}"
            f" && ip addr add {node}/30 dev v{node[6]} && ip link set v{node[6]} up"
            f" && ip -n {pod.name} addr add {pod.address}/30 dev eth0 && ip -n {pod.name} link set eth0 up"
            f" && ip -n {pod.name} link set lo up && ip -n {pod.name} route add default via {node}"
        )
    tried = [
        Attempt(source.name, target.name, port, protocol)
        for source in PODS
        for target in PODS
        if source is not target
        for protocol, ports in PORTS.items()
        for port in ports
    ]
    passed: dict[str, list[Attempt]] = {}
    with ExitStack() as stack:
        listening = {pod.name: [stack.enter_context(each) for each in _listen(pod)] for pod in PODS}
        for mode, policy in modes().items():
            cluster = a_ray_cluster(network_policy=policy, groups=[a_group("g"), a_group("h")])
            rules = firewall.ruleset(PODS, [*network_policy.build(cluster).values()])
            _sh("nft -f -", stdin=f"flush ruleset\n{rules}")
            passed[mode] = [each for each in tried if _passes(each, listening[each.target])]
    return Report(passed=passed, tried=len(tried))


@contextmanager
def _inside(pod: str) -> Generator[None]:
    """Make sockets in a pod's network for the length of a block; they stay there."""
    own, other = (
        os.open("/proc/self/ns/net", os.O_RDONLY),
        os.open(f"/run/netns/{pod}", os.O_RDONLY),
    )
    try:
        _enter(other)
        yield
    finally:
        _enter(own)
        os.close(own)
        os.close(other)


def _enter(descriptor: int) -> None:
    if _LIBC.setns(descriptor, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def _listen(pod: Pod) -> list[socket.socket]:
    """Listen on all ports of a pod."""
    found: list[socket.socket] = []
    with _inside(pod.name):
        for protocol, ports in PORTS.items():
            for port in ports:
                opened = socket.socket(
                    type=socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM
                )
                opened.bind((pod.address, port))
                if protocol == "tcp":
                    opened.listen()
                opened.settimeout(SECONDS)
                found.append(opened)
    return found


def _passes(attempt: Attempt, listening: Sequence[socket.socket]) -> bool:
    """Return whether a connection is made, or a datagram arrives."""
    target = next(each for each in PODS if each.name == attempt.target)
    is_tcp = attempt.protocol == "tcp"
    server = next(each for each in listening if each.getsockname()[1] == attempt.port)
    with _inside(attempt.source):
        client = socket.socket(type=socket.SOCK_STREAM if is_tcp else socket.SOCK_DGRAM)
    with client:
        client.settimeout(SECONDS)
        try:
            client.connect((target.address, attempt.port))
            if is_tcp:
                server.accept()[0].close()
                return True
            client.send(b"?")
            select.select([server, client], [], [], SECONDS)  # a refusal comes back to the client
            server.settimeout(0)
            question, back = server.recvfrom(1)
            server.sendto(question, back)
            return client.recv(1) == b"?"
        except OSError:
            return False


def _sh(command: str, *, stdin: str | None = None) -> None:
    done = subprocess.run(
        ["sh", "-ec", command], input=stdin, text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}\n{stdin or ''}"


if __name__ == "__main__":
    if INSIDE not in os.environ:
        argv = [
            "unshare",
            "--net",
            "--mount",
            "--",
            sys.executable,
            "-m",
            "integration.network_policies.isolating",
        ]
        os.execvpe(argv[0], argv, os.environ | {INSIDE: "yes"})  # noqa: S606  (no shell is wanted)
    keep_stdout_clean()
    print_result(run())
