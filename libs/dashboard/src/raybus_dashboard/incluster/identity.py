"""Extracts the identity of a request's user from its headers. Does no I/O.

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


class InvalidCredentials(Exception):
    """The request has no valid credentials (HTTP 401)."""


class Refused(Exception):
    """The credentials are valid, but the user is not accepted (HTTP 403)."""


class UserIdentity(msgspec.Struct, frozen=True, kw_only=True):
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

    def read_identity(self, headers: Headers, secret: bytes) -> UserIdentity | None:
        """Return the user that the proxy names; None without the proxy's secret header.

        Raises `InvalidCredentials` if the secret is wrong or the headers do not name exactly one
        user, and `Refused` if the name of the user or of a group is not accepted.
        """
        given = headers.getall(self.secret, ())
        if not given:
            return None
        # A header may hold any bytes. compare_digest takes the same time wherever the first
        # difference is.
        if len(given) != 1 or not hmac.compare_digest(
            given[0].encode(errors="surrogateescape"), secret
        ):
            raise InvalidCredentials(f"{self.secret} is not the secret of the proxy")
        users = headers.getall(self.user, ())
        if len(users) != 1 or not users[0].strip():
            raise InvalidCredentials(
                f"{self.user}: expected one user, the request has {len(users)} of this header"
            )
        groups = [
            group.strip() for line in headers.getall(self.groups, ()) for group in line.split(",")
        ]
        return self._check_identity(
            users[0].strip(), tuple(dict.fromkeys(group for group in groups if group))
        )

    def _check_identity(self, user: str, groups: tuple[str, ...]) -> UserIdentity:
        identity = UserIdentity(
            user=self.user_prefix + user,
            groups=tuple(self.group_prefix + group for group in groups[: MAX_GROUPS + 1]),
        )
        names = (user, *groups, identity.user, *identity.groups)
        if any(name.lower().startswith(SYSTEM) for name in names):
            raise Refused(
                f"a user or a group that begins with {SYSTEM} is not accepted from a proxy"
            )
        if len(groups) > MAX_GROUPS:
            raise Refused(f"{self.groups}: more than {MAX_GROUPS} groups")
        if any(len(name) > MAX_NAME_LENGTH or not _CONTROL.isdisjoint(name) for name in names):
            raise Refused(
                f"{self.user} or {self.groups}: a name is longer than {MAX_NAME_LENGTH} or has "
                "control characters"
            )
        return identity


def get_bearer_token(headers: Headers) -> str | None:
    """Return the bearer token of a request; None without an `Authorization` header.

    Raises `InvalidCredentials` if the header is not exactly one token.
    """
    given = headers.getall("Authorization", ())
    if not given:
        return None
    match = _BEARER.fullmatch(given[0].strip()) if len(given) == 1 else None
    if match is None or len(match[1]) > MAX_TOKEN_LENGTH:
        raise InvalidCredentials("Authorization: expected 'Bearer TOKEN'")
    return match[1]
