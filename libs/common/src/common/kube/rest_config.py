"""Address and credentials of the API server, from a pod's ServiceAccount or a kubeconfig.

This module reads both itself. kubernetes-asyncio is used only for a kubeconfig with an
`auth-provider` (OIDC), and for the error text of a file that cannot be read. It is imported only
then, since its 860 modules take 37 MiB and 0.2 s (ADR 47).
"""

import base64
import os
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final
from urllib.parse import quote

import msgspec

from common import errors
from common.clock import steady
from common.kube import credentials
from common.kube.credentials import (
    AUTHORIZATION,
    Credentials,
    ExecPlugin,
    Identity,
    TimedIdentity,
    format_bearer,
)
from common.tls import create_client_context

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
EXEC_EXTENSION: Final = "client.authentication.k8s.io/exec"
"""Name of the cluster extension that an exec plugin receives as `config`."""


def _anonymous() -> Credentials:
    return credentials.make_constant(Identity())


class RestConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The address of an API server, and the credentials for it."""

    server: str
    server_name: str | None = None
    """The name in the server's certificate, if it differs from the host of the URL."""
    proxy: str | None = None
    credentials: Credentials = msgspec.field(default_factory=_anonymous)


class _Cluster(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: bytes | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[dict[str, Any]] | None = None


class _User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    username: str | None = None
    password: str | None = None
    client_certificate: str | None = None
    client_certificate_data: bytes | None = None
    client_key: str | None = None
    client_key_data: bytes | None = None
    exec: ExecPlugin | None = None
    impersonated: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str] | None = None
    as_user_extra: dict[str, list[str]] | None = None
    extensions: list[dict[str, Any]] | None = None

    @property
    def has_files(self) -> bool:
        """Whether a token, certificate or key comes from a file, whose content may be replaced."""
        return any((self.token_file, self.client_certificate, self.client_key))

    def impersonation(self) -> list[tuple[str, str]]:
        """Return name and value of each header that asks the API server to impersonate a user."""
        names = [("Impersonate-User", self.impersonated), ("Impersonate-Uid", self.as_uid)]
        groups = [("Impersonate-Group", group) for group in self.as_groups or ()]
        extra = [
            (f"Impersonate-Extra-{quote(key, safe='')}", value)
            for key, values in (self.as_user_extra or {}).items()
            for value in values
        ]
        return [*((name, value) for name, value in names if value), *groups, *extra]


class _Context(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str
    user: str = ""


class _Kubeconfig(msgspec.Struct, frozen=True, kw_only=True):
    """A kubeconfig.

    An entry is parsed only when it is chosen, since other entries may have any content.
    """

    current_context: str = msgspec.field(name="current-context", default="")
    contexts: list[dict[str, object]] = []
    clusters: list[dict[str, object]] = []
    users: list[dict[str, object]] = []


class _Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """The cluster and the user of the kubeconfig's chosen context.

    File names in `cluster` and `user` are relative to `cluster_folder` and `user_folder`.
    """

    cluster: _Cluster
    cluster_folder: Path
    user: _User
    user_folder: Path


async def load(*, kubeconfig: Path | None, context: str | None = None) -> RestConfig:
    """Read a kubeconfig and its context, or the pod's own ServiceAccount if `kubeconfig` is None.

    Raises:
        InvalidSpec: A file is missing, unreadable or invalid.
    """
    try:
        if kubeconfig is None:
            return in_cluster(os.environ, SERVICE_ACCOUNT)
        chosen = _choose(kubeconfig, context)
        if chosen is None:
            return await _load_by_library(kubeconfig, context)
        return await _build_config(chosen)
    except (OSError, TypeError, ValueError) as problem:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "the pod's ServiceAccount"
        raise errors.InvalidSpec(
            f"cannot read {where}: {problem}; name a readable file"
        ) from problem


def in_cluster(environment: Mapping[str, str], folder: Path) -> RestConfig:
    """Return the configuration from the environment and the files that the kubelet gives each pod.

    `folder` has the files: the CA and the token of the ServiceAccount.

    Raises:
        ValueError: The process does not run in a pod.
        OSError: The CA or the token cannot be read.
    """
    host, port = (
        environment.get("KUBERNETES_SERVICE_HOST"),
        environment.get("KUBERNETES_SERVICE_PORT"),
    )
    if not host or not port:
        raise ValueError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so this is no pod"
        )
    tls = create_client_context(cafile=str(folder / "ca.crt"))

    def read() -> TimedIdentity:
        token = (folder / "token").read_text().strip()
        if not token:
            raise OSError(f"{folder / 'token'} is empty")
        identity = Identity(headers=(format_bearer(token),), tls=tls)
        return TimedIdentity(identity=identity, stale_at=steady() + credentials.READ_AGAIN_SECONDS)

    async def read_again() -> TimedIdentity:
        return read()

    return RestConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        credentials=Credentials(read(), read_again),
    )


