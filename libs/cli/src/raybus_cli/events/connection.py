"""Connects `raybus events` to NATS, as an external consumer.

With `--nats URL`, it connects to a server without users. With `--nats-credentials DIR` as well, the
server has users. `--nats-credentials DIR` alone means the server that is configured in DIR, the
folder of `raybus up --data-dir DIR`. Credentials are checked before the first request.

DIR holds `users/subscriber.seed` and `ca.crt`, as written by `python -m nats_admin.provision
credentials --out DIR`, or `seed` and `ca.crt` of a key that is registered in the ConfigMap
`nats-keys-subscriber` (docs/nats.md). Without these options, the NATS of a cluster is reached by
`kubectl port-forward`, with a key that is registered only while the command runs.
"""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Annotated, Final, NoReturn
from urllib.parse import urlsplit

import re2
import typer

from common import errors
from common.bus.access import Keys, Registration
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.settings import Settings
from raybus_cli import child_processes
from raybus_cli.child_processes import end_child
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.session import USER_AGENT

USER: Final = "subscriber"
CONFIGURATION: Final = "nats-server.conf"
LISTEN: Final = re2.compile(r'(?m)^listen: "([^"]+):([0-9]+)"')
ANY_ADDRESS: Final = {"0.0.0.0", "[::]"}  # noqa: S104  (read from a configuration, not listened on)

NatsOption = Annotated[
    str | None,
    typer.Option(
        "--nats",
        envvar="RAYBUS_NATS_URL",
        help="Address of a NATS server; default: that of the credentials.",
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


def build_settings(nats: str | None, folder: Path | None) -> Settings:
    """Build the connection settings from the options.

    Raise `InvalidSpec` that names the invalid option.
    """
    seed, authority = (None, None) if folder is None else _find_credentials(folder)
    return Settings(
        service=USER,
        nats_url=_check_url(nats) if nats is not None else _read_address(folder),
        nats_seed_file=seed,
        nats_ca_file=authority,
    )


def _check_url(url: str) -> str:
    parts = urlsplit(url)
    try:
        is_address = parts.scheme in {"nats", "tls"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address:
        raise errors.InvalidSpec(f"--nats {url!r}: expected nats://HOST:PORT or tls://HOST:PORT")
    return url


def _find_credentials(folder: Path) -> tuple[Path, Path]:
    if not folder.is_dir():
        raise errors.InvalidSpec(
            f"--nats-credentials {folder}: no such folder; name one that holds the seed of {USER}"
        )
    places = (folder / "users" / f"{USER}.seed", folder / "seed")
    seed = next((place for place in places if place.is_file()), None)
    if seed is None:
        raise errors.InvalidSpec(
            f"--nats-credentials {folder}: there is neither users/{USER}.seed nor seed; "
            "'raybus up --data-dir DIR' writes such a folder; for a cluster docs/nats.md "
            "describes how to make one"
        )
    authority = folder / "ca.crt"
    if not authority.is_file():
        raise errors.InvalidSpec(
            f"--nats-credentials {folder}: there is no ca.crt; for a cluster it is what "
            "ConfigMap nats-servers holds"
        )
    return seed, authority


def _read_address(folder: Path | None) -> str:
    """Return the address in the NATS configuration beside the credentials."""
    path = (folder or Path()) / CONFIGURATION
    match = LISTEN.search(path.read_text()) if path.is_file() else None
    if match is None:
        raise errors.InvalidSpec(
            f"--nats is needed: {path} does not name the address of NATS; use --nats "
            "tls://HOST:PORT"
        )
    host = "localhost" if match[1] in ANY_ADDRESS else match[1]
    return f"tls://{host}:{match[2]}"


NATS_PORT: Final = 4222
RESTART_SECONDS: Final = 1.0
ENTRY: Final = "raybus-"
"""Prefix of the ConfigMap entries that `raybus events` creates.

The start time of the command follows, in Unix seconds.
"""
LEFT_BEHIND_SECONDS: Final = 86_400


class Forwarding:
    """A local port that `kubectl port-forward` connects to NATS while the method `keep` runs."""

    def __init__(self, access: KubeAccess, namespace: str, kubectl: Path | None = None) -> None:
        program = kubectl or shutil.which("kubectl")
        if program is None:
            raise errors.InvalidSpec(
                "kubectl is needed to reach the cluster's NATS: install it, or name --nats and "
                "--nats-credentials"
            )
        (self.port,) = child_processes.find_free_ports(1)
        self.problem = ""
        """The last error output of kubectl."""
        options, environment = access.build_kubectl_options()
        self._command = [
            str(program),
            *options,
            "-n",
            namespace,
            "port-forward",
            "service/nats",
            f"{self.port}:{NATS_PORT}",
        ]
        self._environment = {**os.environ, **environment}

    async def keep(self) -> NoReturn:
        """Run kubectl until cancelled, and start it again whenever it exits.

        kubectl exits when the pod behind the Service is deleted.
        """
        null, pipe = asyncio.subprocess.DEVNULL, asyncio.subprocess.PIPE
        while True:
            process = await asyncio.create_subprocess_exec(
                *self._command, stdin=null, stdout=null, stderr=pipe, env=self._environment
            )
            try:
                _, complaint = await process.communicate()
            finally:
                await end_child(process)
            self.problem = " ".join(complaint.decode(errors="replace").split()[-60:])
            await asyncio.sleep(RESTART_SECONDS)


@contextlib.asynccontextmanager
async def register_key(
    access: KubeAccess, namespace: str, forwarding: Forwarding
) -> AsyncGenerator[tuple[Settings, Keys]]:
    """Register a new key with NATS, and yield the settings to connect through the forwarded port.

    The key is withdrawn when the block ends. Entries of earlier commands that were killed are
    removed first. The user needs the rights to get and update the ConfigMap `nats-keys-subscriber`.
    """
    now = int(SystemClock().now().timestamp())
    settings = Settings(
        service=USER,
        nats_url=f"tls://127.0.0.1:{forwarding.port}",
        nats_register_key=True,
        namespace=namespace,
        identity=f"{ENTRY}{now}-{token_hex(4)}",
    )
    client = partial(
        KubeClient.connect,
        kubeconfig=access.kubeconfig,
        user_agent=USER_AGENT,
        context=access.context,
    )
    registration = Registration(settings, client)
    try:
        if old := [name for name in await registration.entries() if _is_left_behind(name, now)]:
            await registration.withdraw(*old)
        yield settings, registration
    finally:
        with contextlib.suppress(errors.RaybusError):
            await registration.withdraw()
        await registration.close()


def _is_left_behind(entry: str, now: int) -> bool:
    """Return whether a key's entry belongs to a command that started over a day before `now`.

    Such a command was probably killed. If it still runs, it registers its key again.
    """
    began = entry.removeprefix(ENTRY).partition("-")[0]
    return entry.startswith(ENTRY) and began.isdecimal() and now - int(began) > LEFT_BEHIND_SECONDS
