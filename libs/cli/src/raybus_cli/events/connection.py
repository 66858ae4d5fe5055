"""How outsiders reach NATS: its address and their credentials, checked before anything is reached.

    --nats URL --nats-credentials DIR      a server with users
    --nats-credentials DIR                 the server whose configuration lies in DIR (`raybus up --data-dir DIR`)
    --nats URL                             a server without users

DIR holds `users/subscriber.seed` and `ca.crt` as `python -m common.bus.provision credentials --out DIR` writes them, or
`seed` and `ca.crt` as the Secret `nats-user-subscriber` does.
"""

import re
from pathlib import Path
from typing import Annotated, Final
from urllib.parse import urlsplit

import typer

from common import errors
from common.runtime.settings import Settings

USER: Final = "subscriber"
CONFIGURATION: Final = "nats-server.conf"
LISTEN: Final = re.compile(r'^listen: "([^"]+):([0-9]+)"', re.MULTILINE)
ANY_ADDRESS: Final = "0.0.0.0"  # noqa: S104  (read from a configuration, not listened on)

NatsOption = Annotated[
    str | None,
    typer.Option("--nats", envvar="RAYBUS_NATS_URL", help="A NATS to reach directly; else as the folder says."),
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
    """Return how to connect; raise `InvalidSpec` naming the option that is wrong."""
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
            "'raybus up --data-dir DIR' writes such a folder, and the Secret nats-user-subscriber holds both files"
        )
    authority = folder / "ca.crt"
    if not authority.is_file():
        raise errors.InvalidSpec(f"--nats-credentials {folder}: there is no ca.crt; it lies beside the seed's Secret")
    return seed, authority


def _configured(folder: Path | None) -> str:
    """Return the address that the configuration beside the credentials listens on."""
    path = (folder or Path()) / CONFIGURATION
    found = LISTEN.search(path.read_text()) if path.is_file() else None
    if found is None:
        raise errors.InvalidSpec(
            f"--nats is needed: {path} does not say where NATS listens; give --nats tls://HOST:PORT"
        )
    host = "localhost" if found[1] == ANY_ADDRESS else found[1]
    return f"tls://{host}:{found[2]}"
