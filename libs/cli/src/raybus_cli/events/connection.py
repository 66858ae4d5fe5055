"""The connection of external consumers to NATS: its address and their credentials, checked before the first request.

    --nats URL --nats-credentials DIR      a server with users
    --nats-credentials DIR                 the server with its configuration in DIR (`raybus up --data-dir DIR`)
    --nats URL                             a server without users

DIR holds `users/subscriber.seed` and `ca.crt` as `python -m nats_admin.provision credentials --out DIR` writes them, or
`seed` and `ca.crt` of a key that was registered in the ConfigMap `nats-keys-subscriber` (docs/nats.md).
"""

import re
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from common import errors
from common.settings import Settings

USER: Final = "subscriber"
CONFIGURATION: Final = "nats-server.conf"
LISTEN: Final = re.compile(r'^listen: "([^"]+):([0-9]+)"', re.MULTILINE)
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  (read from a configuration, not listened on)

NatsOption = Annotated[
    str | None,
    typer.Option(
        "--nats", envvar="RAYBUS_NATS_URL", help="Address of a NATS server; default: that of the credentials."
    ),
]
NatsCredentialsOption = Annotated[
    Path | None,
    typer.Option(
        "--nats-credentials",
        envvar="RAYBUS_NATS_CREDENTIALS",
        help="Folder with the seed of the user 'subscriber' and ca.crt.",
    ),
]


def settings(nats: str | None, folder: Path | None) -> Settings:
    """Return the settings of the connection; raise `InvalidSpec` naming the invalid option."""
    seed, authority = (None, None) if folder is None else _credentials(folder)
    return Settings(
        service=USER,
        nats_url=_checked(nats) if nats is not None else _configured(folder),
        nats_seed_file=seed,
        nats_ca_file=authority,
    )


def _checked(url: str) -> str:
    parts = urlsplit(url)
    try:
        is_address = parts.scheme in {"nats", "tls"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise errors.InvalidSpec(f"--nats {url!r}: expected nats://HOST:PORT or tls://HOST:PORT")
    return url


def _credentials(folder: Path) -> tuple[Path, Path]:
    if not folder.is_dir():
        raise errors.InvalidSpec(f"--nats-credentials {folder}: no such folder; name one that holds the seed of {USER}")
    places = (folder / "users" / f"{USER}.seed", folder / "seed")
    seed = next((place for place in places if place.is_file()), None)
    if seed is None:
        raise errors.InvalidSpec(
            f"--nats-credentials {folder}: there is neither users/{USER}.seed nor seed; "
            "'raybus up --data-dir DIR' writes such a folder; for a cluster docs/nats.md describes how to make one"
        )
    authority = folder / "ca.crt"
    if not authority.is_file():
        raise errors.InvalidSpec(
            f"--nats-credentials {folder}: there is no ca.crt; for a cluster it is what ConfigMap nats-servers holds"
        )
    return seed, authority


def _configured(folder: Path | None) -> str:
    """Return the address that the configuration beside the credentials listens on."""
    path = (folder or Path()) / CONFIGURATION
    found = LISTEN.search(path.read_text()) if path.is_file() else None
    if found is None:
        raise errors.InvalidSpec(
            f"--nats is needed: {path} does not name the address of NATS; use --nats tls://HOST:PORT"
        )
    host = "localhost" if found[1] == ANY_ADDRESS else found[1]
    return f"tls://{host}:{found[2]}"
