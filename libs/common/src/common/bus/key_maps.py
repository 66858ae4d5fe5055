"""ConfigMaps for public keys of NATS users and for certificates of NATS servers: their names, and which certificates a client trusts. Pure.

`nats_admin.key_registry` describes their entries, and decides which keys a server accepts.
"""

from collections.abc import Mapping
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

PREFIX: Final = "nats-keys-"
"""The name of a user follows."""
NAMED: Final = "named-subscribers"
"""In place of a user: the keys of all named subscribers, each in an entry NAME or NAME.ANYTHING."""
SERVERS: Final = "nats-servers"
MOST: Final = 64
"""Keys of one user, and certificates of servers, that are read; further ones are ignored."""
LONGEST: Final = 8_192
"""Characters of one certificate entry."""


def trusted(servers: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the certificates of the ConfigMap `nats-servers` as one PEM text, and which entries are ignored."""
    found: list[bytes] = []
    ignored: list[str] = []
    for name, text in sorted(servers.items()):
        if len(text) > LONGEST or len(found) >= MOST:
            ignored.append(f"ConfigMap {SERVERS}, entry {name}, is too long, or beyond {MOST} certificates")
            continue
        try:
            found += _split(text.encode())
        except ValueError as problem:
            ignored.append(f"ConfigMap {SERVERS}, entry {name}, is no certificate: {problem}")
    return b"".join(dict.fromkeys(found)).decode(), ignored


def _split(certificates: bytes) -> list[bytes]:
    """Return each certificate of a PEM file."""
    return [each.public_bytes(Encoding.PEM) for each in x509.load_pem_x509_certificates(certificates)]
