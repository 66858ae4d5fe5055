"""Credentials for the API server, and when they are renewed (as client-go does).

Tokens and certificates in files are read again each minute. An exec plugin runs again when its
credentials have expired. Credentials that the API server refuses (401) are renewed at once.
"""

import asyncio
import base64
import os
import ssl
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Final, Literal

import msgspec

from common import errors
from common.clock import SystemClock, steady

READ_AGAIN_SECONDS: Final = 60.0
"""Seconds until files are read again. They are replaced long before their content expires."""
RETRY_SECONDS: Final = 5.0
"""Minimum seconds between two attempts to renew credentials after a failure or a refusal."""
PLUGIN_TIMEOUT: Final = 60.0
"""Time limit in seconds of an exec plugin that cannot prompt a user."""
MAX_STDERR: Final = 300
"""Maximum characters of an exec plugin's error output that an error message repeats."""

AUTHORIZATION: Final = "Authorization"


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """The headers and the TLS context with which requests authenticate."""

    headers: tuple[tuple[str, str], ...] = ()
    tls: ssl.SSLContext | None = None
    """TLS context with the trusted CA certificates and the client certificate; None without TLS."""


class TimedIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """An identity and its renewal times. Without `expires` and `stale_at` it is never renewed."""

    identity: Identity
    expires: datetime | None = None
    stale_at: float | None = None
    """Time of the next renewal, in seconds of `common.clock.steady`."""

    def is_over(self) -> bool:
        return (self.stale_at is not None and steady() >= self.stale_at) or (
            self.expires is not None and SystemClock().now() >= self.expires
        )


class Credentials:
    """The identity of this process towards the API server, renewed when it expires.

    `read` returns a new identity. It raises `OSError` if the last identity may still be valid, for
    example while files are being replaced, and `ValueError` if not.
    """

    def __init__(self, first: TimedIdentity, read: Callable[[], Awaitable[TimedIdentity]]) -> None:
        self._held = first
        self._read = read
        self._lock = asyncio.Lock()
        self._read_at = steady()
        self._failure: str | None = None

    async def get_identity(self) -> Identity:
        """Return the identity for the next request; raise `Unavailable` if there is none."""
        if self._held.is_over():
            async with self._lock:
                if self._held.is_over():
                    await self._read_again()
        return self._held.identity

    async def renew(self, refused: Identity) -> bool:
        """Renew an identity that the API server refused.

        Return whether the identity has changed. At most one renewal is tried per `RETRY_SECONDS`.
        """
        async with self._lock:
            is_early = steady() - self._read_at < RETRY_SECONDS
            if self._held.identity is refused and not is_early:
                await self._read_again()
            return self._held.identity != refused

    async def _read_again(self) -> None:
        if self._failure is not None and steady() - self._read_at < RETRY_SECONDS:
            raise errors.Unavailable(self._failure)
        try:
            reading, self._failure = await self._read(), None
        except OSError:
            reading = self._held
        except ValueError as problem:
            self._failure = f"there are no credentials for the API server: {problem}"
            raise errors.Unavailable(self._failure) from problem
        finally:
            self._read_at = steady()
        if reading.is_over():
            reading = TimedIdentity(identity=reading.identity, stale_at=steady() + RETRY_SECONDS)
        self._held = reading


def make_constant(identity: Identity) -> Credentials:
    """Return credentials that never change."""

    async def read() -> TimedIdentity:
        return reading

    reading = TimedIdentity(identity=identity)
    return Credentials(reading, read)


def format_bearer(token: str) -> tuple[str, str]:
    """Return name and value of the header for a bearer token."""
    return AUTHORIZATION, f"Bearer {token}"


def parse_expiry(token: str) -> datetime | None:
    """Return the expiry of a JSON Web Token; None for any other token."""
    body = token.split(".")[1:2]
    with suppress(ValueError, msgspec.MsgspecError, OverflowError, IndexError):
        text = base64.urlsafe_b64decode(body[0] + "=" * (-len(body[0]) % 4))
        return datetime.fromtimestamp(msgspec.json.decode(text, type=_Claims).exp, UTC)
    return None


