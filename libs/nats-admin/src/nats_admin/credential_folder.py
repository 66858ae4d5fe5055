"""Keys and certificates in a folder, for a NATS server that runs without Kubernetes.

`docker compose`, `raybus up` and a server that a user runs need such a folder:

    ca.crt, ca.key       the certificate authority (CA)
    tls.crt, tls.key     the server's certificate, signed by the CA
    nats-server.conf     the server's configuration
    users/USER.seed      the private key of each user

Existing keys are kept. To replace a key, delete its file, create the missing files again, and
reload the server.
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
    """Create missing and update outdated files in `folder`; return the names of those written.

    `names` are the host names and addresses of the server. The server's certificate and key are
    renewed when they are no longer usable (`is_usable`). The users' private keys are written before
    the server's configuration, which contains their public keys.
    """
    (folder / "users").mkdir(parents=True, exist_ok=True, mode=0o700)
    contents = _ensure_ca(folder, now=now)
    ca = CertificatePair(contents["ca.crt"], contents["ca.key"])
    paths = {user.name: folder / "users" / f"{user.name}.seed" for user in server.users}
    written = [f"users/{path.name}" for path in paths.values() if not path.exists()]
    seeds = {name: ensure_seed(path) for name, path in paths.items()}
    pair = _ensure_server_pair(folder, ca, names, now=now)
    keys = {name: [nkeys.derive_public_key(seed)] for name, seed in seeds.items()}
    contents |= {"tls.crt": pair.certificate, "tls.key": pair.key}
    contents |= {"nats-server.conf": server_conf.render(server, keys).encode()}
    return [
        *written,
        *(name for name, content in contents.items() if write(folder / name, content)),
    ]


def write(path: Path, content: bytes) -> bool:
    """Write a file atomically if its content differs; return whether it was written.

    Only the file's owner can read it.
    """
    if path.exists() and path.read_bytes() == content:
        return False
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    new.touch(mode=0o600)
    new.write_bytes(content)
    new.replace(path)
    return True


def is_usable(pair: CertificatePair, ca: bytes, names: Sequence[str], *, now: datetime) -> bool:
    """Return whether a server can use a certificate for longer than `RENEW_BEFORE`.

    The certificate must be signed by the CA `ca`, cover all `names`, and allow the server to
    connect to other servers as a client (`certificates.is_for_routes`).
    """
    return (
        certificates.is_signed_by(pair.certificate, ca)
        and set(names) <= set(certificates.read_names(pair.certificate))
        and certificates.is_for_routes(pair.certificate)
        and certificates.read_end(pair.certificate) - now > certificates.RENEW_BEFORE
    )


def _ensure_ca(folder: Path, *, now: datetime) -> dict[str, bytes]:
    if (folder / "ca.crt").exists():
        return {name: (folder / name).read_bytes() for name in ("ca.crt", "ca.key")}
    ca = certificates.make_ca(now=now)
    return {"ca.crt": ca.certificate, "ca.key": ca.key}


def ensure_seed(path: Path) -> str:
    """Return the NKEY seed (private key) in a file.

    Creates the file if it does not exist. Raises `InvalidSpec` if the file holds no seed.
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
    folder: Path, ca: CertificatePair, names: Sequence[str], *, now: datetime
) -> CertificatePair:
    """Return the server certificate in the folder, or a new one if there is no usable one.

    A certificate that a different CA has signed is returned even if it is not usable.
    """
    if not (folder / "tls.key").exists():
        return certificates.make_server_certificate(ca, names=names, now=now)
    there = CertificatePair((folder / "tls.crt").read_bytes(), (folder / "tls.key").read_bytes())
    is_foreign = not certificates.is_signed_by(there.certificate, ca.certificate)
    if is_foreign or is_usable(there, ca.certificate, names, now=now):
        return there
    named = dict.fromkeys([*certificates.read_names(there.certificate), *names])
    return certificates.make_server_certificate(ca, names=list(named), now=now)
