"""Keys for NATS on a real API server with the RBAC of deploy/, and real nats-servers: the identities that each client may use."""

import base64
import os
import signal
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import pytest_asyncio

from common import errors
from common.bus import nkeys, streams
from common.bus.access import Registration
from common.bus.nats import Bus, connect
from common.kube.client import KubeClient, PatchRequest
from common.kube.resources import CONFIG_MAP, SECRET
from common.settings import Settings
from localcluster.control_plane import ControlPlane
from nats_admin import key_registry, stream_keeper
from raybus_cli import child_processes
from support.leaks.sought import PATTERNS, Secret
from support.manifests import NAMESPACE
from support.servers.kept import KeptServer, Map, client_of, kept_servers, until_configured
from support.servers.nats import binary
from support.servers.process import Process
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("applied")]

STATE = "ray.state.v1.p00.stolen"
REGISTRATIONS = 5


class Secrets(msgspec.Struct, frozen=True):
    """All Secrets of a namespace."""

    items: list[Secret]


@pytest_asyncio.fixture
async def server(control_plane: ControlPlane, tmp_path: Path) -> AsyncGenerator[KeptServer]:
    async with kept_servers(control_plane, tmp_path, "nats-0") as (running,):
        yield running


async def registered(kube: KubeClient, user: str) -> dict[str, str]:
    found = await kube.get(CONFIG_MAP, NAMESPACE, nkeys.KEYS_PREFIX + user)
    return msgspec.json.decode(found, type=Map).data


async def register(kube: KubeClient, user: str, entry: str, value: str | None) -> None:
    await kube.patch(
        CONFIG_MAP, NAMESPACE, nkeys.KEYS_PREFIX + user, PatchRequest(body={"data": {entry: value}})
    )


@asynccontextmanager
async def acting_as(control_plane: ControlPlane, account: str) -> AsyncGenerator[KubeClient]:
    kubeconfig = await control_plane.kubeconfig_for_service_account(NAMESPACE, account)
    kube = await KubeClient.connect(kubeconfig=kubeconfig, user_agent="test")
    try:
        yield kube
    finally:
        await kube.close()


async def may_publish(bus: Bus, subject: str) -> bool:
    try:
        await bus.publish(subject, b"", {}, expected=None, message_id="1")
    except errors.Unavailable as problem:
        return "may not publish" not in str(problem)
    return True


async def seeds_in_secrets(kube: KubeClient, reader: KubeClient) -> list[str]:
    """Return every NKEY seed that a reader finds in the Secrets of our namespace."""
    seed = PATTERNS[0].expression
    found: list[str] = []
    for each in msgspec.json.decode(await kube.list(SECRET, NAMESPACE), type=Secrets).items:
        read = msgspec.json.decode(
            await reader.get(SECRET, NAMESPACE, each.metadata.name), type=Secret
        )
        values = [base64.b64decode(text) for text in read.data.values()]
        found += [match[0].decode() for value in values for match in seed.finditer(value)]
    return found


async def test_a_reader_of_every_secret_still_cannot_publish_state(
    control_plane: ControlPlane, kube: KubeClient, server: KeptServer
) -> None:
    async with acting_as(control_plane, "cluster-reconciler") as reader:
        assert await seeds_in_secrets(kube, reader) == []
    settings = await client_of(
        control_plane, [server], "cluster-reconciler", "cluster-reconciler-0"
    )
    async with connect(settings) as bus:
        await eventually(
            lambda: bus.problem is None, within=30.0, what="the connection as cluster-reconciler"
        )
        assert not await may_publish(bus, STATE)


async def test_a_service_changes_no_configmap_but_its_own(
    control_plane: ControlPlane, kube: KubeClient
) -> None:
    stolen = nkeys.derive_public_key(nkeys.new_seed())
    async with acting_as(control_plane, "cluster-reconciler") as thief:
        for user in (
            *(each for each in key_registry.USERS if each != "cluster-reconciler"),
            nkeys.NAMED,
        ):
            with pytest.raises(errors.Forbidden):
                await register(thief, user, "thief", stolen)
            assert "thief" not in await registered(kube, user)
        with pytest.raises(errors.Forbidden):
            await thief.patch(
                CONFIG_MAP,
                NAMESPACE,
                nkeys.SERVERS,
                PatchRequest(body={"data": {"nats-0": "stolen"}}),
            )


