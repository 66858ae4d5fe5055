"""Writes the kubeconfigs of a cluster, and reads one that the user named."""

import base64
from pathlib import Path
from typing import Any

import msgspec
import yaml

from localcluster.errors import MisuseError
from localcluster.pki import write_private


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """The address and the credentials for an API server."""

    server: str
    ca: bytes
    """The CA certificate, PEM."""
    token: str


def build(name: str, access: Access, *, namespace: str = "default") -> dict[str, Any]:
    """Return the kubeconfig that holds everything it needs, so that the file can be copied elsewhere."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": name,
        "clusters": [
            {
                "name": name,
                "cluster": {
                    "server": access.server,
                    "certificate-authority-data": base64.b64encode(access.ca).decode(),
                },
            }
        ],
        "users": [{"name": name, "user": {"token": access.token}}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, "namespace": namespace}}],
    }


def write(path: Path, name: str, access: Access, *, namespace: str = "default") -> Path:
    """Write a kubeconfig that only its owner can read."""
    write_private(path, yaml.safe_dump(build(name, access, namespace=namespace), sort_keys=False).encode())
    return path


def read_access(path: Path) -> Access:
    """Return what a kubeconfig that we wrote gives access to."""
    document: Any = yaml.safe_load(path.read_text())
    cluster, user = document["clusters"][0]["cluster"], document["users"][0]["user"]
    ca = base64.b64decode(cluster["certificate-authority-data"])
    return Access(server=cluster["server"], ca=ca, token=user["token"])


def check_readable(path: Path) -> str:
    """Return the API server that a user's kubeconfig points at; the error names what is wrong with the file."""
    try:
        document: Any = yaml.safe_load(path.read_text())
    except OSError as error:
        raise MisuseError(
            f"cannot read kubeconfig {path}: {error.strerror}; name a readable file with --kubeconfig"
        ) from error
    except yaml.YAMLError as error:
        raise MisuseError(f"kubeconfig {path} is not YAML; name another file with --kubeconfig") from error
    try:
        current = document["current-context"]
        context = next(entry["context"] for entry in document["contexts"] if entry["name"] == current)
        cluster = next(entry["cluster"] for entry in document["clusters"] if entry["name"] == context["cluster"])
        return str(cluster["server"])
    except (KeyError, TypeError, StopIteration) as error:
        raise MisuseError(
            f"kubeconfig {path} has no usable current-context; choose one with 'kubectl config use-context'"
        ) from error
