"""Keys and certificates in a folder, for a NATS without Kubernetes.

Examples are `docker compose`, `raybus up`, and a server that a user runs.

    ca.crt, ca.key       the authority
    tls.crt, tls.key     the server
    nats-server.conf     its configuration
    users/USER.seed      the private key of each user

Files that exist are kept. To replace a key, delete its file, complete the folder again, and reload
the server.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from common import errors
from common.bus import nkeys
from nats_admin import certificates, server_conf
from nats_admin.certificates import CertificatePair
from nats_admin.server_conf import ServerConfig


def complete_folder(
    folder: Path, server: ServerConfig, *, names: Sequence[str], now: datetime
) -> list[str]:
    """Create the missing files; return the names of the files written.

    The server's certificate is renewed if it cannot be used any more.

    The users come first and the server last, so that an interrupted run leaves no server with keys
    that no user has.
    """
    (folder / "users").mkdir(parents=True, exist_ok=True, mode=0o700)
    contents = _ensure_authority(folder, now=now)
    authority = CertificatePair(contents["ca.crt"], contents["ca.key"])
    paths = {user.name: folder / "users" / f"{user.name}.seed" for user in server.users}
    written = [f"users/{path.name}" for path in paths.values() if not path.exists()]
    seeds = {name: ensure_seed(path) for name, path in paths.items()}
    pair = _ensure_server_pair(folder, authority, names, now=now)
    keys = {name: [nkeys.derive_public_key(seed)] for name, seed in seeds.items()}
    contents |= {"tls.crt": pair.certificate, "tls.key": pair.key}
    contents |= {"nats-server.conf": server_conf.render(server, keys).encode()}
    return [
        *written,
        *(name for name, content in contents.items() if write(folder / name, content)),
    ]


def write(path: Path, content: bytes) -> bool:
    """Write a file atomically if its content differs; return whether it did.

    Only its owner can read the file.
    """
    if path.exists() and path.read_bytes() == content:
        return False
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.replace(path)
    return True


def is_usable(
    pair: CertificatePair, authority: bytes, names: Sequence[str], *, now: datetime
) -> bool:
    """Return whether a server can use a certificate for `RENEW_BEFORE` or longer.

    Checked are its authority, its names, its use between servers, and its end.
    """
    return (
        certificates.is_signed_by(pair.certificate, authority)
        and set(names) <= set(certificates.read_names(pair.certificate))
        and certificates.is_for_routes(pair.certificate)
        and certificates.read_end(pair.certificate) - now > certificates.RENEW_BEFORE
    )


def _ensure_authority(folder: Path, *, now: datetime) -> dict[str, bytes]:
    if (folder / "ca.crt").exists():
        return {name: (folder / name).read_bytes() for name in ("ca.crt", "ca.key")}
    authority = certificates.make_authority(now=now)
    return {"ca.crt": authority.certificate, "ca.key": authority.key}


def ensure_seed(path: Path) -> str:
    """Return the private key in a file, which is created if it does not exist.

    Raises `InvalidSpec` if the file does not hold a seed.
    """
    if not path.exists():
        write(path, nkeys.new_seed().encode())
    seed = path.read_text()
    try:
        nkeys.derive_public_key(seed)
    except ValueError as problem:
        raise errors.InvalidSpec(
            f"{path} holds no NKEY seed ({problem}); delete it and run again"
        ) from problem
    return seed


def _ensure_server_pair(
    folder: Path, authority: CertificatePair, names: Sequence[str], *, now: datetime
) -> CertificatePair:
    """Return the existing certificate if it is usable, else a new one.

    A certificate of another authority is never replaced.
    """
    if not (folder / "tls.key").exists():
        return certificates.make_server_certificate(authority, names=names, now=now)
    there = CertificatePair((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes())
    is_foreign = not certificates.is_signed_by(there.certificate, authority.certificate)
    if is_foreign or is_usable(there, authority.certificate, names, now=now):
        return there
    named = dict.fromkeys([*certificates.read_names(there.certificate), *names])
    return certificates.make_server_certificate(authority, names=list(named), now=now)
