"""Where credentials are kept: a folder, or Secrets of Kubernetes.

What exists is completed, and replaced only when that is asked for (`common.bus.rotation` says how, and which further keys a
bundle holds meanwhile) or when a certificate of ours no longer fits.

folder                         Secret                 keys
DIR/ca.crt, DIR/ca.key         nats-authority         ca.crt, ca.key
DIR/tls.crt, DIR/tls.key       nats-server            tls.crt, tls.key, ca.crt, nats-server.conf
DIR/nats-server.conf
DIR/users/USER.seed            nats-user-USER         seed, ca.crt
"""

import base64
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final, Protocol

import msgspec

from common import errors
from common.api.opaque import Body
from common.bus import credentials, rotation, server_conf
from common.bus.credentials import Pair
from common.bus.rotation import Files, Phase
from common.bus.server_conf import Server
from common.kube.client import Kube
from common.kube.resources import SECRET

AUTHORITY: Final = "nats-authority"
SERVER: Final = "nats-server"
USER: Final = "nats-user-"
CONF: Final = "nats-server.conf"
PASSING: Final = (rotation.NEXT, rotation.PREVIOUS, rotation.CHANGED)
"""Files that a bundle holds while its key is being replaced."""


class Store(Protocol):
    """Named bundles of small files."""

    async def read(self, bundle: str) -> dict[str, bytes]:
        """Return what a bundle holds; nothing when there is none."""
        ...

    async def write(self, bundle: str, files: Mapping[str, bytes]) -> None:
        """Create a bundle, or replace all that it holds."""
        ...


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """What one run did, and what it left for the next."""

    written: tuple[str, ...] = ()
    """Bundles that changed."""
    waiting: Mapping[str, Phase] = {}
    """Keys that are being replaced, by bundle."""
    due: datetime | None = None
    """When the next run may go on; None when nothing is left to do."""


async def complete(store: Store, server: Server, *, names: Sequence[str], now: datetime) -> list[str]:
    """Make what is missing; return the bundles that were written.

    The users come first and the server last, so an interrupted run leaves no server that knows keys which nobody has.
    """
    written: list[str] = []
    authority = await store.read(AUTHORITY)
    if not authority:
        pair = credentials.new_authority(now=now)
        authority = {rotation.CERTIFICATE: pair.certificate, rotation.KEY: pair.key}
        await store.write(AUTHORITY, authority)
        written.append(AUTHORITY)
    users: dict[str, Files] = {}
    for user in server.users:
        bundle = USER + user.name
        files = await store.read(bundle)
        if not files:
            files = {
                rotation.SEED: credentials.new_seed().encode(),
                rotation.CERTIFICATE: authority[rotation.CERTIFICATE],
            }
            await store.write(bundle, files)
            written.append(bundle)
        users[user.name] = files
    have = await store.read(SERVER)
    pair = _server_pair(have, authority, names, now=now)
    if await _write_server(store, server, pair, authority, users):
        written.append(SERVER)
    return written


async def rotate(store: Store, server: Server, *, begin: frozenset[str], overlap: timedelta, now: datetime) -> Step:
    """Begin to replace some keys (bundles), and carry on what is due; call it again when the step says so."""
    authority = await store.read(AUTHORITY)
    users = {user.name: await store.read(USER + user.name) for user in server.users}
    have = await store.read(SERVER)
    if not authority or not have or not all(users.values()):
        raise errors.InvalidSpec("there are no complete credentials to replace; run the command without --rotate first")
    written: list[str] = []
    everybody = [*users.values(), have]
    is_sent = all(
        files.get(rotation.CERTIFICATE, authority[rotation.CERTIFICATE]) == authority[rotation.CERTIFICATE]
        for files in everybody
    )
    moved = _authority_moved(authority, begin=AUTHORITY in begin, is_sent=is_sent, overlap=overlap, now=now)
    if moved != authority:
        authority = moved
        await store.write(AUTHORITY, authority)
        written.append(AUTHORITY)
    for name, files in users.items():
        bundle = USER + name
        is_known = all(key in have[CONF].decode() for key in _public_keys(bundle, files))
        users[name] = _user_moved(files, begin=bundle in begin, is_known=is_known, overlap=overlap, now=now)
        if rotation.CERTIFICATE in files:
            users[name][rotation.CERTIFICATE] = authority[rotation.CERTIFICATE]
        if users[name] != files:
            await store.write(bundle, users[name])
            written.append(bundle)
    if SERVER in begin and not _is_ours(have["tls.crt"], authority):
        raise errors.InvalidSpec(
            f"{SERVER} holds a certificate that somebody else signed; renew it where it comes from"
        )
    known = {} if SERVER in begin else have
    pair = _server_pair(known, authority, credentials.names_of(have["tls.crt"]), now=now)
    if await _write_server(store, server, pair, authority, users):
        written.append(SERVER)
    bundles = {AUTHORITY: authority} | {USER + name: files for name, files in users.items()}
    times = [at for files in bundles.values() if (at := rotation.due(files, overlap)) is not None]
    return Step(
        written=tuple(written),
        waiting={bundle: at for bundle, files in bundles.items() if (at := rotation.phase(files)) is not Phase.SETTLED},
        due=min(times, default=None),
    )


