"""`raybus dashboard serve`: options, and the run of the server in a Pod."""

import asyncio
import os
import socket
import ssl
from logging import CRITICAL, getLogger
from pathlib import Path
from typing import Annotated, Final

import msgspec
import typer

from common import errors
from common.kube import rest_config
from common.kube.client import KubeClient
from common.kube.rest_config import RestConfig
from common.observability import health, logging
from raybus_cli import session, waiting
from raybus_cli.arguments import ContextOption, KubeconfigOption
from raybus_cli.events.connection import NatsCredentialsOption, NatsOption
from raybus_cli.events.run import NatsAccess
from raybus_cli.session import USER_AGENT
from raybus_dashboard.board import EventFeed
from raybus_dashboard.incluster import server, sessions
from raybus_dashboard.incluster.authentication import (
    AuthenticatingProxy,
    Authentication,
    SecretFile,
)
from raybus_dashboard.incluster.identity import ProxyHeaders, UserIdentity
from raybus_dashboard.incluster.reviews import Reviews
from raybus_dashboard.incluster.server import HandlerDependencies
from raybus_dashboard.incluster.sessions import BoardSessions
from raybus_dashboard.polling import Connect

NAME: Final = "dashboard"
PORT: Final = 8443
HEALTH_PORT: Final = 8080
REREAD_SECONDS: Final = 60.0
"""Interval after which the certificate's files are read again; a new certificate applies to new
connections.
"""
HEADERS: Final = ProxyHeaders()


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The validated options of `raybus dashboard serve`."""

    address: str
    port: int
    health_port: int
    certificate: tuple[Path, Path] | None
    """Paths of the certificate and its key; None to serve without TLS."""
    audiences: tuple[str, ...]
    reviews_tokens: bool
    proxy: AuthenticatingProxy | None
    allows_actions: bool
    namespace: str | None
    events: NatsAccess | None
    """The connection to NATS; None without upgrade events."""


def serve(
    address: Annotated[
        str, typer.Option(help="Address to listen on; '::' is all of IPv4 and IPv6.")
    ] = "::",
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port of the page.")
    ] = PORT,
    health_port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port of /healthz, /readyz.")
    ] = HEALTH_PORT,
    tls_cert_file: Annotated[Path | None, typer.Option(help="Certificate, PEM.")] = None,
    tls_private_key_file: Annotated[
        Path | None, typer.Option(help="Key of the certificate, PEM.")
    ] = None,
    plain_http: Annotated[
        bool, typer.Option("--plain-http", help="Serve without TLS, behind a sidecar.")
    ] = False,
    no_token_review: Annotated[
        bool,
        typer.Option(
            "--no-token-review",
            help="Accept no bearer token: users sign in at an authenticating proxy alone.",
        ),
    ] = False,
    audience: Annotated[
        list[str] | None,
        typer.Option(help="Audience of tokens; may repeat. Default: the API server's."),
    ] = None,
    proxy_secret_file: Annotated[
        Path | None,
        typer.Option(help="Secret of an authenticating proxy; its headers are accepted with it."),
    ] = None,
    proxy_user_header: Annotated[str, typer.Option(help="Header with the user.")] = HEADERS.user,
    proxy_groups_header: Annotated[
        str, typer.Option(help="Header with the groups.")
    ] = HEADERS.groups,
    proxy_secret_header: Annotated[
        str, typer.Option(help="Header with the secret.")
    ] = HEADERS.secret,
    proxy_user_prefix: Annotated[
        str, typer.Option(help="Prefix of users in Kubernetes, as oidc:.")
    ] = "",
    proxy_group_prefix: Annotated[str, typer.Option(help="Prefix of groups in Kubernetes.")] = "",
    allow_actions: Annotated[
        bool,
        typer.Option(
            "--allow-actions", help="Let users perform the verbs that they have the right to."
        ),
    ] = False,
    nats: NatsOption = None,
    nats_credentials: NatsCredentialsOption = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Namespace shown at first; default: all."),
    ] = None,
    context: ContextOption = None,
    kubeconfig: KubeconfigOption = None,
) -> None:
    """Serve the page in a Pod to many users, each with their own rights in Kubernetes.

    Users sign in with a bearer token, which a TokenReview checks, or through an
    authenticating proxy. Before each request to the API server, a
    SubjectAccessReview checks the user's right. The page is read-only without
    --allow-actions. deploy/components/dashboard installs the server.

    Examples:
    $ raybus dashboard serve --tls-cert-file t.crt --tls-private-key-file t.key
    $ raybus dashboard serve --plain-http --port 3100 -n serving --allow-actions
    """
    place = session.select_access(kubeconfig, context, namespace)
    try:
        choices = Choices(
            address=address,
            port=port,
            health_port=health_port,
            certificate=_check_certificate(
                tls_cert_file, tls_private_key_file, is_plain=plain_http
            ),
            audiences=tuple(audience or ()),
            reviews_tokens=not no_token_review,
            proxy=None
            if proxy_secret_file is None
            else AuthenticatingProxy(
                ProxyHeaders(
                    user=proxy_user_header,
                    groups=proxy_groups_header,
                    secret=proxy_secret_header,
                    user_prefix=proxy_user_prefix,
                    group_prefix=proxy_group_prefix,
                ),
                SecretFile(proxy_secret_file),
            ),
            allows_actions=allow_actions,
            namespace=namespace,
            events=sessions.choose_access(nats, nats_credentials, os.environ, place),
        )
        if no_token_review and proxy_secret_file is None:
            raise errors.InvalidSpec(
                "--no-token-review needs --proxy-secret-file: there is no anonymous access"
            )
        config = asyncio.run(rest_config.load(kubeconfig=place.kubeconfig, context=place.context))
    except errors.RaybusError as problem:
        session.fail(problem)
    logging.configure(NAME, level=os.environ.get("RAYBUS_LOG_LEVEL", "INFO"))
    # aiohttp logs a traceback for each malformed request from anyone; the server logs its own
    # errors.
    getLogger("aiohttp.server").setLevel(CRITICAL + 1)
    try:
        asyncio.run(_run(choices, config))
    except BaseExceptionGroup as met:
        problem = session.find_first(met)
        if isinstance(problem, errors.RaybusError):
            session.fail(problem)
        if not isinstance(problem, waiting.Stopped):
            raise
    except errors.RaybusError as problem:
        session.fail(problem)


def _check_certificate(
    cert: Path | None, key: Path | None, *, is_plain: bool
) -> tuple[Path, Path] | None:
    """Return the paths of the certificate and its key; None for `--plain-http`.

    Raises `InvalidSpec` for contradicting or missing options.
    """
    if is_plain:
        if cert is not None or key is not None:
            raise errors.InvalidSpec(
                "--plain-http and --tls-cert-file exclude each other: choose one"
            )
        return None
    if cert is None or key is None:
        raise errors.InvalidSpec(
            "--tls-cert-file and --tls-private-key-file are needed, since tokens pass this "
            "connection; --plain-http serves"
            " without TLS, behind a sidecar of the same Pod"
        )
    return cert, key


def _listen(choices: Choices) -> socket.socket:
    family = socket.AF_INET6 if ":" in choices.address else socket.AF_INET
    try:
        if choices.address == "::":
            return health.open_port(choices.port)
        return socket.create_server(
            (choices.address, choices.port), family=family, backlog=health.BACKLOG
        )
    except OSError as problem:
        raise errors.Terminal(
            f"port {choices.port} of {choices.address}: {problem.strerror}"
        ) from problem


def _build_tls(files: tuple[Path, Path]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    _load(context, files)
    return context


def _load(tls: ssl.SSLContext, files: tuple[Path, Path]) -> None:
    try:
        tls.load_cert_chain(*files)
    except (OSError, ssl.SSLError) as problem:
        raise errors.InvalidSpec(
            f"--tls-cert-file {files[0]} and --tls-private-key-file {files[1]}: they cannot be "
            f"used: {problem.strerror or problem}"
        ) from problem


async def _reload(tls: ssl.SSLContext, files: tuple[Path, Path]) -> None:
    """Reload the certificate periodically for new connections.

    An unusable certificate is ignored.
    """
    while True:
        await asyncio.sleep(REREAD_SECONDS)
        try:
            _build_tls(files)
        except errors.InvalidSpec:
            continue
        _load(tls, files)


async def _run(choices: Choices, config: RestConfig) -> None:
    """Serve until a signal; raise an exception group with `Stopped` or the error."""
    own = KubeClient(config, user_agent=USER_AGENT)
    reviews = Reviews(own, choices.audiences)

    def connect_as(identity: UserIdentity) -> Connect:
        async def connect() -> KubeClient:
            return server.create_client(config, identity, reviews)

        return connect

    feed = EventFeed.OFF if choices.events is None else EventFeed.CONNECTING
    service = HandlerDependencies(
        authentication=Authentication(
            tokens=reviews if choices.reviews_tokens else None, proxy=choices.proxy
        ),
        rights=reviews,
        sessions=BoardSessions(connect_as, has_controls=choices.allows_actions, event_feed=feed),
        connect=connect_as,
        allows_actions=choices.allows_actions,
        namespace=choices.namespace,
    )
    tls = None if choices.certificate is None else _build_tls(choices.certificate)
    try:
        async with (
            asyncio.TaskGroup() as group,
            server.serve(_listen(choices), tls, service) as address,
        ):
            if tls is not None and choices.certificate is not None:
                group.create_task(_reload(tls, choices.certificate))
            group.create_task(health.serve(choices.health_port, ready=lambda: None))
            group.create_task(waiting.wait())
            if choices.events is not None:
                group.create_task(
                    sessions.build_listener(choices.events, service.sessions).listen()
                )
            typer.echo(address)
            await asyncio.Event().wait()
    finally:
        await own.close()
