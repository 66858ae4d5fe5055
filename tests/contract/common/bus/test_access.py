"""The messages that a user reads when NATS refuses a service, verbatim.

`/readyz` shows `Bus.problem`, and the log shows its reason.
"""

import errno
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from prometheus_client import REGISTRY

from common import errors
from common.bus import nkeys, streams
from common.bus.nats import Bus, connect
from common.clock import SystemClock
from common.settings import Settings
from nats_admin import certificates, credential_folder
from nats_admin.certificates import CertificatePair
from nats_admin.server_conf import ServerConfig
from support.servers.nats import NatsServer, nats_server
from support.servers.relayed import Secured, secured_nats
from support.servers.wire import Wire
from support.tables import cases
from support.waiting import eventually, eventually_true

pytestmark = [pytest.mark.integration]

RENEW = "`python -m nats_admin.provision credentials`"


@pytest_asyncio.fixture
async def secured(tmp_path: Path) -> AsyncGenerator[Secured]:
    async with secured_nats(tmp_path) as running:
        yield running


async def reported(settings: Settings, *, of: str = "is not reachable") -> str:
    """Return the message of readiness about a server that cannot be used."""
    async with connect(settings) as bus:
        await eventually(lambda: of in (bus.problem or ""), within=30.0, what="the reason")
        return str(bus.problem)


def authority(folder: Path) -> CertificatePair:
    return CertificatePair((folder / "ca.crt").read_bytes(), (folder / "ca.key").read_bytes())


async def a_server_that_shows(folder: Path, pair: CertificatePair) -> str:
    """Write a certificate where the server finds it, and return the server's configuration."""
    where = ServerConfig(folder=str(folder), store=str(folder / "jetstream"), monitoring_port=None)
    credential_folder.complete_folder(folder, where, names=["127.0.0.1"], now=SystemClock().now())
    (folder / "tls.crt").write_bytes(pair.certificate)
    (folder / "tls.key").write_bytes(pair.key)
    return (folder / "nats-server.conf").read_text()


async def message_of(folder: Path, *, names: list[str], lifetime: timedelta) -> str:
    """Return the readiness message about a server whose certificate has these names and validity."""
    now = SystemClock().now()
    await a_server_that_shows(folder, CertificatePair(b"", b""))
    pair = certificates.make_server_certificate(
        authority(folder), names=names, now=now, lifetime=lifetime
    )
    with nats_server(
        folder, configuration=await a_server_that_shows(folder, pair), scheme="tls"
    ) as server:
        return await reported(Secured(server, folder).settings("watcher"))


async def test_a_key_that_the_server_does_not_know(secured: Secured, tmp_path: Path) -> None:
    stranger = tmp_path / "users" / "stranger.seed"
    stranger.write_text(nkeys.new_seed())

    assert await reported(secured.settings("stranger"), of="Violation") == (
        f"NATS at {secured.server.url} is not reachable: Authorization Violation: the server does not know the key in "
        f"RAYBUS_NATS_SEED_FILE={stranger}; it reads its users from the configuration that {RENEW} writes"
    )


async def test_a_client_without_a_key(secured: Secured, tmp_path: Path) -> None:
    settings = Settings(
        service="watcher", nats_url=secured.server.url, nats_ca_file=tmp_path / "ca.crt"
    )

    assert "the server does not know a client without a key" in await reported(
        settings, of="Violation"
    )


