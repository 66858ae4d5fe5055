"""`raybus events` with only a kubeconfig.

The command registers a key in a real cluster; a substitute replaces kubectl's forwarding.
"""

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from common import errors
from common.bus import nkeys, streams, subjects
from common.bus.nats import Bus, connect
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import CONFIG_MAP
from common.settings import Settings
from common.upgrade import events as upgrade_events
from localcluster.control_plane import ControlPlane
from nats_admin import event_streams, stream_keeper
from support.builders.example_upgrade import an_example_upgrade
from support.manifests import NAMESPACE
from support.servers.kept import KeptServer, Map, kept_servers
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]
EVENTS = an_example_upgrade()
KUBECTL = '''#!{python}
"""Does what `kubectl port-forward` does, without a kubelet; its first connection breaks, as when a pod goes."""
import asyncio, pathlib, sys
assert sys.argv[1] == "--context" and sys.argv[3:5] == ["--kubeconfig", {kubeconfig!r}], sys.argv
assert sys.argv[5:9] == ["-n", {namespace!r}, "port-forward", "service/nats"], sys.argv
if not pathlib.Path({mark!r}).exists():
    pathlib.Path({mark!r}).touch()
    sys.exit("error: lost connection to pod")

async def pump(reader, writer):
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()

async def forward(reader, writer):
    far_reader, far_writer = await asyncio.open_connection("127.0.0.1", {port})
    await asyncio.gather(pump(reader, far_writer), pump(far_reader, writer), return_exceptions=True)

async def main():
    server = await asyncio.start_server(forward, "127.0.0.1", int(sys.argv[9].partition(":")[0]))
    await server.serve_forever()

asyncio.run(main())
'''


async def _run(path: Path, *arguments: str) -> tuple[int, list[str], list[str]]:
    pipe = asyncio.subprocess.PIPE
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith("RAYBUS_NATS")
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "raybus_cli.main",
        "events",
        *arguments,
        stdout=pipe,
        stderr=pipe,
        env={**variables, "PATH": f"{path}:{os.environ['PATH']}"},
    )
    async with asyncio.timeout(90):
        out, err = await process.communicate()
    return process.returncode or 0, out.decode().splitlines(), err.decode().splitlines()


@asynccontextmanager
async def connected(
    control_plane: ControlPlane, server: KeptServer, user: str
) -> AsyncGenerator[Bus]:
    """Connect as any user, with the rights of the cluster's administrator."""
    settings = Settings(
        service=user,
        nats_url=server.url,
        nats_register_key=True,
        kubeconfig=control_plane.kubeconfig,
        namespace=NAMESPACE,
        identity="test",
    )
    async with connect(settings) as bus:
        await bus.session()
        yield bus


async def publish(control_plane: ControlPlane, server: KeptServer) -> None:
    """Create the streams, store the events of an upgrade, and wait until subscribers can read them."""
    async with (
        connected(control_plane, server, "provisioner") as own,
        connected(control_plane, server, "provisioner-outside") as outside,
        connected(control_plane, server, "service-reconciler") as service,
    ):
        for bus, made in (
            (own, [streams.build_state_config(), event_streams.build_stream_config()]),
            (outside, [event_streams.build_mirror_config()]),
        ):

            async def are_made(bus: Bus = bus, made: Sequence[streams.Config] = made) -> bool:
                try:
                    assert await stream_keeper.ensure_streams(bus, made) == []
                except (
                    errors.Unavailable
                ):  # a server that reads new keys may close connections of others
                    return False
                return True

            await eventually_true(are_made, within=60.0, what="the streams")
        for event in EVENTS:
            wire = upgrade_events.encode(event)
            await service.publish(
                wire.subject, wire.payload, wire.headers, expected=None, message_id=event.id
            )

        async def is_mirrored() -> bool:
            return (await outside.stream(subjects.EVENTS_STREAM)).state.messages == len(EVENTS)

        await eventually_true(is_mirrored, within=60.0, every=0.05, what="the mirror")


async def entries(kube: KubeClient) -> set[str]:
    found = await kube.get(CONFIG_MAP, NAMESPACE, "nats-keys-subscriber")
    return {
        name for name in msgspec.json.decode(found, type=Map).data if name.startswith("raybus-")
    }


@pytest.mark.usefixtures("applied")
async def test_a_kubeconfig_is_enough_and_no_key_is_left_behind(
    control_plane: ControlPlane, kube: KubeClient, tmp_path: Path
) -> None:
    config, bin_folder = str(control_plane.kubeconfig), tmp_path / "bin"
    killed = {"data": {"raybus-1700000000-00000000": nkeys.derive_public_key(nkeys.new_seed())}}
    await kube.patch(CONFIG_MAP, NAMESPACE, "nats-keys-subscriber", PatchRequest(body=killed))
    async with kept_servers(control_plane, tmp_path / "nats", "nats-0") as (server,):
        await publish(control_plane, server)
        bin_folder.mkdir()
        program = bin_folder / "kubectl"
        program.write_text(
            KUBECTL.format(
                python=sys.executable,
                namespace=NAMESPACE,
                kubeconfig=config,
                mark=str(tmp_path / "broken-once"),
                port=server.place.server.port,
            )
        )
        program.chmod(0o755)
        done = await _run(bin_folder, "--kubeconfig", config, "--raybus-namespace", NAMESPACE)
    assert (done[0], len(done[1]), done[2]) == (0, len(EVENTS), [])
    assert await entries(kube) == set()


async def test_a_cluster_without_raybus(control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_text("#!/bin/sh\n")
    (tmp_path / "kubectl").chmod(0o755)
    done = await _run(
        tmp_path, "--kubeconfig", str(control_plane.kubeconfig), "--raybus-namespace", "default"
    )
    assert done == (
        1,
        [],
        [
            "error: namespace default has no ConfigMap nats-keys-subscriber: is raybus installed there? Apply deploy/ again"
        ],
    )