async def test_a_public_key_of_another_user_that_is_registered_as_ones_own_changes_nothing(
    control_plane: ControlPlane, kube: KubeClient, server: KeptServer
) -> None:
    settings = await client_of(control_plane, [server], "watcher", "watcher-0")
    async with connect(settings) as bus, acting_as(control_plane, "cluster-reconciler") as thief:
        await eventually(
            lambda: bus.problem is None, within=30.0, what="the connection of the watcher"
        )
        marker = nkeys.derive_public_key(nkeys.new_seed())
        await register(
            thief, "cluster-reconciler", "copied", (await registered(kube, "watcher"))["watcher-0"]
        )
        await register(thief, "cluster-reconciler", "marker", marker)
        await until_configured(server, marker)
        assert bus.problem is None
        assert await may_publish(bus, STATE)
    await register(kube, "cluster-reconciler", "copied", None)
    await register(kube, "cluster-reconciler", "marker", None)


async def test_a_key_is_accepted_soon_after_it_is_registered(
    control_plane: ControlPlane, server: KeptServer, capsys: pytest.CaptureFixture[str]
) -> None:
    took: list[float] = []
    for number in range(REGISTRATIONS):
        settings = await client_of(
            control_plane, [server], "traffic-manager", f"traffic-manager-{number}"
        )
        began = time.monotonic()
        async with connect(settings) as bus:
            await eventually(lambda: bus.problem is None, within=30.0, what="the connection")
            took.append(time.monotonic() - began)
    with capsys.disabled():
        figures = f"{statistics.median(took):.2f} s, longest {max(took):.2f} s"
        print(f"\nfrom registration to connection: {figures}")  # noqa: T201
    assert min(took) < 1.0


async def test_malformed_entries_break_nothing(
    control_plane: ControlPlane, kube: KubeClient, server: KeptServer
) -> None:
    good = nkeys.derive_public_key(nkeys.new_seed())
    bad = [
        "",
        "U" * 56,
        good[:-1],
        f"{good}\n",
        '", permissions: {publish: ">"}}',
        nkeys.new_seed(),
        "x" * 5_000,
    ]
    for number, value in enumerate(bad):
        await register(kube, "administrator", f"bad-{number}", value)
    await register(kube, "administrator", "good", good)
    await until_configured(server, good)
    assert all(value not in server.configuration for value in bad if len(value) > 56)

    settings = await client_of(control_plane, [server], "watcher", "watcher-0")
    async with connect(settings) as bus:
        await eventually(
            lambda: bus.problem is None, within=30.0, what="the connection of the watcher"
        )
    for entry in await registered(kube, "administrator"):
        await register(kube, "administrator", entry, None)


async def test_to_remove_an_entry_ends_the_access(
    control_plane: ControlPlane, kube: KubeClient, server: KeptServer
) -> None:
    settings = Settings(
        service="subscriber",
        nats_url=server.url,
        kubeconfig=control_plane.kubeconfig,
        namespace=NAMESPACE,
        identity="alice",
    )
    announced: list[str] = []

    class Once(Registration):
        async def announce(self) -> str:
            if not announced:
                announced.append(await super().announce())
            return announced[0]

    async with connect(settings, Once(settings)) as bus:
        await eventually(
            lambda: bus.problem is None, within=30.0, what="the connection of the subscriber"
        )
        await register(kube, "subscriber", "alice", None)
        await eventually(
            lambda: "Violation" in (bus.problem or ""), within=30.0, what="the end of the access"
        )


async def test_a_client_without_a_key_is_not_admitted(server: KeptServer) -> None:
    ca = server.place.beside.folder / "ca.crt"
    async with connect(Settings(service="watcher", nats_url=server.url, nats_ca_file=ca)) as bus:
        await eventually(
            lambda: "Violation" in (bus.problem or ""), within=30.0, what="the refusal"
        )


async def test_a_server_that_starts_again_is_the_same_and_knows_its_users(
    control_plane: ControlPlane, server: KeptServer
) -> None:
    settings = await client_of(control_plane, [server], "watcher", "watcher-0")
    async with connect(settings) as bus:
        await eventually(lambda: bus.problem is None, within=30.0, what="the connection")
        certificate = (server.place.beside.folder / "tls.crt").read_bytes()
        server.kill()
        server.lose_files()
        await eventually(
            lambda: bus.problem is not None, within=30.0, what="the loss of the connection"
        )
        await server.start()
        await eventually(lambda: bus.problem is None, within=30.0, what="the connection")
        assert (server.place.beside.folder / "tls.crt").read_bytes() == certificate