@cases(
    ("content", "reason"),
    {
        "empty": ("", "holds no NKEY seed; `python -m nats_admin.provision credentials` makes one"),
        "no seed": (
            "nonsense",
            "holds no NKEY seed; `python -m nats_admin.provision credentials` makes one",
        ),
        "unreadable": (None, "cannot be read: Is a directory"),
    },
)
async def test_a_seed_file_that_is_of_no_use_is_a_wrong_setting(
    content: str | None, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "seed"
    file.mkdir() if content is None else file.write_text(content)
    settings = Settings(service="watcher", nats_url="nats://127.0.0.1:1", nats_seed_file=file)

    with pytest.raises(errors.InvalidSpec) as refused:
        await Bus(settings).run()
    assert str(refused.value) == f"RAYBUS_NATS_SEED_FILE={file}: {reason}"


async def test_a_seed_file_that_goes_bad_later_is_waited_out(
    secured: Secured, tmp_path: Path
) -> None:
    settings = secured.settings("watcher")
    file = tmp_path / "users" / "watcher.seed"
    good = file.read_text()
    async with connect(settings) as bus:
        await bus.session()
        file.write_text("nonsense")
        secured.server.kill()
        secured.server.start()
        await eventually(
            lambda: "holds no NKEY seed" in (bus.problem or ""), within=30.0, what="the reason"
        )
        file.write_text(good)
        await eventually(lambda: bus.problem is None, within=30.0, what="the connection")


async def test_an_authority_file_without_a_certificate_is_a_wrong_setting(tmp_path: Path) -> None:
    file = tmp_path / "ca.crt"
    file.write_text("nonsense")
    settings = Settings(service="watcher", nats_url="tls://127.0.0.1:1", nats_ca_file=file)

    with pytest.raises(
        errors.InvalidSpec, match=f"^RAYBUS_NATS_CA_FILE={file}: no certificate in it"
    ):
        await Bus(settings).run()


async def test_an_expired_certificate(tmp_path: Path) -> None:
    assert (
        await message_of(tmp_path, names=["127.0.0.1"], lifetime=timedelta(seconds=-1))
    ).endswith(
        "is not reachable: the certificate of the server, or its authority's, has expired; "
        f"make it anew: delete its file and run {RENEW}"
    )


async def test_a_certificate_for_another_host(tmp_path: Path) -> None:
    assert (await message_of(tmp_path, names=["elsewhere"], lifetime=timedelta(days=60))).endswith(
        f"certificate is not valid for '127.0.0.1'; name the server as it is called by {RENEW} --name 127.0.0.1"
    )


async def test_a_certificate_of_an_authority_that_we_do_not_trust(
    secured: Secured, tmp_path: Path
) -> None:
    other = tmp_path / "other.crt"
    other.write_bytes(certificates.make_ca(now=SystemClock().now()).certificate)
    settings = Settings(service="watcher", nats_url=secured.server.url, nats_ca_file=other)

    assert f"the certificate of the server is not signed by {other} (" in await reported(settings)


async def test_a_server_that_talks_in_the_clear_is_refused(tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_bytes(certificates.make_ca(now=SystemClock().now()).certificate)
    with nats_server(tmp_path) as server:
        settings = Settings(service="watcher", nats_url=server.url, nats_ca_file=ca)
        assert (await reported(settings)).endswith(
            "the server does not offer TLS, which RAYBUS_NATS_URL or RAYBUS_NATS_CA_FILE asks for"
        )


async def test_the_end_of_certificates_is_exported_and_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    now = SystemClock().now()
    await a_server_that_shows(tmp_path, CertificatePair(b"", b""))
    pair = certificates.make_server_certificate(
        authority(tmp_path), names=["127.0.0.1"], now=now, lifetime=timedelta(days=3)
    )
    with nats_server(
        tmp_path, configuration=await a_server_that_shows(tmp_path, pair), scheme="tls"
    ) as server:
        async with connect(Secured(server, tmp_path).settings("watcher")) as bus:
            await bus.session()

    labels = {"certificate": "server"}
    end = REGISTRY.get_sample_value("raybus_nats_certificate_expiry_timestamp_seconds", labels)
    assert end == certificates.read_end(pair.certificate).timestamp()
    assert "NATS certificate expires soon" in capsys.readouterr().out


async def test_one_server_of_several_is_enough(secured: Secured) -> None:
    settings = secured.settings("watcher")
    both = Settings(
        service="watcher",
        nats_url=f"tls://127.0.0.1:1,{settings.nats_url}",
        nats_ca_file=settings.nats_ca_file,
        nats_seed_file=settings.nats_seed_file,
    )
    async with connect(both) as bus:
        await eventually(
            lambda: bus.problem is None, within=30.0, what="the connection to the second"
        )


async def test_a_forbidden_subscription_is_reported_at_once(secured: Secured) -> None:
    async with connect(secured.settings("watcher")) as bus:
        await bus.session()
        with pytest.raises(errors.Unavailable) as refused:
            await bus.api(
                "STREAM.CREATE.RAY_STATE", streams.build_state_config(), dict[str, object]
            )
    assert (
        str(refused.value)
        == "the NATS user watcher may not publish to $js.api.stream.create.ray_state"
    )


async def test_a_stream_that_is_missing_is_named(secured: Secured) -> None:
    async with connect(secured.settings("watcher")) as bus:
        await bus.session()
        with pytest.raises(
            errors.NotFound, match=r"stream not found .* the provisioner beside the server makes it"
        ):
            await bus.stream("RAY_STATE")


async def test_nobody_listens_at_the_start_and_later_again(tmp_path: Path) -> None:
    server = NatsServer(tmp_path)
    server.start()
    server.kill()
    nobody = f"NATS at {server.url} is not reachable: [Errno {errno.ECONNREFUSED}] Connect call failed ('127.0.0.1', {server.port})"
    settings = Settings(service="watcher", nats_url=server.url)
    try:
        async with connect(settings) as bus:
            await eventually(lambda: bus.problem == nobody, within=30.0, what="the reason")
            server.start()
            await eventually(lambda: bus.problem is None, within=30.0, what="the connection")
            server.kill()
            await eventually(
                lambda: bus.problem == nobody, within=30.0, what="the reason once more"
            )
            with pytest.raises(errors.Unavailable) as refused:
                await bus.stream("RAY_STATE")
            assert str(refused.value) == nobody
    finally:
        server.kill()


async def test_a_slow_server_is_waited_for_and_a_very_slow_one_is_named(tmp_path: Path) -> None:
    with nats_server(tmp_path) as server:
        wire = Wire(server.port)
        async with wire.laid(), connect_through(wire) as bus:
            await bus.session()
            await bus.api(
                "STREAM.CREATE.RAY_STATE", streams.build_state_config(), dict[str, object]
            )
            wire.delay = 0.3
            assert (await bus.stream("RAY_STATE")).state.messages == 0
            wire.delay = 3.0
            with pytest.raises(errors.Unavailable) as refused:
                await bus.stream("RAY_STATE")
            assert (
                str(refused.value) == "NATS did not answer $JS.API.STREAM.INFO.RAY_STATE within 2 s"
            )
            wire.delay = 0.0
            await eventually_true(lambda: answers(bus), within=60.0, what="an answer")


async def answers(bus: Bus) -> bool:
    await bus.session()
    try:
        await bus.stream("RAY_STATE")
    except errors.Retryable:
        return False
    return True


def connect_through(wire: Wire) -> AbstractAsyncContextManager[Bus]:
    return connect(Settings(service="watcher", nats_url=f"nats://127.0.0.1:{wire.port}"))
