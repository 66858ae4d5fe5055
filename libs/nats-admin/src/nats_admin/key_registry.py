"""Public keys of NATS users, and CA certificates of NATS servers, in ConfigMaps.

ConfigMap                     entry                     value                            changed by
nats-keys-USER                name of the pod           public key (U...)                (1)
nats-keys-subscriber,         any                       public key                       (2)
nats-keys-administrator...
nats-keys-named-subscribers   NAME or NAME.ANYTHING     public key of subscriber NAME    (2)
nats-servers                  name of the server's pod  certificate of the server's CA   (3)

(1) the ServiceAccount of USER; (2) an administrator, or a user who may edit the ConfigMap; (3) the
ServiceAccount `nats`.

A key has only the permissions of the user whose ConfigMap it is in. ConfigMaps with other names are
ignored, whatever their labels. Malformed entries are ignored and reported.
"""

import base64
import binascii
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec
import re2

from common.bus.nkeys import (
    KEYS_PREFIX,
    MAX_AUTHORITIES,
    NAMED,
    SERVERS,
    USER_PREFIX,
    parse_authorities,
)
from nats_admin import permissions
from nats_admin.subscribers import NamedSubscriber

LABEL: Final = "raybus.io/nats-keys"
"""Label of the ConfigMaps with keys and certificates.

The keeper watches the ConfigMaps that have it.
"""
KEEPERS: Final = frozenset({"keeper", "keeper-outside"})
"""Users without a ConfigMap: the keeper writes their keys into the configuration itself."""
PROCESSES: Final = (*permissions.SERVICES, "provisioner", "provisioner-outside")
"""Users whose entries are named after pods. An entry is removed after its pod is deleted."""
USERS: Final = tuple(user.name for user in permissions.USERS if user.name not in KEEPERS)
"""Users with a ConfigMap of their own."""
_LAST: Final = "cluster-reconciler"
"""User whose keys are read last.

This service may read every ConfigMap, so it could register another user's public key as its own.
That would have no effect, because a key counts only for the user for whom it is read first.
"""
_PUBLIC_KEY: Final = re2.compile("[A-Z2-7]{56}")

Maps = Mapping[str, Mapping[str, str]]
"""The data of ConfigMaps, by the name of the ConfigMap."""


class RegisteredKeys(msgspec.Struct, frozen=True):
    """The registered keys and CA certificates, and messages about ignored entries."""

    keys: dict[str, list[str]]
    """The public keys, by name of the user."""
    authorities: str
    """CA certificates of all servers, in one PEM text."""
    ignored: tuple[str, ...] = ()


def read_registry(maps: Maps, named: Iterable[NamedSubscriber] = ()) -> RegisteredKeys:
    """Return the keys of all users and the CA certificates of all servers.

    `named` are the named subscribers, which are users as well.
    """
    keys: dict[str, list[str]] = {}
    owners: dict[str, str] = {}
    ignored: list[str] = []
    users = [user.name for user in permissions.list_users(named) if user.name not in KEEPERS]
    for user in sorted(users, key=lambda name: name == _LAST):
        keys[user] = []
        for place, value in _list_entries(maps, user):
            if not _is_public_key(value):
                ignored.append(f"{place} is not the public key of an NKEY user: {value[:60]!r}")
            elif owners.setdefault(value, user) != user:
                ignored.append(
                    f"{place} is a key of user {owners[value]}, and cannot be one of {user} as well"
                )
            elif value in keys[user]:
                continue
            elif len(keys[user]) >= MAX_AUTHORITIES:
                ignored.append(
                    f"{place} is beyond the {MAX_AUTHORITIES} keys that user {user} may have"
                )
            else:
                keys[user].append(value)
    authorities, problems = parse_authorities(maps.get(SERVERS, {}))
    return RegisteredKeys(keys, authorities, (*ignored, *problems))


def find_orphans(maps: Maps, pods: frozenset[str]) -> set[tuple[str, str]]:
    """Return the entries of pods that are not in `pods`, as pairs (ConfigMap name, entry name)."""
    owned = (*(KEYS_PREFIX + user for user in PROCESSES), SERVERS)
    return {(name, entry) for name in owned for entry in maps.get(name, {}) if entry not in pods}


def _list_entries(maps: Maps, user: str) -> Iterator[tuple[str, str]]:
    """Yield each entry of a user: a description of where it is, and its value."""
    has_own = user in USERS
    name = KEYS_PREFIX + (user if has_own else NAMED)
    for entry, value in sorted(maps.get(name, {}).items()):
        if has_own or f"subscriber-{entry.partition('.')[0]}" == user:
            yield f"ConfigMap {name}, entry {entry}", value


def _is_public_key(text: str) -> bool:
    if not _PUBLIC_KEY.fullmatch(text):
        return False
    raw = base64.b32decode(text)
    return raw[0] == USER_PREFIX and binascii.crc_hqx(raw[:-2], 0) == int.from_bytes(
        raw[-2:], "little"
    )
