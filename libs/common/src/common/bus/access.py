"""Keys, certificates and error texts of connections to NATS.

A key comes from a file, or a process generates its own. Files are read again for each connection,
so a replaced key or certificate is used without a restart.

A process in a cluster generates a private key at its start and keeps it in memory only, so no API
object holds the private key. The process registers the public key in the ConfigMap
`nats-keys-USER`, which only the ServiceAccount of that user may change (`nats_admin.key_registry`).
The ConfigMap `nats-servers` has the certificates of the servers to trust.
"""

import asyncio
import itertools
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec
import structlog

from common import errors
from common.api.core import KeyedData
from common.bus import nkeys, server_errors
from common.bus.server_errors import ServerError
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import CONFIG_MAP
from common.settings import Settings, identity_of
from common.tls import create_client_context

log = structlog.get_logger()

API_SECONDS: Final = 3.0
"""Time limit in seconds for all API requests of one registration.

If it is exceeded, the last known certificates are used."""
EXPIRED: Final = 10
"""OpenSSL's code for an expired certificate."""
NOT_YET_VALID: Final = 9
WRONG_NAME: Final = frozenset({62, 64})
"""OpenSSL's codes for a certificate of a different host name or IP address."""


class ServerAccess(msgspec.Struct, frozen=True, kw_only=True):
    """What a client needs to connect to a NATS server: URL, seed of its key, TLS context.

    `tls` has the CA certificates to trust; None for a connection without TLS.
    """

    url: str
    seed: str | None = None
    tls: ssl.SSLContext | None = None


class FileKeys:
    """A client's key and the CA certificate in files, for a NATS server outside of the cluster.

    `check` raises `InvalidSpec`, naming the setting, if a file is unusable. `next` reads the files
    again and returns the `ServerAccess` for the next URL in turn; it raises `RaybusError` if a file
    cannot be read. `refused` is the error text if the server does not know the key.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._urls = itertools.cycle(settings.nats_url.split(","))
        file = settings.nats_seed_file
        own = (
            f"the key in RAYBUS_NATS_SEED_FILE={file}"
            if file is not None
            else "a client without a key"
        )
        self.refused = (
            f"the server does not know {own}; it reads its users from the configuration that"
            " `python -m nats_admin.provision credentials` writes"
        )

    def check(self) -> None:
        self._read(self._settings.nats_url.partition(",")[0])

    async def next(self) -> ServerAccess:
        return self._read(next(self._urls))

    async def close(self) -> None:
        pass

    def _read(self, url: str) -> ServerAccess:
        """Read the files, and return the access to the server at `url`.

        The seed is None if no seed file is set (a server without users). TLS is used if a CA file
        is set, or with a `tls:` URL.
        """
        seed: str | None = None
        if (file := self._settings.nats_seed_file) is not None:
            try:
                seed = file.read_text().strip()
                nkeys.derive_public_key(seed)
            except OSError as problem:
                raise errors.InvalidSpec(
                    f"RAYBUS_NATS_SEED_FILE={file}: cannot be read: {problem.strerror}"
                ) from problem
            except ValueError as problem:
                raise errors.InvalidSpec(
                    f"RAYBUS_NATS_SEED_FILE={file}: holds no NKEY seed; `python -m "
                    "nats_admin.provision credentials` makes one"
                ) from problem
        if (file := self._settings.nats_ca_file) is None:
            return ServerAccess(
                url=url,
                seed=seed,
                tls=create_client_context() if url.startswith("tls:") else None,
            )
        try:
            return ServerAccess(
                url=url, seed=seed, tls=create_client_context(cadata=file.read_text())
            )
        except (ssl.SSLError, ValueError) as problem:
            raise errors.InvalidSpec(
                f"RAYBUS_NATS_CA_FILE={file}: no certificate in it ({problem})"
            ) from problem
        except OSError as problem:
            raise errors.InvalidSpec(
                f"RAYBUS_NATS_CA_FILE={file}: cannot be read: {problem.strerror}"
            ) from problem


class GeneratedKey:
    """A key that this process generates at its start and keeps in memory."""

    def __init__(self, settings: Settings) -> None:
        self._seed = nkeys.new_seed()
        self.public = nkeys.derive_public_key(self._seed)
        self.refused = (
            f"the server does not know {self.public} for user {settings.service} yet; `keeper` "
            "beside the server writes"
            f" registered keys into its configuration (ConfigMap nats-keys-{settings.service})"
        )
        self._urls = itertools.cycle(settings.nats_url.split(","))

    def check(self) -> None:
        pass

    async def next(self) -> ServerAccess:
        authorities = await self.announce()
        return ServerAccess(
            url=next(self._urls),
            seed=self._seed,
            tls=create_client_context(cadata=authorities),
        )

    async def announce(self) -> str:
        """Make the public key known to the servers; return their CA certificates in PEM.

        Called before each connection.
        """
        raise NotImplementedError

    async def close(self) -> None:
        pass


Keys = FileKeys | GeneratedKey


class Registration(GeneratedKey):
    """A generated key that is registered in a ConfigMap.

    All named subscribers (readers of events outside raybus) share one ConfigMap. Any other user has
    its own ConfigMap.
    """

    def __init__(
        self,
        settings: Settings,
        connect: Callable[[], Awaitable[KubeClient]] | None = None,
        *,
        named_subscriber: str | None = None,
    ) -> None:
        super().__init__(settings)
        agent = f"raybus-{settings.service}"
        self._connect = connect or partial(
            KubeClient.connect, kubeconfig=settings.kubeconfig, user_agent=agent
        )
        self._namespace = settings.namespace
        self._name = nkeys.KEYS_PREFIX + (
            settings.service if named_subscriber is None else nkeys.NAMED
        )
        self._entry = ".".join(filter(None, (named_subscriber, identity_of(settings))))
        self._kube: KubeClient | None = None
        self._trusted = ""

    async def announce(self) -> str:
        """Register the public key if needed; return the servers' CA certificates in PEM.

        If the API server does not answer, the last known certificates are returned, so that NATS
        stays usable.

        Raises:
            NotFound: A ConfigMap of raybus is missing.
            Unavailable: No server certificate is known.
        """
        try:
            async with asyncio.timeout(API_SECONDS):
                if (await self._read(self._name)).get(self._entry) != self.public:
                    await self._patch({self._entry: self.public})
                    log.info(
                        "NATS public key registered",
                        config_map=self._name,
                        entry=self._entry,
                    )
                servers = await self._read(nkeys.SERVERS)
        except errors.NotFound:
            raise
        except (errors.Retryable, TimeoutError) as problem:
            if not self._trusted:
                raise errors.Unavailable(
                    f"the key for NATS cannot be registered: {problem or 'no answer in time'}"
                ) from problem
            return self._trusted
        self._trusted, _ = nkeys.parse_authorities(servers)
        if not self._trusted:
            raise errors.Unavailable(
                "no NATS server has registered its certificate in ConfigMap "
                f"{self._namespace}/{nkeys.SERVERS} yet"
            )
        return self._trusted

    async def entries(self) -> list[str]:
        """Return the names of all entries in this user's ConfigMap."""
        return list(await self._read(self._name))

    async def withdraw(self, *entries: str) -> None:
        """Remove the named entries of this user's ConfigMap, by default the entry of this process.

        Servers then refuse the keys of these entries.
        """
        await self._patch(dict.fromkeys(entries or (self._entry,)))

    async def close(self) -> None:
        kube, self._kube = self._kube, None
        if kube is not None:
            await kube.close()

    async def _read(self, name: str) -> dict[str, str]:
        kube = await self._client()
        try:
            return msgspec.json.decode(
                await kube.get(CONFIG_MAP, self._namespace, name), type=KeyedData
            ).data
        except errors.NotFound:
            raise errors.NotFound(
                f"namespace {self._namespace} has no ConfigMap {name}: is raybus installed "
                "there? Apply deploy/ again"
            ) from None

    async def _patch(self, data: Mapping[str, str | None]) -> None:
        kube = await self._client()
        await kube.patch(
            CONFIG_MAP, self._namespace, self._name, PatchRequest(body={"data": dict(data)})
        )

    async def _client(self) -> KubeClient:
        if self._kube is None:
            self._kube = await self._connect()
        return self._kube


