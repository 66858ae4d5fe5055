"""Where credentials are kept: a folder, or Secrets of Kubernetes. What exists is never replaced, only completed.

folder                         Secret                 keys
DIR/ca.crt, DIR/ca.key         nats-authority         ca.crt, ca.key
DIR/tls.crt, DIR/tls.key       nats-server            tls.crt, tls.key, ca.crt, nats-server.conf
DIR/nats-server.conf
DIR/users/USER.seed            nats-user-USER         seed, ca.crt
"""

import base64
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final, Protocol

import msgspec

from common import errors
from common.api.opaque import Body
from common.bus import credentials, permissions, server_conf
from common.bus.credentials import Pair
from common.bus.server_conf import Server
from common.kube.client import Kube
from common.kube.resources import SECRET

AUTHORITY: Final = "nats-authority"
SERVER: Final = "nats-server"
USER: Final = "nats-user-"
CONF: Final = "nats-server.conf"


class Store(Protocol):
    """Named bundles of small files."""

    async def read(self, bundle: str) -> dict[str, bytes]:
        """Return what a bundle holds; nothing when there is none."""
        ...

    async def write(self, bundle: str, files: Mapping[str, bytes]) -> None:
        """Create a bundle, or replace all that it holds."""
        ...


async def complete(store: Store, server: Server, *, names: list[str], now: datetime) -> list[str]:
    """Make what is missing; return the bundles that were written.

    The users come first and the server last, so an interrupted run leaves no server that knows keys which nobody has.
    """
    written: list[str] = []
    authority = await store.read(AUTHORITY)
    if not authority:
        pair = credentials.new_authority(now=now)
        authority = {"ca.crt": pair.certificate, "ca.key": pair.key}
        await store.write(AUTHORITY, authority)
        written.append(AUTHORITY)
    keys: dict[str, str] = {}
    for user in permissions.USERS:
        bundle = USER + user.name
        files = await store.read(bundle)
        if not files:
            files = {"seed": credentials.new_seed().encode(), "ca.crt": authority["ca.crt"]}
            await store.write(bundle, files)
            written.append(bundle)
        keys[user.name] = _public_key(bundle, files)
    have = await store.read(SERVER)
    want = {CONF: server_conf.render(server, keys).encode(), "ca.crt": authority["ca.crt"]}
    if "tls.key" in have:
        want |= {"tls.crt": have["tls.crt"], "tls.key": have["tls.key"]}
    else:
        pair = credentials.new_server(Pair(authority["ca.crt"], authority["ca.key"]), names=names, now=now)
        want |= {"tls.crt": pair.certificate, "tls.key": pair.key}
    if have != want:
        await store.write(SERVER, want)
        written.append(SERVER)
    return written


def _public_key(bundle: str, files: Mapping[str, bytes]) -> str:
    try:
        return credentials.public_key(files["seed"].decode())
    except (KeyError, ValueError) as problem:
        raise errors.InvalidSpec(f"{bundle} holds no NKEY seed ({problem}); delete it and run again") from problem


class Folder:
    """Bundles as files that only their owner can read."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def path(self, bundle: str, file: str) -> Path:
        """Return where a file of a bundle lies."""
        if bundle.startswith(USER):
            return self._root / "users" / f"{bundle.removeprefix(USER)}.{file}"
        return self._root / file

    async def read(self, bundle: str) -> dict[str, bytes]:
        """Return the files of a bundle, if its secret one is there."""
        wanted = {AUTHORITY: ("ca.key", "ca.crt"), SERVER: ("tls.key", "tls.crt", "ca.crt", CONF)}
        files = wanted.get(bundle, ("seed",))
        paths = {file: self.path(bundle, file) for file in files}
        if not paths[files[0]].exists():
            return {}
        return {file: path.read_bytes() for file, path in paths.items() if path.exists()}

    async def write(self, bundle: str, files: Mapping[str, bytes]) -> None:
        """Write the files, readable by their owner alone; a user's authority lies one folder up already."""
        for file, content in files.items():
            if bundle.startswith(USER) and file != "seed":
                continue
            path = self.path(bundle, file)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            path.touch(mode=0o600)
            path.write_bytes(content)


class _Meta(msgspec.Struct, frozen=True):
    resource_version: str = msgspec.field(name="resourceVersion", default="")


class _Secret(msgspec.Struct, frozen=True):
    metadata: _Meta
    data: dict[str, str] = {}


class Secrets:
    """Bundles as Secrets of one namespace."""

    def __init__(self, kube: Kube, namespace: str) -> None:
        self._kube = kube
        self._namespace = namespace

    async def read(self, bundle: str) -> dict[str, bytes]:
        """Return the data of a Secret."""
        secret = await self._get(bundle)
        return {} if secret is None else {file: base64.b64decode(text) for file, text in secret.data.items()}

    async def write(self, bundle: str, files: Mapping[str, bytes]) -> None:
        """Create or replace a Secret."""
        metadata: Body = {"name": bundle, "labels": {"app.kubernetes.io/part-of": "raybus"}}
        body: Body = {
            "apiVersion": SECRET.api_version,
            "kind": SECRET.kind,
            "metadata": metadata,
            "type": "Opaque",
            "data": {file: base64.b64encode(content).decode() for file, content in files.items()},
        }
        there = await self._get(bundle)
        if there is None:
            await self._kube.create(SECRET, self._namespace, body)
        else:
            metadata["resourceVersion"] = there.metadata.resource_version
            await self._kube.replace(SECRET, self._namespace, body)

    async def _get(self, bundle: str) -> _Secret | None:
        try:
            return msgspec.json.decode(await self._kube.get(SECRET, self._namespace, bundle), type=_Secret)
        except errors.NotFound:
            return None
