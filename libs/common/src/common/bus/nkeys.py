"""Keys of NATS users: an Ed25519 key in NATS' own text form (NKEY), base32 of a prefix, the key and a checksum."""

import base64
import binascii
import re
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

SEED_PREFIX: Final = 18 << 3
USER_PREFIX: Final = 20 << 3
_PUBLIC: Final = re.compile("[A-Z2-7]{56}")


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
