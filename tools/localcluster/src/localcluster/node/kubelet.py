"""Configuration and command lines of the node's kubelet and kube-proxy."""

from pathlib import Path

import yaml

from localcluster import components
from localcluster.components import ControlPlaneSpec
from localcluster.node import container_runtime
from localcluster.node.namespaces import ADDRESS

NODE_NAME = "node-0"


def format_configuration(spec: ControlPlaneSpec, *, name: str) -> str:
    """Return the text of the kubelet's configuration file. `name` is the name of the cluster."""
    pki = spec.pki
    document = {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": f"unix://{container_runtime.SOCKET}",
        "cgroupDriver": "cgroupfs",
        # Separates the pods of several clusters on one machine.
        "cgroupRoot": f"/{name}",
        "clusterDNS": [components.DNS_ADDRESS],
        "clusterDomain": components.CLUSTER_DOMAIN,
        "resolvConf": str(spec.work / "resolv.conf"),
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": True},
            "x509": {"clientCAFile": str(pki.ca)},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": str(pki.certificate("kubelet")),
        "tlsPrivateKeyFile": str(pki.key("kubelet")),
        "volumePluginDir": str(spec.work / "volume-plugins"),
        "failSwapOn": False,
        "makeIPTablesUtilChains": False,
        "serializeImagePulls": False,
        "maxPods": 250,
        # Tests kill containers repeatedly, so the restart back-off is short; its default grows to
        # 300 s.
        "featureGates": {"KubeletCrashLoopBackOffMax": True},
        "crashLoopBackOff": {"maxContainerRestartPeriod": "10s"},
        # Other programs use the machine, so evict late. Never delete images, because no registry
        # has them.
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageMinimumGCAge": "24h",
        "localStorageCapacityIsolation": False,
    }
    return yaml.safe_dump(document, sort_keys=False)


def prepare(spec: ControlPlaneSpec, *, name: str) -> None:
    """Write the configuration file of the kubelet. `name` is the name of the cluster."""
    path = spec.work / "kubelet.yaml"
    path.write_text(format_configuration(spec, name=name))


def build_kubelet_argv(spec: ControlPlaneSpec) -> list[str]:
    """Return the command line of the kubelet."""
    return [
        spec.binaries.argv0("kubelet"),
        f"--config={spec.work / 'kubelet.yaml'}",
        f"--kubeconfig={spec.kubeconfig('node')}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={ADDRESS}",
        "--root-dir=/var/lib/kubelet",
    ]


def build_kube_proxy_argv(spec: ControlPlaneSpec) -> list[str]:
    """Return the command line of kube-proxy.

    It leaves this machine's limits of connection tracking unchanged.
    """
    return [
        spec.binaries.argv0("kube-proxy"),
        f"--kubeconfig={spec.kubeconfig('proxy')}",
        f"--hostname-override={NODE_NAME}",
        "--proxy-mode=nftables",
        f"--cluster-cidr={components.POD_RANGE}",
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
    ]


def create_volumes(work: Path, count: int) -> list[Path]:
    """Create the folders of the node's local volumes, writable by any user; return their paths."""
    folders = [work / "volumes" / str(index) for index in range(count)]
    for folder in folders:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o777)
    return folders
