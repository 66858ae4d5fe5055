"""Authenticates requests by bearer tokens, or by the headers of a proxy.

The proxy must send a secret that it shares with the dashboard. There is no anonymous access.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from common import errors
from common.clock import steady
from raybus_dashboard.incluster import identity
from raybus_dashboard.incluster.identity import (
    Headers,
    InvalidCredentials,
    ProxyHeaders,
    UserIdentity,
)

MIN_SECRET_LENGTH: Final = 32
"""Minimum bytes of the secret; `openssl rand -hex 32` prints 64."""
REREAD_SECONDS: Final = 10.0
"""Interval after which the secret's file is read again, so that a new secret is used without a
restart.
"""


class TokenAuthenticator(Protocol):
    """Checks bearer tokens."""

    async def authenticate(self, token: str) -> UserIdentity:
        """Return the user of a token; raise `InvalidCredentials` for an invalid token."""
        ...


class SecretFile:
    """The secret shared with the proxy, in a mounted file."""

    def __init__(self, path: Path, now: Callable[[], float] = steady) -> None:
        self._path = path
        self._now = now
        self._read_at = now()
        self._secret = self._read()

    def read_secret(self) -> bytes:
        """Return the secret; raise `InvalidSpec` if the file is missing or too short."""
        if self._now() - self._read_at >= REREAD_SECONDS:
            self._secret, self._read_at = self._read(), self._now()
        return self._secret

    def _read(self) -> bytes:
        try:
            secret = self._path.read_bytes().strip()
        except OSError as problem:
            raise errors.InvalidSpec(
                f"--proxy-secret-file {self._path}: cannot be read: {problem.strerror}"
            ) from problem
        if len(secret) < MIN_SECRET_LENGTH:
            raise errors.InvalidSpec(
                f"--proxy-secret-file {self._path}: {len(secret)} bytes are too few, at least "
                f"{MIN_SECRET_LENGTH} are needed:"
                " openssl rand -hex 32"
            )
        return secret


class AuthenticatingProxy(msgspec.Struct, frozen=True):
    """An authenticating proxy in front of the dashboard."""

    headers: ProxyHeaders
    secret: SecretFile


class Authentication(msgspec.Struct, frozen=True, kw_only=True):
    """The accepted kinds of credentials; None for a kind that is not accepted."""

    tokens: TokenAuthenticator | None = None
    proxy: AuthenticatingProxy | None = None

    async def authenticate(self, headers: Headers) -> UserIdentity:
        """Return the user of a request.

        Raises `InvalidCredentials` without valid credentials, `Refused` for a user that is not
        accepted, and `Unavailable` if the proxy's secret cannot be read.
        """
        if self.proxy is not None:
            try:
                secret = self.proxy.secret.read_secret()
            except errors.InvalidSpec as problem:
                raise errors.Unavailable("the secret of the proxy cannot be read") from problem
            user = self.proxy.headers.read_identity(headers, secret)
            if user is not None:
                return user
        if self.tokens is not None and (token := identity.get_bearer_token(headers)) is not None:
            return await self.tokens.authenticate(token)
        raise InvalidCredentials(
            "sign in with a token" if self.tokens else "open this page through its proxy"
        )