class _Claims(msgspec.Struct):
    exp: float


class _PluginVariable(msgspec.Struct):
    name: str
    value: str


class ExecPlugin(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The `exec` section of a kubeconfig: a program that prints credentials."""

    command: str
    api_version: str
    args: list[str] | None = None
    env: list[_PluginVariable] | None = None
    interactive_mode: Literal["", "Never", "IfAvailable", "Always"] | None = None
    provide_cluster_info: bool = False
    install_hint: str | None = None


class PluginStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The credentials that an exec plugin printed."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    api_version: str
    kind: Literal["ExecCredential"]
    status: PluginStatus


async def run_plugin(
    plugin: ExecPlugin, folder: Path, cluster: Mapping[str, object]
) -> PluginStatus:
    """Run an exec plugin of a kubeconfig in `folder`, and return its credentials.

    The plugin may prompt the user if standard input is a terminal; it then writes its errors to the
    terminal. `cluster` describes the cluster to a plugin with `provideClusterInfo`.

    Raises:
        ValueError: The plugin failed; the text has the remedy.
    """
    mode = plugin.interactive_mode or "IfAvailable"
    is_interactive = mode != "Never" and sys.stdin is not None and sys.stdin.isatty()
    if mode == "Always" and not is_interactive:
        raise ValueError(
            f"the exec plugin {plugin.command} asks the user, and standard input is no terminal"
        )
    spec: dict[str, object] = {"interactive": is_interactive}
    if plugin.provide_cluster_info:
        spec["cluster"] = cluster
    request = {"kind": "ExecCredential", "apiVersion": plugin.api_version, "spec": spec}
    environment = {variable.name: variable.value for variable in plugin.env or ()}
    environment["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(request).decode()
    # As for kubectl, a path is relative to the kubeconfig, and a bare name is searched in PATH.
    program = str(folder / plugin.command) if os.sep in plugin.command else plugin.command
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *(plugin.args or ()),
            env={**os.environ, **environment},
            stdin=None if is_interactive else DEVNULL,
            stdout=PIPE,
            stderr=None if is_interactive else PIPE,
        )
    except OSError as problem:
        hint = plugin.install_hint or "install it, or put it on PATH"
        raise ValueError(
            f"cannot run the exec plugin {plugin.command}: {problem.strerror}; {hint}"
        ) from problem
    try:
        async with asyncio.timeout(None if is_interactive else PLUGIN_TIMEOUT):
            output, complaint = await process.communicate()
    except TimeoutError as problem:
        raise ValueError(
            f"the exec plugin {plugin.command} has not ended after {PLUGIN_TIMEOUT:g} s"
        ) from problem
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode != 0:
        text = " ".join((complaint or b"").decode(errors="replace").split())[-MAX_STDERR:]
        raise ValueError(
            f"the exec plugin {plugin.command} ended with {process.returncode}: {text}; "
            "log in again"
        )
    return _parse(plugin, output)


def _parse(plugin: ExecPlugin, output: bytes) -> PluginStatus:
    try:
        credential = msgspec.json.decode(output, type=_ExecCredential)
    except msgspec.MsgspecError as problem:
        raise ValueError(
            f"the exec plugin {plugin.command} printed no ExecCredential: {problem}"
        ) from problem
    if credential.api_version != plugin.api_version:
        raise ValueError(
            f"the exec plugin {plugin.command} printed an ExecCredential of "
            f"{credential.api_version}, "
            f"and the kubeconfig has {plugin.api_version}"
        )
    status = credential.status
    if bool(status.client_certificate_data) != bool(status.client_key_data):
        raise ValueError(
            f"the exec plugin {plugin.command} gave one of clientCertificateData and clientKeyData"
        )
    if not status.token and not status.client_certificate_data:
        raise ValueError(f"the exec plugin {plugin.command} gave neither token nor certificate")
    return status