def explain_error(problem: BaseException, settings: Settings, keys: Keys) -> str:
    """Return in one line why a server cannot be used, with the remedy if there is one."""
    text = errors.text_of(problem)
    if isinstance(problem, ssl.SSLCertVerificationError):
        return _explain_distrust(problem, settings)
    if server_errors.classify(problem) is ServerError.UNKNOWN_KEY:
        return f"Authorization Violation: {keys.refused}"
    if isinstance(problem, BrokenPipeError | ConnectionResetError):
        # The server sends the reason and closes; sometimes the close arrives first. The next
        # attempt receives the reason.
        return (
            f"the server closed the connection at once ({text}); its log has the reason, most "
            "often a key that it does not know"
        )
    if isinstance(problem, TimeoutError) and not str(problem):
        return "no answer in time"
    return text


def _explain_distrust(problem: ssl.SSLCertVerificationError, settings: Settings) -> str:
    provision_command = "`python -m nats_admin.provision credentials`"
    if problem.verify_code == EXPIRED:
        return (
            "the certificate of the server, or its authority's, has expired; make it anew: "
            f"delete its file and run {provision_command}"
        )
    if problem.verify_code == NOT_YET_VALID:
        return "the certificate of the server is not valid yet: the clocks differ"
    if problem.verify_code in WRONG_NAME:
        hosts = [urlsplit(url).hostname for url in settings.nats_url.split(",")]
        names = " ".join(f"--name {host}" for host in hosts)
        return (
            f"{problem.verify_message.rstrip('.')}; name the server as it is called by "
            f"{provision_command} {names}"
        )
    signed = settings.nats_ca_file or "any authority of this machine; RAYBUS_NATS_CA_FILE names one"
    if settings.nats_register_key:
        signed = "what ConfigMap nats-servers holds"
    return f"the certificate of the server is not signed by {signed} ({problem.verify_message})"


def read_expiries(
    peer: ssl.SSLObject | None, context: ssl.SSLContext | None
) -> dict[str, datetime]:
    """Return when the certificates of a connection expire.

    The key `server` has the end of the server's certificate, and `authority` the latest end of the
    trusted CA certificates. A certificate that is not known is left out.
    """
    expiry_by_name: dict[str, datetime] = {}
    if peer is not None and (certificate := peer.getpeercert()):
        expiry_by_name["server"] = _parse_end_of_validity(certificate)
    if context is not None:
        # Each of several servers has its own authority. A certificate that ends sooner belongs to
        # another server, or to one that is being replaced.
        ends = [
            _parse_end_of_validity(cast("Mapping[str, object]", certificate))
            for certificate in context.get_ca_certs()
        ]
        expiry_by_name |= {"authority": max(ends)} if ends else {}
    return expiry_by_name


def _parse_end_of_validity(certificate: Mapping[str, object]) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), tz=UTC)
