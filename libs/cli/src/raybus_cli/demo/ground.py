"""The cluster under the demo: made, and given its images, by the commands that a user would type."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from common import errors

RAYBUS_IMAGES = ("watcher", "cluster-reconciler", "service-reconciler", "traffic-manager", "nats")
IMAGES = (*RAYBUS_IMAGES, "ray")


class Cluster(msgspec.Struct, frozen=True, rename="camel"):
    """What `raybus cluster up -o json` tells."""

    name: str
    driver: str
    kubeconfig: Path


class Archive(msgspec.Struct, frozen=True):
    """What `raybus images build -o json` tells of one image."""

    target: str
    path: Path


def raise_cluster(driver: str, name: str | None, kubeconfig: Path | None) -> Cluster:
    """Bring the cluster up, or take the one that runs."""
    command = ["cluster", "up", "--driver", driver, "--no-gateway", *_named(name), "-o", "json"]
    if kubeconfig is not None:
        command += ["--kubeconfig", str(kubeconfig)]
    return msgspec.json.decode(_raybus(command), type=Cluster, dec_hook=_path)


def build_images() -> list[Archive]:
    """Build what has changed since the last run."""
    return msgspec.json.decode(_raybus(["images", "build", *IMAGES, "-o", "json"]), type=list[Archive], dec_hook=_path)


def load_images(archives: Sequence[Archive], name: str | None) -> None:
    """Make the images known to the cluster's node."""
    _raybus(["cluster", "load", *_named(name), *(str(archive.path) for archive in archives)])


def raze_cluster(name: str | None) -> None:
    """Take the cluster down."""
    _raybus(["cluster", "down", *_named(name)])


def _named(name: str | None) -> list[str]:
    return [] if name is None else ["--name", name]


def _raybus(command: Sequence[str]) -> bytes:
    """Run one of our own commands; its progress goes to the user, its result comes back."""
    done = subprocess.run([sys.executable, "-m", "raybus_cli.main", *command], stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        raise errors.Rejected(f"raybus {' '.join(command[:2])} failed with exit code {done.returncode}")
    return done.stdout


def _path(kind: type[Path], value: str) -> Path:
    return kind(value)
