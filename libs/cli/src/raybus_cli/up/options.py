"""The options of `raybus up`, checked before anything is started; each error names the option and the remedy."""

from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import msgspec

from common import errors, feature_gates
from common.bus.sharding import PARTITIONS
from common.settings import LEVELS
from localcluster import kubeconfig as kubeconfigs
from localcluster.errors import MisuseError

MODULES: Final = {
    "watcher": "watcher",
    "cluster-reconciler": "cluster_reconciler",
    "service-reconciler": "service_reconciler",
    "traffic-manager": "traffic_manager",
}
"""Service to the module that `python -m` runs."""
MOST_REPLICAS: Final = PARTITIONS


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Valid options."""

    kubeconfig: Path
    server: str
    """The API server that the kubeconfig points at."""
    nats: str | None = None
    """A NATS server that runs already; None means one of our own."""
    nats_credentials: Path | None = None
    gates: dict[str, bool] = {}
    replicas: dict[str, int] = {}
    namespace: str = "default"
    watch_namespaces: str = ""
    log_dir: Path | None = None
    log_level: str = "INFO"
    data_dir: Path | None = None
    """The files of our NATS server; None means a temporary folder."""


def check_kubeconfig(path: Path) -> str:
    """Return the API server that a kubeconfig points at."""
    try:
        return kubeconfigs.check_readable(path)
    except MisuseError as problem:
        raise errors.InvalidSpec(f"--kubeconfig: {problem}") from problem
    except UnicodeDecodeError as problem:
        raise errors.InvalidSpec(f"--kubeconfig: {path} is not YAML; name another file") from problem


def check_nats(url: str | None) -> str | None:
    """Return the URL of a NATS server that the user runs."""
    if url is None:
        return None
    parts = urlsplit(url)
    if parts.scheme not in {"nats", "tls"} or not parts.hostname:
        raise errors.InvalidSpec(f"--nats {url!r}: expected nats://HOST:PORT or tls://HOST:PORT")
    return url


def check_credentials(folder: Path | None) -> Path | None:
    """Return the folder that `python -m nats_admin.provision credentials --out` wrote."""
    if folder is None:
        return None
    for file in ("ca.crt", "users/watcher.seed", "users/keeper.seed"):
        if not (folder / file).is_file():
            raise errors.InvalidSpec(
                f"--nats-credentials {folder}: there is no {file}; "
                "make the folder with 'python -m nats_admin.provision credentials --out DIR'"
            )
    return folder.absolute()


def check_gates(text: str) -> dict[str, bool]:
    """Read `A=true,B=false`."""
    try:
        return feature_gates.parse(text)
    except errors.InvalidSpec as problem:
        raise errors.InvalidSpec(f"--feature-gates: {problem}") from problem


def check_replicas(text: str) -> dict[str, int]:
    """Read `cluster-reconciler=2,watcher=1`."""
    replicas: dict[str, int] = {}
    for pair in filter(None, (part.strip() for part in text.split(","))):
        name, _, count = (part.strip() for part in pair.partition("="))
        if name not in MODULES:
            raise errors.InvalidSpec(
                f"--replicas {pair!r}: there is no service {name!r}; name one of {', '.join(MODULES)}"
            )
        if not count.isdecimal() or int(count) < 1:
            raise errors.InvalidSpec(f"--replicas {pair!r}: expected {name}=N with N of 1 or more")
        if int(count) > MOST_REPLICAS:
            raise errors.InvalidSpec(
                f"--replicas {pair!r}: there are {PARTITIONS} partitions to share; name at most {MOST_REPLICAS} replicas"
            )
        replicas[name] = int(count)
    return replicas


def check_folder(option: str, folder: Path | None) -> Path | None:
    """Make a folder that we are going to write to."""
    if folder is None:
        return None
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise errors.InvalidSpec(
            f"{option} {folder}: {problem.strerror}; name a folder that you may write to"
        ) from problem
    return folder.absolute()


def check_level(text: str) -> str:
    """Return the name of a log level."""
    if text.upper() not in LEVELS:
        raise errors.InvalidSpec(f"--log-level {text!r}: expected one of {', '.join(LEVELS)}")
    return text.upper()
