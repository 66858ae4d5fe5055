"""What a connection to NATS needs from files, and what it means when the server or the files say no.

The files are read anew for each connection, so a key or an authority that was rotated is taken up without a restart. A
key that is not valid yet, because the server has still to learn it, gives way to the last one that was.
"""

import ssl
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, cast
from urllib.parse import urlsplit

import msgspec

from common import errors
from common.bus import credentials
from common.runtime.settings import Settings

EXPIRED: Final = 10
"""OpenSSL's number for a certificate whose time is over."""
NOT_YET_VALID: Final = 9
WRONG_NAME: Final = frozenset({62, 64})
"""… that is valid for other hosts, or other addresses."""


class Access(msgspec.Struct, frozen=True, kw_only=True):
    """What to show to a server, and by what to know it."""

    url: str
    seed: str | None = None
    tls: ssl.SSLContext | None = None


class Keys:
    """The files of one user, and which of its keys was accepted last."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._urls = settings.nats_url.split(",")
        self._accepted: str | None = None
        self._refused: str | None = None

    def check(self) -> None:
        """Raise `InvalidSpec`, naming the setting, when the files are of no use."""
        read_seed(self._settings.nats_seed_file)
        trust(self._settings.nats_ca_file, self._urls[0])

    def next(self) -> Access:
        """Read the files for a connection to the next server; raise as `check` does."""
        url = self._urls[0]
        self._urls = [*self._urls[1:], url]
        seed = read_seed(self._settings.nats_seed_file)
        if seed is not None and seed == self._refused and self._accepted is not None:
            seed = self._accepted
        return Access(url=url, seed=seed, tls=trust(self._settings.nats_ca_file, url))

    def accepted(self, access: Access) -> None:
        """Remember the key that the server knows."""
        self._accepted = access.seed
        self._refused = None

    def refused(self, access: Access) -> None:
        """Try the other key next time, if there are two."""
        self._refused = None if access.seed in {self._refused, self._accepted} else access.seed


def read_seed(file: Path | None) -> str | None:
    """Return the key of a user; None for a server without users."""
    if file is None:
        return None
    try:
        seed = file.read_text().strip()
        credentials.public_key(seed)
    except OSError as problem:
        raise errors.InvalidSpec(f"RAYBUS_NATS_SEED_FILE={file}: cannot be read: {problem.strerror}") from problem
    except ValueError as problem:
        raise errors.InvalidSpec(
            f"RAYBUS_NATS_SEED_FILE={file}: holds no NKEY seed; `python -m common.bus.provision credentials` makes one"
        ) from problem
    return seed


def trust(file: Path | None, url: str) -> ssl.SSLContext | None:
    """Return by whom a server must be vouched for; None means no TLS."""
    if file is None and not url.startswith("tls:"):
        return None
    if file is None:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=file.read_text())
    except (ssl.SSLError, ValueError) as problem:
        raise errors.InvalidSpec(f"RAYBUS_NATS_CA_FILE={file}: no certificate in it ({problem})") from problem
    except OSError as problem:
        raise errors.InvalidSpec(f"RAYBUS_NATS_CA_FILE={file}: cannot be read: {problem.strerror}") from problem


def is_refusal(problem: BaseException) -> bool:
    """Tell whether the server does not know the key that it was shown."""
    return "authorization violation" in str(problem).lower()


def explain(problem: BaseException, settings: Settings) -> str:
    """Say in one line why a server cannot be used, and what to do where there is something to do."""
    text = str(problem) or type(problem).__name__
    if isinstance(problem, ssl.SSLCertVerificationError):
        return _distrust(problem, settings)
    if is_refusal(problem):
        file = settings.nats_seed_file
        own = f"the key in RAYBUS_NATS_SEED_FILE={file}" if file is not None else "a client without a key"
        return (
            f"Authorization Violation: the server does not know {own}; it reads its users from the configuration that"
            " `python -m common.bus.provision credentials` writes"
        )
    if isinstance(problem, BrokenPipeError | ConnectionResetError):
        # It says why before it closes, and sometimes closes before that is heard; the next try hears it.
        return f"the server closed the connection at once ({text}); its log says why, most often a key that it does not know"
    if isinstance(problem, TimeoutError) and not str(problem):
        return "no answer in time"
    return text


def _distrust(problem: ssl.SSLCertVerificationError, settings: Settings) -> str:
    again = "`python -m common.bus.provision credentials`"
    if problem.verify_code == EXPIRED:
        return f"the certificate of the server, or its authority's, has expired; renew it by {again} --rotate server"
    if problem.verify_code == NOT_YET_VALID:
        return "the certificate of the server is not valid yet: the clocks differ"
    if problem.verify_code in WRONG_NAME:
        hosts = [urlsplit(url).hostname for url in settings.nats_url.split(",")]
        names = " ".join(f"--name {host}" for host in hosts)
        return f"{problem.verify_message.rstrip('.')}; name the server as it is called by {again} {names}"
    signed = settings.nats_ca_file or "any authority of this machine; RAYBUS_NATS_CA_FILE names one"
    return f"the certificate of the server is not signed by {signed} ({problem.verify_message})"


def expiries(peer: ssl.SSLObject | None, context: ssl.SSLContext | None) -> dict[str, datetime]:
    """Return until when the server's certificate and those that vouch for it are valid."""
    found: dict[str, datetime] = {}
    if peer is not None and (certificate := peer.getpeercert()):
        found["server"] = _end(certificate)
    if context is not None:
        # In a rotation there are two: the old one goes, so the later one counts.
        ends = [_end(cast("Mapping[str, object]", each)) for each in context.get_ca_certs()]
        found |= {"authority": max(ends)} if ends else {}
    return found


def _end(certificate: Mapping[str, object]) -> datetime:
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(str(certificate["notAfter"])), tz=UTC)
