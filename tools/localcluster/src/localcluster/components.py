"""The command lines of the Kubernetes programs, for the loopback control plane and the node.

Does no I/O. The flags suit the Kubernetes version in `settings.KUBERNETES`. Where a value differs
from the default for no obvious reason, a comment gives the reason.
"""

import ipaddress
from collections.abc import Sequence
from pathlib import Path

import msgspec

from localcluster.binaries import Binaries
from localcluster.kubeconfig import ClusterPki

SERVICE_RANGE = "10.96.0.0/16"
IPV6_SERVICE_RANGE = "fd00:10:96::/112"
POD_RANGE = "10.244.0.0/16"
DNS_ADDRESS = "10.96.0.10"
API_SERVICE_ADDRESS = "10.96.0.1"
CLUSTER_DOMAIN = "cluster.local"

AUDIT_POLICY = (
    "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: "
    "Metadata}]\n"
)


class Ports(msgspec.Struct, frozen=True, kw_only=True):
    """The TCP ports of a control plane."""

    api: int
    etcd: int
    etcd_peer: int
    controller_manager: int
    scheduler: int
    kwok: int


class ControlPlaneSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The paths, addresses and ports of one control plane, on which its command lines depend."""

    binaries: Binaries
    work: Path
    pki: ClusterPki
    host: str
    """IP address that the API server listens on and advertises."""
    ports: Ports
    audit: bool = False
    node_authorizer: bool = False

    @property
    def is_ipv6(self) -> bool:
        """Whether the cluster uses IPv6 addresses only."""
        return ":" in self.host

    @property
    def loopback(self) -> str:
        """The loopback address as it is written in URLs."""
        return "[::1]" if self.is_ipv6 else "127.0.0.1"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{f'[{self.host}]' if self.is_ipv6 else self.host}:{self.ports.api}"

    def kubeconfig(self, component: str) -> Path:
        """Path of a component's own kubeconfig."""
        return self.work / f"{component}.kubeconfig"

    def log(self, component: str) -> Path:
        """Path of a component's log file."""
        return self.work / "logs" / f"{component}.log"


def build_etcd_argv(spec: ControlPlaneSpec) -> list[str]:
    """Return etcd's command line.

    etcd runs as a single member on loopback. fsync is disabled, because no data has to survive the
    cluster.
    """
    client = f"http://{spec.loopback}:{spec.ports.etcd}"
    peer = f"http://{spec.loopback}:{spec.ports.etcd_peer}"
    return [
        spec.binaries.argv0("etcd"),
        f"--data-dir={spec.work / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=error",
    ]


def build_api_server_argv(spec: ControlPlaneSpec) -> list[str]:
    """Return the API server's command line.

    RBAC and ServiceAccount admission are enabled as in production.
    """
    pki = spec.pki
    flags = [
        f"--etcd-servers=http://{spec.loopback}:{spec.ports.etcd}",
        f"--bind-address={spec.host}",
        f"--advertise-address={spec.host}",
        f"--secure-port={spec.ports.api}",
        f"--tls-cert-file={pki.certificate('apiserver')}",
        f"--tls-private-key-file={pki.key('apiserver')}",
        f"--client-ca-file={pki.ca}",
        f"--token-auth-file={pki.token_file}",
        f"--authorization-mode={'Node,RBAC' if spec.node_authorizer else 'RBAC'}",
        f"--service-cluster-ip-range={IPV6_SERVICE_RANGE if spec.is_ipv6 else SERVICE_RANGE}",
        f"--service-account-key-file={pki.public_key}",
        f"--service-account-signing-key-file={pki.key('service-accounts')}",
        f"--service-account-issuer=https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
        f"--kubelet-certificate-authority={pki.ca}",
        f"--kubelet-client-certificate={pki.certificate('apiserver-to-kubelet')}",
        f"--kubelet-client-key={pki.key('apiserver-to-kubelet')}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged=true",
        # Scale tests create thousands of objects at once, and should not measure the queues of API
        # priority and fairness.
        "--enable-priority-and-fairness=false",
        "--max-requests-inflight=3000",
        "--max-mutating-requests-inflight=1000",
    ]
    if ipaddress.ip_address(spec.host).is_loopback:
        # The API server writes the address that it advertises into the EndpointSlice of the Service
        # `kubernetes`. From Kubernetes 1.37 on it refuses to start with a loopback address unless
        # this is disabled. No pod uses that Service here: a cluster on loopback has no real pods.
        flags.append("--endpoint-reconciler-type=none")
    if spec.node_authorizer:
        flags.append("--enable-admission-plugins=NodeRestriction")
    if spec.audit:
        flags += [
            f"--audit-policy-file={spec.work / 'audit.yaml'}",
            f"--audit-log-path={spec.work / 'audit.log'}",
            # MiB. By default the log is rotated after 100 MiB, and a reader would lose its
            # position.
            "--audit-log-maxsize=100000",
        ]
    return [spec.binaries.argv0("kube-apiserver"), *flags]


def build_controller_manager_argv(spec: ControlPlaneSpec, *, simulated_nodes: bool) -> list[str]:
    """Return the command line of kube-controller-manager.

    With simulated nodes, pods are not evicted for missing heartbeats.
    """
    pki = spec.pki
    controllers = "*,-taint-eviction-controller" if simulated_nodes else "*"
    return [
        *_build_controller_flags(spec, "controller-manager", spec.ports.controller_manager),
        f"--service-account-private-key-file={pki.key('service-accounts')}",
        # Pods get this CA as kube-root-ca.crt.
        f"--root-ca-file={pki.ca}",
        "--use-service-account-credentials=false",
        f"--controllers={controllers}",
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
        "--concurrent-gc-syncs=50",
    ]


def build_scheduler_argv(spec: ControlPlaneSpec) -> list[str]:
    """Return the command line of kube-scheduler."""
    return [
        *_build_controller_flags(spec, "scheduler", spec.ports.scheduler),
        "--kube-api-qps=2000",
        "--kube-api-burst=4000",
    ]


def _build_controller_flags(spec: ControlPlaneSpec, name: str, port: int) -> list[str]:
    """Return the flags that controller-manager and scheduler share."""
    config = spec.kubeconfig(name)
    return [
        spec.binaries.argv0(f"kube-{name}"),
        f"--kubeconfig={config}",
        f"--authentication-kubeconfig={config}",
        f"--authorization-kubeconfig={config}",
        "--leader-elect=false",
        "--bind-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={spec.work / f'{name}-certs'}",
    ]


def build_kwok_argv(spec: ControlPlaneSpec, stages: Sequence[Path]) -> list[str]:
    """Return the command line of kwok, which simulates the kubelet of every node.

    `stages` are files that define how objects change over time.
    """
    configs = [f"--config={stage}" for stage in stages]
    return [
        spec.binaries.argv0("kwok"),
        f"--kubeconfig={spec.kubeconfig('kwok')}",
        "--manage-all-nodes=true",
        "--node-lease-duration-seconds=40",
        f"--server-address=127.0.0.1:{spec.ports.kwok}",
        *configs,
    ]
