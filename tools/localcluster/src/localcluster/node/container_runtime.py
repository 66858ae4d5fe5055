"""Configures and controls containerd of one node: its pod network and its images.

The image store survives `down`, but containers do not: a new node first removes the containers of
the previous node. Pods are connected by a routed point-to-point link (CNI plugin `ptp`) instead of
a bridge. Replies from a Service's pod on the same node then always pass the node, where the address
translation is reverted, even on kernels without bridge netfilter.
"""

import asyncio
import hashlib
import json
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from localcluster import components, processes
from localcluster.errors import ClusterError, MisuseError
from localcluster.node.namespaces import Namespaces

SOCKET = "/run/containerd/containerd.sock"
"""Path of containerd's socket inside the node's mount namespace."""

PAUSE_IMAGE = "raybus.local/pause:1"

_CNI_FOLDERS = (Path("/usr/lib/cni"), Path("/opt/cni/bin"))
_CRI_FOLDERS = ("io.containerd.grpc.v1.cri", "io.containerd.runtime.v2.task")
_IMPORTED = "imported.json"


class ImageFile(msgspec.Struct, frozen=True, kw_only=True):
    """An image archive, with the tags of its images and one digest over all of them."""

    path: Path
    tags: tuple[str, ...]
    digest: str


def format_configuration(*, store: Path, work: Path, cni_plugins: Path, snapshotter: str) -> str:
    """Return the text of containerd's configuration file.

    `store` is the folder of images, `work` the folder of the node's other files.
    """
    return f"""version = 2
root = "{store}"
state = "/run/containerd"
[grpc]
  address = "{SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{work}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE_IMAGE}"
  # Lowering a process's score is not permitted in every machine's root.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{cni_plugins}"
    conf_dir = "{work}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
"""


def format_pod_network(name: str) -> str:
    """Return the CNI configuration of the pod network `name` as JSON."""
    ipam = {
        "type": "host-local",
        "dataDir": "/run/cni-addresses",
        "ranges": [[{"subnet": components.POD_RANGE}]],
        "routes": [{"dst": "0.0.0.0/0"}],
    }
    return json.dumps(
        {"cniVersion": "0.4.0", "name": name, "plugins": [{"type": "ptp", "ipam": ipam}]}
    )


def prepare(name: str, store: Path, work: Path) -> None:
    """Write the configuration files of containerd and CNI."""
    store.mkdir(parents=True, exist_ok=True)
    (work / "cni").mkdir(parents=True, exist_ok=True)
    text = format_configuration(
        store=store,
        work=work,
        cni_plugins=_find_cni_plugins(),
        snapshotter=_choose_snapshotter(store),
    )
    (work / "containerd.toml").write_text(text)
    (work / "cni" / "10-pods.conflist").write_text(format_pod_network(name))


def build_argv(work: Path) -> list[str]:
    """Return the command line of containerd."""
    return ["containerd", "--config", str(work / "containerd.toml")]


async def wait_ready(node: Namespaces) -> None:
    """Wait until containerd answers. Raises `ClusterError` after 100 attempts (10 s or more)."""
    finished = None
    for _ in range(100):
        finished = await processes.run(node.enter(_build_ctr_argv("version")))
        if finished.code == 0:
            return
        await asyncio.sleep(0.1)
    cause = processes.find_last_line(finished.errors) if finished else "no answer"
    raise ClusterError(f"containerd did not start: {cause}")


async def list_old_containers(node: Namespaces) -> list[str]:
    """Return the ids of the containers in the store, which a previous node has left."""
    listing = await processes.run_checked(
        "listing old containers", node.enter(_build_ctr_argv("containers", "list", "--quiet"))
    )
    return listing.split()


async def forget(node: Namespaces, containers: Sequence[str], store: Path) -> None:
    """Remove containers of a previous node and their file systems.

    containerd must be restarted afterwards.
    """
    await processes.run_checked(
        "removing old containers", node.enter(_build_ctr_argv("containers", "delete", *containers))
    )
    for folder in _CRI_FOLDERS:
        shutil.rmtree(store / folder, ignore_errors=True)


def read_image_file(path: Path) -> ImageFile:
    """Read tags and digest from an image archive, without reading its layers.

    Raises `MisuseError` for other files.
    """
    try:
        with tarfile.open(path) as archive:
            manifest = _read_member(archive, "manifest.json")
            entries: list[dict[str, str | list[str]]] = json.loads(manifest)
            configs = [_read_member(archive, str(entry["Config"])) for entry in entries]
    except (OSError, tarfile.TarError, KeyError, ValueError) as error:
        raise MisuseError(
            f"{path} is not an image archive ({error}); make one with 'docker save' or 'raybus "
            "images build'"
        ) from error
    tags = tuple(tag for entry in entries for tag in entry.get("RepoTags") or [])
    return ImageFile(path=path, tags=tags, digest=hashlib.sha256(b"".join(configs)).hexdigest())


async def import_images(node: Namespaces, store: Path, paths: Sequence[Path]) -> list[str]:
    """Import the image archives that the store lacks; return the tags of the imported images."""
    record = store / _IMPORTED
    known: dict[str, str] = json.loads(record.read_text()) if record.exists() else {}
    imported: list[str] = []
    for path in paths:
        image = read_image_file(path)
        if image.tags and all(known.get(tag) == image.digest for tag in image.tags):
            continue
        await processes.run_checked(
            f"importing {path.name}",
            node.enter(_build_ctr_argv("images", "import", str(path.resolve()))),
        )
        known.update(dict.fromkeys(image.tags, image.digest))
        record.write_text(json.dumps(known))
        imported += image.tags
    return imported


async def tag_image(node: Namespaces, image: str, name: str) -> None:
    """Give an image of the store another name."""
    await processes.run_checked(
        f"tagging {image}", node.enter(_build_ctr_argv("images", "tag", "--force", image, name))
    )


def _build_ctr_argv(*arguments: str) -> list[str]:
    return ["ctr", "--address", SOCKET, "--namespace", "k8s.io", *arguments]


def _read_member(archive: tarfile.TarFile, name: str) -> bytes:
    opened = archive.extractfile(name)
    if opened is None:
        raise KeyError(name)
    return opened.read()


def _find_cni_plugins() -> Path:
    for folder in _CNI_FOLDERS:
        if (folder / "ptp").exists():
            return folder
    raise ClusterError(
        "the CNI plugins are missing; install the package containernetworking-plugins"
    )


def _choose_snapshotter(store: Path) -> str:
    """Return the snapshotter for the store's file system: `native` on overlayfs, else `overlayfs`.

    Overlays cannot be stacked.
    """
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    holding = [(Path(fields[1]), fields[2]) for fields in mounts if store.is_relative_to(fields[1])]
    kind = max(holding, key=lambda entry: len(str(entry[0])))[1]
    return "native" if kind == "overlay" else "overlayfs"