def _choose(files: Path, context: str | None) -> _Chosen | None:
    """Return the chosen parts of a kubeconfig; None if it is invalid or has an unknown field.

    `files` is one path, or several joined as in $KUBECONFIG; an earlier file takes precedence.
    """
    import yaml  # noqa: PLC0415  (a pod has no kubeconfig)

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    names = [files] if files.exists() else [Path(part) for part in str(files).split(os.pathsep)]
    try:
        read = [
            (
                file.parent,
                msgspec.convert(
                    yaml.load(file.read_bytes(), Loader=loader),  # noqa: S506  (a safe loader)
                    _Kubeconfig,
                ),
            )
            for file in names
            if file.exists()
        ]

        def find(kind: str, name: str) -> tuple[Path, object]:
            return next(
                (folder, entry[kind])
                for folder, config in read
                for entry in getattr(config, f"{kind}s")
                if entry["name"] == name
            )

        context_name = context or next(
            config.current_context for _, config in read if config.current_context
        )
        chosen = msgspec.convert(find("context", context_name)[1], _Context)
        cluster_folder, cluster = find("cluster", chosen.cluster)
        user_folder, user = find("user", chosen.user)
        return _Chosen(
            cluster=msgspec.convert(cluster, _Cluster),
            cluster_folder=cluster_folder,
            user=msgspec.convert(user, _User),
            user_folder=user_folder,
        )
    except (OSError, ValueError, LookupError, StopIteration, yaml.YAMLError):
        return None


async def _build_config(chosen: _Chosen) -> RestConfig:
    cluster, user = chosen.cluster, chosen.user
    server, tls = cluster.server.rstrip("/"), _make_context_factory(chosen)

    async def read() -> TimedIdentity:
        headers, expires = user.impersonation(), None
        own = _read_data(chosen.user_folder, user.client_certificate, user.client_certificate_data)
        own += b"\n" + _read_data(chosen.user_folder, user.client_key, user.client_key_data)
        if (authorization := _build_authorization(user, chosen.user_folder)) is not None:
            headers.append(authorization)
        elif user.exec is not None:
            status = await credentials.run_plugin(
                user.exec, chosen.user_folder, _build_cluster_info(chosen)
            )
            if status.token:
                headers.append(format_bearer(status.token))
            if status.client_certificate_data and status.client_key_data:
                own = f"{status.client_certificate_data}\n{status.client_key_data}".encode()
            expires = status.expiration_timestamp
        try:
            identity = Identity(headers=tuple(headers), tls=tls(own.strip()))
        except ssl.SSLError as problem:
            if user.exec is None:
                raise  # the files may be in the middle of a replacement
            raise ValueError(
                f"the exec plugin {user.exec.command} gave no certificate with its key: {problem}"
            ) from problem
        stale_at = steady() + credentials.READ_AGAIN_SECONDS if user.has_files else None
        return TimedIdentity(identity=identity, expires=expires, stale_at=stale_at)

    return RestConfig(
        server=server,
        server_name=cluster.tls_server_name or None,
        proxy=cluster.proxy_url or None,
        credentials=Credentials(await read(), read),
    )


def _read_data(folder: Path, name: str | None, data: bytes | None) -> bytes:
    return (folder / name).read_bytes() if data is None and name else data or b""


