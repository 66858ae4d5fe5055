"""Causes in users' actions, applications and clusters."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

from bench.rig import BACKGROUND
from common.bus import subjects
from common.bus.nats import connect
from common.bus.streams import StreamInfo
from common.kube.resources import RAY_CLUSTER
from integration.monitoring import objects
from integration.monitoring.cause import AlarmSetup, Cause
from integration.monitoring.ground import TIMEOUT
from nats_admin import event_streams
from support.servers.relayed import Secured

CUT: Final = 3
"""Number of requests that each pod processes without end."""
BEYOND: Final = 99_999
"""A number that is no port, so that the API server refuses it."""
REFUSED: Final = 8
"""Number of refused objects.

Each is tried again at least every 5 s, and the range of the shortened rule is 10 s."""
MISSING: Final = "missing:app"


@asynccontextmanager
async def _requests_without_end(setup: AlarmSetup) -> AsyncGenerator[None]:
    heads = setup.ground.stack.heads
    heads.ongoing = CUT
    try:
        await setup.demo.upgrade()
        yield
    finally:
        heads.ongoing = 0
    await setup.demo.served()


@asynccontextmanager
async def _application_that_does_not_start(setup: AlarmSetup) -> AsyncGenerator[None]:
    await setup.demo.annotate({"raybus.io/progress-deadline": "3s"})
    await setup.demo.upgrade(import_path=MISSING)
    yield
    await setup.demo.fix()
    await setup.demo.served()
    await setup.demo.annotate({"raybus.io/progress-deadline": None})


@asynccontextmanager
async def _abort(setup: AlarmSetup) -> AsyncGenerator[None]:
    await setup.demo.upgrade(import_path=MISSING)
    await setup.demo.annotate({"raybus.io/abort": "true"})
    yield
    await setup.demo.revert()
    await setup.demo.annotate({"raybus.io/abort": None})
    await setup.demo.at_rest()


@asynccontextmanager
async def _pods_that_are_refused(setup: AlarmSetup) -> AsyncGenerator[None]:
    kube = setup.ground.stack.kube
    names = [f"refused-{number}" for number in range(REFUSED)]
    for name in names:
        await kube.create(RAY_CLUSTER, BACKGROUND, objects.a_cluster(name, port=BEYOND))
    yield
    for name in names:
        await kube.delete(RAY_CLUSTER, BACKGROUND, name)


@asynccontextmanager
async def _dashboard_that_fails(setup: AlarmSetup) -> AsyncGenerator[None]:
    heads = setup.ground.stack.heads
    cluster = await objects.until_served(setup.ground.stack.kube, setup.silent, within=TIMEOUT)
    head = heads.serve.head(f"{cluster}-head-svc")
    head.behaviour = "500"
    try:
        yield
    finally:
        head.behaviour = "ok"


@asynccontextmanager
async def _full_event_stream(setup: AlarmSetup) -> AsyncGenerator[None]:
    nats = setup.ground.stack.nats
    change = f"STREAM.UPDATE.{subjects.EVENTS_STREAM}"
    async with connect(Secured(nats, nats.folder).settings("provisioner")) as bus:
        await bus.session()
        before = await bus.stream(subjects.EVENTS_STREAM)
        full = {"discard": "new", "max_msgs": max(1, before.state.messages)}
        await bus.api(change, before.config | full, StreamInfo)
        try:
            await setup.demo.upgrade()
            yield
        finally:
            await bus.api(change, before.config | event_streams.build_stream_config(), StreamInfo)
    await setup.demo.served()


@asynccontextmanager
async def _rules_of_another_tool(setup: AlarmSetup) -> AsyncGenerator[None]:
    """Replace the rules once; the alert ends when that is long enough ago."""
    await setup.demo.replace_rules()
    yield


USERS: Final = (
    Cause(
        text="a tool that applies its own rules to the HTTPRoute",
        alerts=frozenset({"RaybusRouteOverwritten"}),
        provoked=_rules_of_another_tool,
    ),
    Cause(
        text="requests that do not end while their cluster is drained for 1 s",
        alerts=frozenset({"RaybusRequestsCut"}),
        provoked=_requests_without_end,
    ),
    Cause(
        text="an upgrade with an application that cannot be imported, with a progress deadline of 3 s",
        alerts=frozenset({"RaybusUpgradeStalled"}),
        provoked=_application_that_does_not_start,
    ),
    Cause(
        text="an upgrade that is aborted by its annotation",
        alerts=frozenset({"RaybusUpgradeRolledBack"}),
        provoked=_abort,
    ),
    Cause(
        text=f"{REFUSED} RayClusters with pods that the API server rejects (a port beyond 65535)",
        alerts=frozenset({"RaybusReconcileErrors"}),
        provoked=_pods_that_are_refused,
    ),
    Cause(
        text="the stream RAY_EVENTS is full and may not discard, during an upgrade",
        alerts=frozenset({"RaybusEventsLost"}),
        provoked=_full_event_stream,
    ),
)
SILENCE: Final = Cause(
    text="the dashboard of an active cluster answers 500",
    alerts=frozenset({"RaybusServeSilent"}),
    provoked=_dashboard_that_fails,
)
