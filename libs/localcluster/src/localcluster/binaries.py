"""Finds the programs of a cluster: given ones first, then the cache, else built from source once.

Order: `KUBEBUILDER_ASSETS` (program by program), the cache folder of this version set, the builder. Nothing is taken from
PATH: a stray program of another version would make runs differ from machine to machine.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from localcluster import build, versions
from localcluster.progress import Progress
from localcluster.settings import Settings

CONTROL_PLANE = ("etcd", "kube-apiserver", "kube-controller-manager")
SIMULATED_NODES = ("kwok", "kwok-stages")
NODE = (*CONTROL_PLANE, "kube-scheduler", "kubelet", "kube-proxy", "kubectl", "coredns")
GATEWAY_CRDS = "gateway-crds"
GATEWAY = ("envoy-gateway", GATEWAY_CRDS)
HELM = f"helm-{versions.HELM}"
NATS_CLI = f"nats-{versions.NATS_CLI}"
TOOLS = (HELM, NATS_CLI)
CERT_MANAGER = f"cert-manager-{versions.CERT_MANAGER}"
CERT_MANAGER_CRDS = f"cert-manager-crds-{versions.CERT_MANAGER}"
KUEUE = f"kueue-{versions.KUEUE}"
KUEUE_MANIFESTS = f"kueue-manifests-{versions.KUEUE}"
S3_STORE = f"versitygw-{versions.VERSITYGW}"
THIRD_PARTY = (CERT_MANAGER, CERT_MANAGER_CRDS, KUEUE, KUEUE_MANIFESTS, S3_STORE)
"""Programs of others that users run beside raybus."""
BESIDE_RAY = (CERT_MANAGER, CERT_MANAGER_CRDS, S3_STORE)
"""What features of a RayCluster need on a real node: certificates, and a store for the history of clusters."""


class Binaries(msgspec.Struct, frozen=True, kw_only=True):
    """Where each program (or folder of manifests) lies."""

    paths: dict[str, Path]

    def path(self, name: str) -> Path:
        """Return the path of one program."""
        return self.paths[name]

    def argv0(self, name: str) -> str:
        """Return what stands first on the program's command line."""
        return str(self.paths[name])


def locate(names: Sequence[str], settings: Settings) -> tuple[dict[str, Path], list[str]]:
    """Return what is there already, and the names of what has to be built."""
    folders = [folder for folder in (settings.assets, settings.binary_cache) if folder is not None]
    found: dict[str, Path] = {}
    for name in names:
        for folder in folders:
            if (folder / name).exists():
                found[name] = folder / name
                break
    return found, [name for name in names if name not in found]


async def obtain(names: Sequence[str], settings: Settings, progress: Progress) -> Binaries:
    """Return these programs, building what is missing into the cache."""
    _, missing = locate(names, settings)
    if missing:
        await build.build(missing, settings, progress)
    found, _ = locate(names, settings)
    return Binaries(paths=found)
