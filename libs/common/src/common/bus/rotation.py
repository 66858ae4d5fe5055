"""How keys are replaced while everybody goes on: pure; `credential_store` carries it out.

A new key passes through three phases, and a pause long enough for files to arrive lies between them.

    learning    the servers are told of the new key beside the old one; nobody uses it yet
    spreading   who uses the key is given the new one; the old one is still good
    settled     the old one is forgotten

The same holds for the authority, where "told of" means "trusted": first everybody trusts both, then the server's
certificate is signed by the new one, then the old one is trusted no longer. What a bundle holds says which phase it is in,
so a run that was interrupted is carried on by the next.

    bundle      settled            learning: also               spreading: also
    user        seed               next (a seed), changed       previous (a public key), changed
    authority   ca.crt, ca.key     next (a key), changed;       changed;
                                   ca.crt holds two, old first  ca.crt holds two, new first
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from common.bus import credentials
from common.bus.credentials import Pair

Files = dict[str, bytes]

SEED: Final = "seed"
NEXT: Final = "next"
PREVIOUS: Final = "previous"
CHANGED: Final = "changed"
CERTIFICATE: Final = "ca.crt"
KEY: Final = "ca.key"


class Phase(StrEnum):
    """How far the replacement of a key has come; the text says what is waited for."""

    SETTLED = "settled"
    LEARNING = "the servers learn the new one"
    SPREADING = "it reaches who uses it, and the old one is still good"


def phase(files: Mapping[str, bytes]) -> Phase:
    """Return how far the replacement of a key has come."""
    if NEXT in files:
        return Phase.LEARNING
    return Phase.SPREADING if CHANGED in files else Phase.SETTLED


def due(files: Mapping[str, bytes], overlap: timedelta) -> datetime | None:
    """Return when the next phase may begin; None when nothing is under way."""
    if CHANGED not in files:
        return None
    return datetime.fromisoformat(files[CHANGED].decode()) + overlap


def waiting_anew(files: Mapping[str, bytes], *, now: datetime) -> Files:
    """Begin the pause once more, because what it waits for had not been sent out."""
    return {**files, CHANGED: _stamp(now)}


def begin_user(files: Mapping[str, bytes], seed: str, *, now: datetime) -> Files:
    """Announce a new key of a user."""
    return {**files, NEXT: seed.encode(), CHANGED: _stamp(now)}


def carry_user_on(files: Mapping[str, bytes], *, now: datetime) -> Files:
    """Return what a user's bundle holds in the next phase."""
    rest = {file: content for file, content in files.items() if file not in {NEXT, PREVIOUS, CHANGED}}
    if phase(files) is Phase.LEARNING:
        old = credentials.public_key(files[SEED].decode()).encode()
        return {**rest, SEED: files[NEXT], PREVIOUS: old, CHANGED: _stamp(now)}
    return rest


def public_keys(files: Mapping[str, bytes]) -> list[str]:
    """Return every key that the servers must accept; raise `ValueError` or `KeyError` for what is no seed."""
    keys = [credentials.public_key(files[SEED].decode())]
    if NEXT in files:
        keys.append(credentials.public_key(files[NEXT].decode()))
    if PREVIOUS in files:
        keys.append(files[PREVIOUS].decode())
    return keys


def begin_authority(files: Mapping[str, bytes], new: Pair, *, now: datetime) -> Files:
    """Announce a new authority."""
    trusted = files[CERTIFICATE] + new.certificate
    return {**files, CERTIFICATE: trusted, NEXT: new.key, CHANGED: _stamp(now)}


def carry_authority_on(files: Mapping[str, bytes], *, now: datetime) -> Files:
    """Return what the authority's bundle holds in the next phase."""
    rest = {file: content for file, content in files.items() if file not in {NEXT, CHANGED}}
    certificates = credentials.split(files[CERTIFICATE])
    if phase(files) is Phase.LEARNING:
        return {**rest, KEY: files[NEXT], CERTIFICATE: b"".join(reversed(certificates)), CHANGED: _stamp(now)}
    return {**rest, CERTIFICATE: certificates[0]}


def signer(files: Mapping[str, bytes]) -> Pair:
    """Return what signs the certificates of servers in this phase."""
    return Pair(credentials.split(files[CERTIFICATE])[0], files[KEY])


def _stamp(now: datetime) -> bytes:
    return now.isoformat(timespec="seconds").encode()
