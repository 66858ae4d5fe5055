"""Extracts the identity of a request's user from its headers. Pure.

The headers are those of an authenticating proxy, or a bearer token. A proxy's headers count only
with the secret that proxy and dashboard share. Users and groups that start with `system:` are never
accepted from a proxy: it authenticates people, and `system:masters` may do everything.
"""

import hmac
from collections.abc import Sequence
from typing import Final, Protocol

import msgspec
import re2

SYSTEM: Final = "system:"
ANONYMOUS: Final = "system:anonymous"
UNAUTHENTICATED: Final = "system:unauthenticated"
MAX_NAME_LENGTH: Final = 256
MAX_GROUPS: Final = 200
MAX_TOKEN_LENGTH: Final = 8192
_BEARER: Final = re2.compile(r"[Bb]earer +([A-Za-z0-9._~+/-]+=*)")
_CONTROL: Final = frozenset(map(chr, (*range(0x20), *range(0x7F, 0xA0), *range(0xD800, 0xE000))))
"""Control characters, and the surrogates that stand for bytes that are not UTF-8."""


class Unauthenticated(Exception):
    """The request has no valid credentials (HTTP 401)."""


class Refused(Exception):
    """The credentials are valid, but the user is not accepted (HTTP 403)."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """A user in the form of TokenReview and SubjectAccessReview."""

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


class Headers(Protocol):
    """The HTTP headers of a request."""

    def getall(self, key: str, default: Sequence[str]) -> Sequence[str]:
        """Return all values of a header."""
        ...


class ProxyHeaders(msgspec.Struct, frozen=True, kw_only=True):
    """The headers that an authenticating proxy sets, and the prefixes of users and groups.

    A user's name in Kubernetes is the prefix followed by the name in the header.
    """

    user: str = "X-Forwarded-User"
    groups: str = "X-Forwarded-Groups"
    secret: str = "X-Raybus-Proxy-Secret"  # noqa: S105  (the name of a header)
    user_prefix: str = ""
    group_prefix: str = ""

    def identity(self, headers: Headers, secret: bytes) -> Identity | None:
        """Return the user that the proxy names; None without the proxy's secret header.

        Raises `Unauthenticated` for a wrong secret or not exactly one user, `Refused` for names
        that are not accepted.
        """
        given = headers.getall(self.secret, ())
        if not given:
            return None
        # A header may hold any bytes. compare_digest takes the same time wherever the first
        # difference is.
        if len(given) != 1 or not hmac.compare_digest(
            given[0].encode(errors="surrogateescape"), secret
        ):
            raise Unauthenticated(f"{self.secret} is not the secret of the proxy")
        users = headers.getall(self.user, ())
        if len(users) != 1 or not users[0].strip():
            raise Unauthenticated(
                f"{self.user}: expected one user, the request has {len(users)} of this header"
            )
        groups = [
            each.strip() for line in headers.getall(self.groups, ()) for each in line.split(",")
        ]
        return self._checked(
            users[0].strip(), tuple(dict.fromkeys(each for each in groups if each))
        )

    def _checked(self, user: str, groups: tuple[str, ...]) -> Identity:
        found = Identity(
            user=self.user_prefix + user,
            groups=tuple(self.group_prefix + each for each in groups[: MAX_GROUPS + 1]),
        )
        names = (user, *groups, found.user, *found.groups)
        if any(each.lower().startswith(SYSTEM) for each in names):
            raise Refused(
                f"a user or a group that begins with {SYSTEM} is not accepted from a proxy"
            )
        if len(groups) > MAX_GROUPS:
            raise Refused(f"{self.groups}: more than {MAX_GROUPS} groups")
        if any(len(each) > MAX_NAME_LENGTH or not _CONTROL.isdisjoint(each) for each in names):
            raise Refused(
                f"{self.user} or {self.groups}: a name is longer than {MAX_NAME_LENGTH} or has "
                "control characters"
            )
        return found


def bearer(headers: Headers) -> str | None:
    """Return the bearer token of a request; None without the header.

    Raises `Unauthenticated` if the header is not exactly one token.
    """
    given = headers.getall("Authorization", ())
    if not given:
        return None
    found = _BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
    if found is None or len(found[1]) > MAX_TOKEN_LENGTH:
        raise Unauthenticated("Authorization: expected 'Bearer TOKEN'")
    return found[1]
