"""Where the API server is, and what a request shows it: URL, TLS and `Authorization`, from a pod or from a kubeconfig.

A ServiceAccount, and a kubeconfig of a token or a client certificate, are read here. kubernetes-asyncio reads all other kubeconfigs:
exec plugins, OIDC, auth providers, joined files, proxies, and the errors of files that cannot be read. It is imported only then, since
its 860 modules take 37 MiB and a fifth of a second (ADR 25).
"""

import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Final, cast

import msgspec

from common import errors
from common.clock import steady

SERVICE_ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_SECONDS: Final = 60.0
"""How long a token is used before its file is read again; the kubelet replaces it long before it expires."""


async def _constant(value: str | None = None) -> str | None:
    return value


class RestConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The way to one API server, and the credentials for it."""

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str | None = None
    """The name in the server's certificate, where it is not that of the URL."""
    proxy: str | None = None
    authorization: Callable[[], Awaitable[str | None]] = _constant
    """Returns the value of the header `Authorization` for the next request."""


class _Cluster(
    msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True
):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: bytes | None = None


class _User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab", forbid_unknown_fields=True):
    token: str | None = None
    client_certificate: str | None = None
    client_certificate_data: bytes | None = None
    client_key: str | None = None
    client_key_data: bytes | None = None


class _Context(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str
    user: str = ""


class _Kubeconfig(msgspec.Struct, frozen=True, kw_only=True):
    """A kubeconfig; its parts are converted once they are chosen, for others may be of any kind."""

    current_context: str = msgspec.field(name="current-context", default="")
    contexts: list[dict[str, object]] = []
    clusters: list[dict[str, object]] = []
    users: list[dict[str, object]] = []


async def load(*, kubeconfig: Path | None, context: str | None = None) -> RestConfig:
    """Read a kubeconfig and its context, or the pod's own ServiceAccount when there is none."""
    try:
        if kubeconfig is None:
            return in_cluster(os.environ, SERVICE_ACCOUNT)
        return _plain(kubeconfig, context) or await _by_library(kubeconfig, context)
    except (OSError, TypeError, ValueError) as problem:
        where = f"kubeconfig {kubeconfig}" if kubeconfig else "the pod's ServiceAccount"
        raise errors.InvalidSpec(
            f"cannot read {where}: {problem}; name a readable file"
        ) from problem


def in_cluster(environment: Mapping[str, str], folder: Path) -> RestConfig:
    """Return what the kubelet gives each pod."""
    host, port = (
        environment.get("KUBERNETES_SERVICE_HOST"),
        environment.get("KUBERNETES_SERVICE_PORT"),
    )
    if not host or not port:
        raise ValueError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, so this is no pod"
        )
    file = folder / "token"
    token, read_at = file.read_text().strip(), steady()

    async def authorization() -> str:
        nonlocal token, read_at
        if steady() - read_at >= TOKEN_SECONDS:
            with suppress(OSError):  # the last one may still be valid
                token, read_at = file.read_text().strip() or token, steady()
        return f"Bearer {token}"

    tls = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    return RestConfig(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        tls=tls,
        authorization=authorization,
    )


def _plain(file: Path, context: str | None) -> RestConfig | None:
    """Return the configuration of a kubeconfig with a server, an authority, and a token or a certificate alone; else None."""
    import yaml  # noqa: PLC0415  (a pod has no kubeconfig)

    try:
        loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
        config = msgspec.convert(yaml.load(file.read_bytes(), Loader=loader), _Kubeconfig)  # noqa: S506  (a safe loader)
        wanted = context or config.current_context
        (chosen,) = (
            msgspec.convert(each["context"], _Context)
            for each in config.contexts
            if each["name"] == wanted
        )
        (cluster,) = (
            msgspec.convert(each["cluster"], _Cluster)
            for each in config.clusters
            if each["name"] == chosen.cluster
        )
        (user,) = (
            msgspec.convert(each["user"], _User)
            for each in config.users
            if each["name"] == chosen.user
        )
    except (OSError, ValueError, LookupError, yaml.YAMLError):
        return None
    bearer = None if user.token is None else f"Bearer {user.token}"
    server = cluster.server.rstrip("/")
    tls = _tls(cluster, user, file.parent) if server.startswith("https:") else None
    return RestConfig(server=server, tls=tls, authorization=partial(_constant, bearer))


def _tls(cluster: _Cluster, user: _User, folder: Path) -> ssl.SSLContext:
    def read(name: str | None, data: bytes | None) -> bytes:
        return (folder / name).read_bytes() if data is None and name is not None else data or b""

    authority = read(cluster.certificate_authority, cluster.certificate_authority_data)
    tls = ssl.create_default_context(cadata=authority.decode() or None)
    if certificate := read(user.client_certificate, user.client_certificate_data):
        with NamedTemporaryFile() as both:  # OpenSSL reads a key from files alone
            both.write(certificate + b"\n" + read(user.client_key, user.client_key_data))
            both.flush()
            tls.load_cert_chain(both.name)
    return tls


async def _by_library(file: Path, context: str | None) -> RestConfig:
    """Return the configuration of any other kubeconfig."""
    from kubernetes_asyncio import config as kube_config  # noqa: PLC0415  (what the module's text is about)
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415  (likewise)
    from yaml import YAMLError  # noqa: PLC0415  (likewise)

    configuration = Configuration()
    try:
        await kube_config.load_kube_config(  # pyright: ignore[reportUnknownMemberType]  (untyped library)
            config_file=str(file), context=context, client_configuration=configuration
        )
    except (kube_config.ConfigException, YAMLError) as problem:
        raise ValueError(problem) from problem
    tls: ssl.SSLContext | None = None
    if str(configuration.host).startswith("https:"):
        tls = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
        if configuration.cert_file:
            tls.load_cert_chain(configuration.cert_file, configuration.key_file)
        if not configuration.verify_ssl:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    bearer = partial(configuration.get_api_key_with_prefix, "BearerToken")
    return RestConfig(
        server=str(configuration.host),
        tls=tls,
        server_name=configuration.tls_server_name,
        proxy=configuration.proxy,
        authorization=cast("Callable[[], Awaitable[str | None]]", bearer),
    )
