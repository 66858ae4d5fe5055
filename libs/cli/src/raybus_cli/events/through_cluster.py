"""Reaches the NATS of a cluster from outside: the outsiders' key from its Secret, the port through `kubectl port-forward`."""

import asyncio
import base64
import contextlib
import os
import shutil
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Final, NoReturn

import msgspec

from common import errors
from common.kube.client import KubeClient
from common.kube.resources import SECRET
from common.runtime.settings import Settings
from localcluster import ports
from localcluster.processes import end_child
from raybus_cli.access.kubeconfig import Where
from raybus_cli.access.session import USER_AGENT
from raybus_cli.events import connection

BUNDLE: Final = f"nats-user-{connection.USER}"
FILES: Final = ("seed", "ca.crt")
NATS_PORT: Final = 4222
AGAIN_SECONDS: Final = 1.0


class _Secret(msgspec.Struct, frozen=True):
    data: dict[str, str] = {}


class Forwarding:
    """A port of this machine that leads to NATS as long as `keep` runs."""

    def __init__(self, place: Where, namespace: str) -> None:
        program = shutil.which("kubectl")
        if program is None:
            raise errors.InvalidSpec(
                "kubectl is needed to reach the cluster's NATS: install it, or name --nats and --nats-credentials"
            )
        (self.port,) = ports.free(1)
        self.problem = ""
        """What kubectl complained of last."""
        context = [] if place.context is None else ["--context", place.context]
        self._command = [program, *context, "-n", namespace, "port-forward", "service/nats", f"{self.port}:{NATS_PORT}"]
        config = {} if place.kubeconfig is None else {"KUBECONFIG": str(place.kubeconfig)}
        self._environment = {**os.environ, **config}

    async def keep(self) -> NoReturn:
        """Run kubectl, and again when it ends, as it does when the pod behind the Service goes."""
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
async def credentials(place: Where, namespace: str) -> AsyncGenerator[Path]:
    """Keep the outsiders' key and authority in a private folder as long as the block lasts."""
    kube = await KubeClient.connect(kubeconfig=place.kubeconfig, user_agent=USER_AGENT, context=place.context)
    try:
        found = msgspec.json.decode(await kube.get(SECRET, namespace, BUNDLE), type=_Secret).data
    except errors.NotFound:
        raise errors.NotFound(
            f"namespace {namespace} has no Secret {BUNDLE}: is raybus installed there? --raybus-namespace names another"
        ) from None
    finally:
        await kube.close()
    with tempfile.TemporaryDirectory(prefix="raybus-events-") as name:
        for file in FILES:
            if file not in found:
                raise errors.NotFound(f"Secret {namespace}/{BUNDLE} holds no {file}: let the provisioner make it anew")
            (Path(name) / file).write_bytes(base64.b64decode(found[file]))
        yield Path(name)


def settings(folder: Path, forwarding: Forwarding) -> Settings:
    """Return how to connect through the forwarded port."""
    return connection.settings(f"tls://127.0.0.1:{forwarding.port}", folder)
