"""Causes in what the services depend on: NATS, its certificate and streams, Lease, and watches."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Final

from chaos.schedule import WATCHER
from common.bus import streams, subjects
from common.bus.nats import connect
from common.bus.streams import StreamInfo
from common.clock import SystemClock
from common.kube.client import PatchRequest
from common.kube.resources import LEASE
from integration.monitoring.cause import AlarmSetup, Cause
from nats_admin import certificates, credential_folder, stream_keeper
from nats_admin.certificates import CertificatePair
from nats_admin.server_conf import ServerConfig
from support.servers.fault_proxy import PASSES, Asked, Fate
from support.servers.fleet import NAMESPACE
from support.servers.relayed import Secured
from watcher.leadership import LEASE_NAME

LEFT: Final = timedelta(days=7)
"""Remaining validity of the certificate."""
MAX_STREAM: Final = 64 * 1024 * 1024


@asynccontextmanager
async def _silent_watch(setup: AlarmSetup) -> AsyncGenerator[None]:
    fleet = setup.ground.stack.fleet

    def hold(asked: Asked) -> Fate:
        return Fate(is_held=True) if asked.is_watch and "/jobs" in asked.target else PASSES

    fleet.judge(WATCHER, hold)
    try:
        for replica in fleet.of(WATCHER):
            replica.fault_proxy.cut()
        yield
    finally:
        fleet.judge(WATCHER, None)


@asynccontextmanager
async def _no_nats(setup: AlarmSetup) -> AsyncGenerator[None]:
    setup.ground.stack.nats.kill()
    try:
        yield
    finally:
        setup.ground.stack.nats.start()


@asynccontextmanager
async def _old_certificate(setup: AlarmSetup) -> AsyncGenerator[None]:
    nats, now = setup.ground.stack.nats, SystemClock().now()
    where = ServerConfig(folder=str(nats.folder), store=str(nats.store), monitoring_port=None)
    signer = CertificatePair(
        (nats.folder / "ca.crt").read_bytes(), (nats.folder / "ca.key").read_bytes()
    )
    ending = certificates.make_server_certificate(
        signer, names=["127.0.0.1"], now=now, lifetime=LEFT
    )
    (nats.folder / "tls.crt").write_bytes(ending.certificate)
    (nats.folder / "tls.key").write_bytes(ending.key)
    nats.stop()
    nats.start()
    yield
    credential_folder.complete_folder(nats.folder, where, names=["127.0.0.1"], now=now)
    nats.stop()
    nats.start()


@asynccontextmanager
async def _lease_of_kuberay(setup: AlarmSetup) -> AsyncGenerator[None]:
    kube = setup.ground.stack.kube

    async def held_by(holder: str, seconds: int) -> None:
        spec = {"holderIdentity": holder, "leaseDurationSeconds": seconds}
        await kube.patch(LEASE, NAMESPACE, LEASE_NAME, PatchRequest(body={"spec": spec}))

    await held_by("kuberay-operator-7c9f8_0", 3600)
    yield
    await held_by("", 1)


@asynccontextmanager
async def _stream_with_a_limit(setup: AlarmSetup) -> AsyncGenerator[None]:
    nats = setup.ground.stack.nats
    async with connect(Secured(nats, nats.folder).settings("provisioner")) as bus:
        await bus.session()
        before = await bus.stream(subjects.STATE_STREAM)
        limited = before.config | {"max_bytes": MAX_STREAM}
        await bus.api(f"STREAM.UPDATE.{subjects.STATE_STREAM}", limited, StreamInfo)
        yield
        assert (
            await stream_keeper.ensure_streams(bus, [streams.build_state_config()], may_change=True)
            == []
        )


AROUND: Final = (
    Cause(text="nats-server is killed", alerts=frozenset({"RaybusNatsAway"}), provoked=_no_nats),
    Cause(
        text=f"nats-server restarts with a certificate that expires in {LEFT.days} days",
        alerts=frozenset({"RaybusNatsCertificateExpires"}),
        provoked=_old_certificate,
    ),
    Cause(
        text="a KubeRay operator holds the Lease ray-operator-leader",
        alerts=frozenset({"RaybusNoLeaderWatcher"}),
        provoked=_lease_of_kuberay,
    ),
    Cause(
        text="the stream RAY_STATE gets a limit, so the watcher does not write to it",
        alerts=frozenset({"RaybusWatcherNotSynced"}),
        provoked=_stream_with_a_limit,
    ),
)
STALE: Final = Cause(
    text="the API server stops answering the watch of Jobs",
    alerts=frozenset({"RaybusWatchStale"}),
    provoked=_silent_watch,
)
