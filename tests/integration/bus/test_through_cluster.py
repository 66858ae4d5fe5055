"""`raybus events` with a kubeconfig alone: the key from a real cluster's Secret, and what stands in for kubectl's forwarding."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from common.bus import credential_store
from common.bus.credential_store import Secrets
from common.kube.client import KubeClient
from localcluster.control_plane import ControlPlane
from support.builders.upgrade_story import a_story
from support.servers.outside import outside

pytestmark = [pytest.mark.integration]
STORY = a_story()
KUBECTL = '''#!{python}
"""Does what `kubectl port-forward` does, without a kubelet; its first connection breaks, as when a pod goes."""
import asyncio, os, pathlib, sys
assert sys.argv[1] == "--context" and sys.argv[3:7] == ["-n", {namespace!r}, "port-forward", "service/nats"], sys.argv
assert os.environ["KUBECONFIG"] == {kubeconfig!r}
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
    server = await asyncio.start_server(forward, "127.0.0.1", int(sys.argv[7].partition(":")[0]))
    await server.serve_forever()

asyncio.run(main())
'''


async def _run(path: Path, *arguments: str) -> tuple[int, list[str], list[str]]:
    pipe = asyncio.subprocess.PIPE
    variables = {name: value for name, value in os.environ.items() if not name.startswith("RAYBUS_NATS")}
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


async def test_a_kubeconfig_is_enough(
    control_plane: ControlPlane, kube: KubeClient, namespace: str, tmp_path: Path
) -> None:
    config, bin_folder = str(control_plane.kubeconfig), tmp_path / "bin"
    async with outside(tmp_path / "nats") as at:
        await at.publish(STORY)
        files = {"seed": at.folder / "users" / "subscriber.seed", "ca.crt": at.folder / "ca.crt"}
        bundle = f"{credential_store.USER}subscriber"
        await Secrets(kube, namespace).write(bundle, {file: path.read_bytes() for file, path in files.items()})
        bin_folder.mkdir()
        program = bin_folder / "kubectl"
        program.write_text(
            KUBECTL.format(
                python=sys.executable,
                namespace=namespace,
                kubeconfig=config,
                mark=str(tmp_path / "broken-once"),
                port=at.secured.server.port,
            )
        )
        program.chmod(0o755)
        done = await _run(bin_folder, "--kubeconfig", config, "--raybus-namespace", namespace)
    assert (done[0], len(done[1]), done[2]) == (0, len(STORY), [])


async def test_a_cluster_without_raybus(control_plane: ControlPlane, tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_text("#!/bin/sh\n")
    (tmp_path / "kubectl").chmod(0o755)
    done = await _run(tmp_path, "--kubeconfig", str(control_plane.kubeconfig), "--raybus-namespace", "default")
    assert done == (
        1,
        [],
        [
            "error: namespace default has no Secret nats-user-subscriber: is raybus installed there? "
            "--raybus-namespace names another"
        ],
    )