def _user_moved(files: Files, *, begin: bool, is_known: bool, overlap: timedelta, now: datetime) -> Files:
    due = rotation.due(files, overlap)
    if due is None:
        return rotation.begin_user(files, credentials.new_seed(), now=now) if begin else dict(files)
    if not is_known:
        return rotation.waiting_anew(files, now=now)
    return rotation.carry_user_on(files, now=now) if due <= now else dict(files)


def _authority_moved(files: Files, *, begin: bool, is_sent: bool, overlap: timedelta, now: datetime) -> Files:
    due = rotation.due(files, overlap)
    if due is None:
        return rotation.begin_authority(files, credentials.new_authority(now=now), now=now) if begin else files
    if not is_sent:
        return rotation.waiting_anew(files, now=now)
    return rotation.carry_authority_on(files, now=now) if due <= now else files


def _server_pair(have: Mapping[str, bytes], authority: Files, names: Sequence[str], *, now: datetime) -> Pair:
    """Return the certificate that is there, or a new one; one that somebody else signed is never touched."""
    signer = rotation.signer(authority)
    if "tls.key" not in have:
        return credentials.new_server(signer, names=names, now=now)
    there = Pair(have["tls.crt"], have["tls.key"])
    if not _is_ours(there.certificate, authority):
        return there
    named = credentials.names_of(there.certificate)
    is_fit = (
        credentials.is_signed_by(there.certificate, signer.certificate)
        and set(names) <= set(named)
        and credentials.serves_routes(there.certificate)
        and credentials.end_of(there.certificate) - now > credentials.RENEW_BEFORE
    )
    return there if is_fit else credentials.new_server(signer, names=list(dict.fromkeys([*named, *names])), now=now)


def _is_ours(certificate: bytes, authority: Files) -> bool:
    ours = credentials.split(authority[rotation.CERTIFICATE])
    return any(credentials.is_signed_by(certificate, each) for each in ours)


async def _write_server(store: Store, server: Server, pair: Pair, authority: Files, users: Mapping[str, Files]) -> bool:
    keys = {name: _public_keys(USER + name, files) for name, files in users.items()}
    want = {
        CONF: server_conf.render(server, keys).encode(),
        rotation.CERTIFICATE: authority[rotation.CERTIFICATE],
        "tls.crt": pair.certificate,
        "tls.key": pair.key,
    }
    if await store.read(SERVER) == want:
        return False
    await store.write(SERVER, want)
    return True


def _public_keys(bundle: str, files: Mapping[str, bytes]) -> list[str]:
    try:
        return rotation.public_keys(files)
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
        if file in PASSING:
            return self._root / f"ca.{file}"
        return self._root / file

    async def read(self, bundle: str) -> dict[str, bytes]:
        """Return the files of a bundle, if its secret one is there."""
        files = self._files(bundle)
        paths = {file: self.path(bundle, file) for file in files}
        if not paths[files[0]].exists():
            return {}
        return {file: path.read_bytes() for file, path in paths.items() if path.exists()}

    async def write(self, bundle: str, files: Mapping[str, bytes]) -> None:
        """Write the files, readable by their owner alone; a user's authority lies one folder up already."""
        for file, content in files.items():
            if bundle.startswith(USER) and file == rotation.CERTIFICATE:
                continue
            path = self.path(bundle, file)
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            # Who reads it meanwhile sees the old file or the new one, never half of one.
            half = path.with_name(f".{path.name}.new")
            half.unlink(missing_ok=True)
            half.touch(mode=0o600)
            half.write_bytes(content)
            half.replace(path)
        for file in self._files(bundle):
            if file in PASSING and file not in files:
                self.path(bundle, file).unlink(missing_ok=True)

    def _files(self, bundle: str) -> tuple[str, ...]:
        """Return what a bundle may hold; its secret part first."""
        if bundle == SERVER:
            return ("tls.key", "tls.crt", rotation.CERTIFICATE, CONF)
        if bundle == AUTHORITY:
            return (rotation.KEY, rotation.CERTIFICATE, rotation.NEXT, rotation.CHANGED)
        return (rotation.SEED, *PASSING)


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