async def test_the_entry_of_a_pod_that_is_gone_is_removed(
    control_plane: ControlPlane, kube: KubeClient, server: KeptServer
) -> None:
    settings = await client_of(control_plane, [server], "watcher", "watcher-gone")
    async with connect(settings) as bus:
        await eventually(lambda: bus.problem is None, within=30.0, what="the connection")
    key = (await registered(kube, "watcher"))["watcher-gone"]
    await until_configured(server, key)
    await server.keeper.forget_pods()
    assert "watcher-gone" in await registered(kube, "watcher")
    await server.keeper.forget_pods()
    assert "watcher-gone" not in await registered(kube, "watcher")
    await until_configured(server, key, present=False)


async def test_three_servers_trust_each_other_by_what_they_registered(
    control_plane: ControlPlane, kube: KubeClient, tmp_path: Path
) -> None:
    async with kept_servers(control_plane, tmp_path, "nats-0", "nats-1", "nats-2") as servers:
        settings = await client_of(control_plane, servers, "nats-streams", "nats-streams-0")
        provisioner = msgspec.structs.replace(settings, service="provisioner")
        async with connect(provisioner) as bus:

            async def are_made() -> bool:
                await bus.session()
                try:
                    return (
                        await stream_keeper.ensure_streams(
                            bus, [streams.build_state_config(replicas=3)]
                        )
                        == []
                    )
                except errors.RaybusError:
                    return False

            await eventually_true(are_made, within=60.0, what="a stream on three servers")
        for number in range(3):
            own = await client_of(control_plane, [servers[number]], "watcher", "watcher-0")
            async with connect(own) as bus:

                async def is_read(bus: Bus = bus) -> bool:
                    try:
                        assert (await bus.stream("RAY_STATE")).state.messages == 0
                    except (
                        errors.RaybusError
                    ):  # not connected yet, or its server does not know the stream's leader yet
                        return False
                    return True

                await eventually_true(
                    is_read, within=30.0, what=f"the stream through nats-{number}"
                )
    found = msgspec.json.decode(await kube.get(CONFIG_MAP, NAMESPACE, nkeys.SERVERS), type=Map).data
    assert {"nats-0", "nats-1", "nats-2"} <= found.keys()


async def test_the_containers_of_an_installation_do_all_of_it(
    control_plane: ControlPlane, tmp_path: Path
) -> None:
    client, monitor, http = child_processes.find_free_ports(3)
    folder = tmp_path / "etc"
    folder.mkdir()
    environment = {
        **os.environ,
        "RAYBUS_NAMESPACE": NAMESPACE,
        "RAYBUS_NATS_URL": f"tls://localhost:{client}",
        "RAYBUS_NATS_REGISTER_KEY": "true",
        "RAYBUS_IDENTITY": "nats-0",
        "RAYBUS_HTTP_PORT": str(http),
    }

    async def started(account: str, *arguments: str) -> Process:
        kubeconfig = await control_plane.kubeconfig_for_service_account(NAMESPACE, account)
        process = Process()
        command = [sys.executable, "-m", "nats_admin.provision", *arguments]
        process.spawn(command, env={**environment, "RAYBUS_KUBECONFIG": str(kubeconfig)})
        return process

    keeper = (
        "keeper",
        "--host=127.0.0.1",
        f"--server-folder={folder}",
        f"--server-volume={tmp_path / 'tls'}",
    )
    keeper += (
        f"--server-pid={tmp_path / 'nats.pid'}",
        f"--server-monitor=http://127.0.0.1:{monitor}",
    )
    keeper += (f"--store={tmp_path / 'jetstream'}", f"--server-certificate={tmp_path / 'none'}")
    configure = await started("nats", *keeper, "--once")
    await eventually(lambda: configure.has_ended, within=60.0, what="the init container")
    server = Process()
    server.spawn([binary(), "-c", str(folder / "nats-server.conf")])
    beside = await started("nats", *keeper, "--metrics")
    job = await started("nats-streams", "streams")
    try:
        await eventually(lambda: job.has_ended, within=90.0, what="the Job")
        assert (configure.running.poll(), job.running.poll()) == (0, 0)
        service = await control_plane.kubeconfig_for_service_account(NAMESPACE, "watcher")
        settings = Settings(
            service="watcher",
            nats_url=f"tls://localhost:{client}",
            nats_register_key=True,
            kubeconfig=service,
            namespace=NAMESPACE,
            identity="watcher-0",
        )
        async with connect(settings) as bus:
            await eventually(
                lambda: bus.problem is None, within=60.0, what="the connection of the watcher"
            )
            assert (await bus.stream("RAY_STATE")).state.messages == 0
        assert not beside.has_ended
    finally:
        for each in (beside, server):
            each.end(signal.SIGKILL, within=10.0)