def _build_authorization(user: _User, folder: Path) -> tuple[str, str] | None:
    if user.token_file:
        try:
            token = (folder / user.token_file).read_text().strip()
        except OSError:
            if not user.token:
                raise
            token = user.token
        return format_bearer(token)
    if user.token:
        return format_bearer(user.token)
    if user.username and user.password:
        pair = base64.b64encode(f"{user.username}:{user.password}".encode()).decode()
        return AUTHORIZATION, f"Basic {pair}"
    return None


def _make_context_factory(chosen: _Chosen) -> Callable[[bytes], ssl.SSLContext | None]:
    """Return a function that creates the TLS context for a client certificate with its key.

    While the certificates are unchanged, that function returns the same context, so that
    connections stay open.
    """
    cluster, last = chosen.cluster, dict[tuple[bytes, bytes], ssl.SSLContext]()

    def make(own: bytes) -> ssl.SSLContext | None:
        if not cluster.server.startswith("https:"):
            return None
        authority = _read_data(
            chosen.cluster_folder,
            cluster.certificate_authority,
            cluster.certificate_authority_data,
        )
        if (authority, own) not in last:
            context = create_client_context(cadata=authority.decode() or None)
            if cluster.insecure_skip_tls_verify:
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if own:
                with NamedTemporaryFile() as key_file:  # OpenSSL reads a key from a file only
                    key_file.write(own)
                    key_file.flush()
                    context.load_cert_chain(key_file.name)
            last.clear()
            last[authority, own] = context
        return last[authority, own]

    return make


def _build_cluster_info(chosen: _Chosen) -> dict[str, object]:
    """Return the description of the cluster that an exec plugin receives if it asks for it."""
    cluster = chosen.cluster
    authority = _read_data(
        chosen.cluster_folder, cluster.certificate_authority, cluster.certificate_authority_data
    )
    config = next(
        (
            extension["extension"]
            for extension in cluster.extensions or ()
            if extension["name"] == EXEC_EXTENSION
        ),
        None,
    )
    fields: dict[str, object] = {
        "server": cluster.server,
        "tls-server-name": cluster.tls_server_name,
        "insecure-skip-tls-verify": cluster.insecure_skip_tls_verify,
        "certificate-authority-data": base64.b64encode(authority).decode(),
        "proxy-url": cluster.proxy_url,
        "disable-compression": cluster.disable_compression,
        "config": config,
    }
    return {name: value for name, value in fields.items() if value}


async def _load_by_library(file: Path, context: str | None) -> RestConfig:
    """Return the configuration of a kubeconfig that only kubernetes-asyncio can read."""
    from aiohttp import ClientError  # noqa: PLC0415  (raised by the library's OIDC)
    from kubernetes_asyncio import config as kube_config  # noqa: PLC0415  (as the module explains)
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415
    from yaml import YAMLError  # noqa: PLC0415

    async def read() -> tuple[Configuration, TimedIdentity]:
        configuration = Configuration()
        try:
            await kube_config.load_kube_config(  # pyright: ignore[reportUnknownMemberType]
                config_file=str(file), context=context, client_configuration=configuration
            )
        except (kube_config.ConfigException, YAMLError, LookupError, ClientError) as problem:
            raise ValueError(problem) from problem
        tls: ssl.SSLContext | None = None
        if str(configuration.host).startswith("https:"):
            tls = create_client_context(cafile=configuration.ssl_ca_cert)
            if configuration.cert_file:
                tls.load_cert_chain(configuration.cert_file, configuration.key_file)
            if not configuration.verify_ssl:
                tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        header = await configuration.get_api_key_with_prefix("BearerToken")
        headers = ((AUTHORIZATION, header),) if header else ()
        expires = credentials.parse_expiry(header or "")
        return configuration, TimedIdentity(
            identity=Identity(headers=headers, tls=tls), expires=expires
        )

    async def read_again() -> TimedIdentity:
        return (await read())[1]

    configuration, first = await read()
    return RestConfig(
        server=str(configuration.host),
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        credentials=Credentials(first, read_again),
    )
