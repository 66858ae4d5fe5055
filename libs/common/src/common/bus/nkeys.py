"""Keys of NATS users and certificates of NATS servers: their text forms and ConfigMap names.

A key is an Ed25519 key in NATS' text form (NKEY): base32 of a prefix, the key and a checksum.
`nats_admin.key_registry` describes the entries of the ConfigMaps, and decides which keys a server
accepts.
"""

import base64
import binascii
import ssl
from collections.abc import Mapping
from typing import Final

import re2
from nacl.signing import SigningKey

SEED_PREFIX: Final = 18 << 3
USER_PREFIX: Final = 20 << 3
_CERTIFICATE: Final = re2.compile("(?s)-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----")

KEYS_PREFIX: Final = "nats-keys-"
"""Prefix of the name of a ConfigMap with keys; the name of the NATS user follows."""
NAMED: Final = "named-subscribers"
"""Stands in place of a user name: all named subscribers share `nats-keys-named-subscribers`.

The ConfigMap's entries for subscriber NAME are called NAME or NAME.ANYTHING."""
SERVERS: Final = "nats-servers"
MAX_AUTHORITIES: Final = 64
"""Maximum number of keys of one user, and maximum number of server certificates.

Keys and certificates beyond it are ignored.
"""
MAX_TEXT_LENGTH: Final = 8_192
"""Maximum characters of one certificate entry."""


def new_seed() -> str:
    """Return a new NKEY seed, the secret of a user."""
    return _encode(
        bytes([SEED_PREFIX | USER_PREFIX >> 5, (USER_PREFIX & 31) << 3])
        + bytes(SigningKey.generate())
    )


def derive_public_key(seed: str) -> str:
    """Return the public key of a seed; raise `ValueError` if the text is not a seed."""
    padded = seed.strip() + "=" * (-len(seed.strip()) % 8)
    raw = base64.b32decode(padded)
    if len(raw) != 36 or binascii.crc_hqx(raw[:-2], 0) != int.from_bytes(raw[-2:], "little"):
        raise ValueError("this is no NKEY seed")
    return _encode(bytes([USER_PREFIX]) + bytes(SigningKey(raw[2:34]).verify_key))


def _encode(payload: bytes) -> str:
    checked = payload + binascii.crc_hqx(payload, 0).to_bytes(2, "little")
    return base64.b32encode(checked).decode().rstrip("=")


def parse_authorities(servers: Mapping[str, str]) -> tuple[str, list[str]]:
    """Return the certificates of the ConfigMap `nats-servers` as one PEM text, and warnings.

    There is a warning for each entry that is ignored.
    """
    authorities: list[str] = []
    ignored: list[str] = []
    for name, text in sorted(servers.items()):
        if len(text) > MAX_TEXT_LENGTH or len(authorities) >= MAX_AUTHORITIES:
            ignored.append(
                f"ConfigMap {SERVERS}, entry {name}, is too long, or beyond {MAX_AUTHORITIES} "
                "certificates"
            )
            continue
        try:
            blocks = [
                ssl.DER_cert_to_PEM_cert(ssl.PEM_cert_to_DER_cert(block))
                for block in _CERTIFICATE.findall(text)
            ]
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cadata="".join(blocks))
            authorities += blocks
        except (ssl.SSLError, ValueError) as problem:
            ignored.append(f"ConfigMap {SERVERS}, entry {name}, is no certificate: {problem}")
    return "".join(dict.fromkeys(authorities)), ignored
