"""Reaches the NATS of a cluster from outside: a key of its own, registered for as long as it is used, and `kubectl port-forward`."""

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncGenerator
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Final, NoReturn

from common import errors
from common.bus.access import Keys, MadeKey, Registration
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.settings import Settings
from localcluster import ports
from localcluster.processes import end_child
from raybus_cli.access.kubeconfig import Where
from raybus_cli.access.session import USER_AGENT
from raybus_cli.events import connection

NATS_PORT: Final = 4222
AGAIN_SECONDS: Final = 1.0
ENTRY: Final = "raybus-"
"""What the names of our entries begin with; the time of the start follows."""
LEFT_BEHIND_SECONDS: Final = 86_400


class Forwarding:
    """A port of this machine that leads to NATS as long as `keep` runs."""

    def __init__(self, place: Where, namespace: str, kubectl: Path | None = None) -> None:
        program = kubectl or shutil.which("kubectl")
        if program is None:
            raise errors.InvalidSpec(
                "kubectl is needed to reach the cluster's NATS: install it, or name --nats and --nats-credentials"
            )
        (self.port,) = ports.free(1)
        self.problem = ""
        """The last error output of kubectl."""
        context = [] if place.context is None else ["--context", place.context]
        self._command = [
            str(program),
            *context,
            "-n",
            namespace,
            "port-forward",
            "service/nats",
            f"{self.port}:{NATS_PORT}",
        ]
        config = {} if place.kubeconfig is None else {"KUBECONFIG": str(place.kubeconfig)}
        self._environment = {**os.environ, **config}

    async def keep(self) -> NoReturn:
        """Run kubectl, and again when it ends, as it does when the pod behind the Service is deleted."""
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
            await asyncio.sleep(AGAIN_SECONDS)


@contextlib.asynccontextmanager
async def key(place: Where, namespace: str, forwarding: Forwarding) -> AsyncGenerator[tuple[Settings, Keys]]:
    """Yield how to connect through the forwarded port: with a key that is registered as long as the block lasts.

    The caller's own rights decide: to read and change the ConfigMap `nats-keys-subscriber`.
    """
    now = int(SystemClock().now().timestamp())
    settings = Settings(
        service=connection.USER,
        nats_url=f"tls://127.0.0.1:{forwarding.port}",
        nats_register_key=True,
        namespace=namespace,
        identity=f"{ENTRY}{now}-{token_hex(4)}",
    )
    client = partial(KubeClient.connect, kubeconfig=place.kubeconfig, user_agent=USER_AGENT, context=place.context)
    registration = Registration(settings, client)
    made = MadeKey(settings, registration.announce, registration.close)
    try:
        if old := [name for name in await registration.entries() if _is_left_behind(name, now)]:
            await registration.withdraw(*old)
        yield settings, made
    finally:
        with contextlib.suppress(errors.RaybusError):
            await registration.withdraw()
        await registration.close()


def _is_left_behind(entry: str, now: int) -> bool:
    """Return whether an entry is that of a killed command; one that still runs registers its key again."""
    began = entry.removeprefix(ENTRY).partition("-")[0]
    return entry.startswith(ENTRY) and began.isdecimal() and now - int(began) > LEFT_BEHIND_SECONDS
