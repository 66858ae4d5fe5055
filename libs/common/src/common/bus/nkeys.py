"""Keys of NATS users and certificates of NATS servers: their text forms, and the ConfigMaps for them.

A key is an Ed25519 key in NATS' own text form (NKEY), base32 of a prefix, the key and a checksum. `nats_admin.key_registry` describes
the entries of the ConfigMaps, and decides which keys a server accepts.
"""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

SEED_PREFIX: Final = 18 << 3
USER_PREFIX: Final = 20 << 3
_PUBLIC: Final = re.compile("[A-Z2-7]{56}")

KEYS_PREFIX: Final = "nats-keys-"
"""The name of a user follows."""
NAMED: Final = "named-subscribers"
"""In place of a user: the keys of all named subscribers, each in an entry NAME or NAME.ANYTHING."""
SERVERS: Final = "nats-servers"
MOST: Final = 64
"""Keys of one user, and certificates of servers, that are read; further ones are ignored."""
LONGEST: Final = 8_192
"""Characters of one certificate entry."""


def new_seed() -> str:
    """Return the secret of a new user."""
    private = Ed25519PrivateKey.generate().private_bytes(Encoding.Raw, PrivateFormat.Raw, NoEncryption())
    return _text(bytes([SEED_PREFIX | USER_PREFIX >> 5, (USER_PREFIX & 31) << 3]) + private)


def public_key(seed: str) -> str:
    """Return the public name of a user; raise `ValueError` for what is no seed."""
    padded = seed.strip() + "=" * (-len(seed.strip()) % 8)
    raw = base64.b32decode(padded)
    if len(raw) != 36 or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise ValueError("this is no NKEY seed")
    public = Ed25519PrivateKey.from_private_bytes(raw[2:34]).public_key()
    return _text(bytes([USER_PREFIX]) + public.public_bytes(Encoding.Raw, PublicFormat.Raw))


def is_public_key(text: str) -> bool:
    """Return whether a text is the public name of a user."""
    if not _PUBLIC.fullmatch(text):
        return False
    raw = base64.b32decode(text)
    return raw[0] == USER_PREFIX and binascii.crc_hqx(raw[:-2], 0) == int.from_bytes(raw[-2:], "little")


def _text(payload: bytes) -> str:
    checked = payload + binascii.crc_hqx(payload, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def trusted(servers: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the certificates of the ConfigMap `nats-servers` as one PEM text, and which entries are ignored."""
    found: list[bytes] = []
    ignored: list[str] = []
    for name, text in sorted(servers.items()):
        if len(text) > LONGEST or len(found) >= MOST:
            ignored.append(f"ConfigMap {SERVERS}, entry {name}, is too long, or beyond {MOST} certificates")
            continue
        try:
            certificates = x509.load_pem_x509_certificates(text.encode())
            found += [each.public_bytes(Encoding.PEM) for each in certificates]
        except ValueError as problem:
            ignored.append(f"ConfigMap {SERVERS}, entry {name}, is no certificate: {problem}")
    return b"".join(dict.fromkeys(found)).decode(), ignored
