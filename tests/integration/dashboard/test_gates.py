"""The gates of an upgrade on the page in a real browser: the present ones with figures, and points on the chart; `--update-pictures` keeps it."""

from datetime import datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from common.api.opaque import Body
from common.bus import cloud_events
from common.bus.cloud_events import Event
from common.kube.client import KubeClient
from common.kube.resources import HTTP_ROUTE
from common.ray import owner
from common.upgrade import events as ue
from common.upgrade import traffic_record
from common.upgrade.events import UpgradeEventData
from common.upgrade.gate_record import Current, GateState, Verdict
from common.upgrade.traffic_record import ClusterTraffic, Record, RecordedUpgrade
from integration.dashboard.test_accessibility import violations
from integration.dashboard.test_page import named, put
from localcluster.api import read_manifests
from localcluster.binaries import GATEWAY_CRDS
from localcluster.control_plane import ControlPlane
from raybus_cli import session
from support.builders.snapshots import BLUE, GREEN, READY, STEPS, UPGRADING, a_side
from support.manifests import ROOT
from support.servers import browser, dashboard
from support.servers.browser import Watched
from support.servers.outside import outside
from support.servers.programs import prepared
from support.upgrade_events import a_split

pytestmark = [pytest.mark.integration, pytest.mark.long]

LONGEST_TIME = "document.querySelector('#timeline .after').textContent = '+47 h 59 min'"
"""The widest text that the page shows for a time since the start."""

NOW = session.read_clock().replace(microsecond=0)
EVIL = '<img src=x onerror="alert(1)">\x1b[31m'
UPGRADE = ue.upgrade("uid", BLUE, GREEN)


def at(seconds: float) -> datetime:
    """Return a moment, counted from the beginning of the upgrade."""
    return NOW - timedelta(seconds=420 - seconds)


def a_verdict(seconds: float, gate: str, outcome: str, text: str, requests: int = 500) -> Verdict:
    return Verdict(
        gate=gate,
        outcome=outcome,
        at=at(seconds),
        requests=requests,
        value=0.001,
        limit=0.01,
        text=f"{gate}: {text}",
    )


def evaluated(weight: int, verdict: Verdict) -> ue.GateEvaluated:
    return ue.GateEvaluated(
        upgrade=UPGRADE,
        traffic_percent=weight,
        gate=verdict.gate,
        outcome=verdict.outcome,
        requests=verdict.requests,
        value=verdict.value,
        limit=verdict.limit,
        message=verdict.text,
    )


def shifted(before: int, after: int) -> ue.TrafficShifted:
    sides = [a_split((100, 100 - each), (100, each)) for each in (before, after)]
    return ue.TrafficShifted(
        upgrade=UPGRADE, direction=ue.Direction.FORWARD, before=sides[0], after=sides[1]
    )


ERRORS = "1 of {} requests failed ({}%), at most 1% allowed"
LATENCY = "p95 {}ms in {} requests, at most 380ms allowed"
HAPPENED: list[tuple[float, UpgradeEventData]] = [
    (
        0,
        ue.Started(
            upgrade=UPGRADE,
            reason=ue.Cause.SPEC_CHANGED,
            strategy="NewClusterWithIncrementalUpgrade",
            generation=2,
        ),
    ),
    (1, ue.ClusterCreated(upgrade=UPGRADE, cluster=GREEN, uid="uid")),
    (
        55,
        ue.CapacityChanged(
            upgrade=UPGRADE,
            direction=ue.Direction.FORWARD,
            before=a_split((100, 100), (0, 0)),
            after=a_split((100, 100), (100, 0)),
        ),
    ),
    (60, shifted(0, 1)),
    (150, evaluated(1, a_verdict(150, "errorRate", "Pass", ERRORS.format(104, 0.962)))),
    (162, evaluated(1, a_verdict(162, "latencyP95", "Pass", LATENCY.format(311, 118)))),
    (180, shifted(1, 10)),
    (205, evaluated(10, a_verdict(205, "errorRate", "Pass", ERRORS.format(231, 0.433)))),
    (205, evaluated(10, a_verdict(205, "latencyP95", "Pass", LATENCY.format(304, 231)))),
    (300, shifted(10, 25)),
    (318, evaluated(25, a_verdict(318, "errorRate", "Pass", ERRORS.format(402, 0.249)))),
    (
        360,
        evaluated(
            25,
            a_verdict(
                360, "timeToFirstTokenP95", "Inconclusive", "61 of 100 requests observed", 61
            ),
        ),
    ),
]
STATES = (
    GateState(gate="errorRate", outcome="Pass", at=at(318), requests=1912, text="errorRate: 4 of 1912 requests failed (0.209%), at most 1% allowed"),
    GateState(gate="latencyP95", outcome="Fail", at=at(400), text=f"latencyP95: {EVIL}"),
    GateState(gate="timeToFirstTokenP95", outcome="Inconclusive", at=at(360), requests=88, waits=True, text="timeToFirstTokenP95: 88 of 100 requests observed"),
)  # fmt: skip


def happened(namespace: str) -> list[Event]:
    """Return the events of the upgrade."""
    return [
        Event(
            namespace=namespace,
            name="demo",
            id=cloud_events.identity(data, number),
            time=at(seconds),
            data=data,
        )
        for number, (seconds, data) in enumerate(HAPPENED)
    ]


async def an_upgrade(kube: KubeClient, namespace: str, states: tuple[GateState, ...]) -> str:
    """Make a RayService in an upgrade and its route; return its place in the page's address."""
    weights = {BLUE: 75, GREEN: 25}
    sides = [a_side(name, capacity=100, weight=weight) for name, weight in weights.items()]
    upgrading = named(
        "demo", READY, UPGRADING, active=sides[0], pending=sides[1], upgradeStrategy=STEPS
    )
    service = await put(kube, namespace, upgrading)
    current = Current(weight=25, since=at(300), written_at=at(412), gates=states)
    upgrade = RecordedUpgrade(
        old=BLUE, new=GREEN, began_at=at(0), max_capacity=200, min_capacity=100, gates=current
    )
    shares = {
        name: ClusterTraffic(capacity=100, weight=weight, moved_at=at(300))
        for name, weight in weights.items()
    }
    text = msgspec.json.encode(
        Record(clusters=shares, changed_at=at(300), upgrade=upgrade)
    ).decode()
    meta: Body = {
        "name": "demo-httproute",
        "ownerReferences": owner.reference(service.metadata),
        "annotations": {traffic_record.ANNOTATION: text},
    }
    route: Body = {
        "apiVersion": HTTP_ROUTE.api_version,
        "kind": HTTP_ROUTE.kind,
        "metadata": meta,
        "spec": {},
    }
    await kube.create(HTTP_ROUTE, namespace, route)
    return f"#/{namespace}/demo"


@pytest.fixture(autouse=True)
async def gateway_api(control_plane: ControlPlane) -> None:
    """Serve HTTPRoutes, which hold the record of the gates."""
    async with control_plane.api() as api:
        held = read_manifests(prepared(GATEWAY_CRDS))
        await api.apply_definitions(
            [each for each in held if each["spec"]["names"]["kind"] == HTTP_ROUTE.kind]
        )


async def test_gates_with_figures_and_their_points_on_the_chart(
    request: pytest.FixtureRequest,
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    tmp_path: Path,
) -> None:
    pictures = (
        ROOT / "docs" / "images"
        if request.config.getoption("--update-pictures")
        else tmp_path / "pictures"
    )
    states = (
        STATES[0],
        msgspec.structs.replace(
            STATES[0], gate="latencyP95", text=f"latencyP95: {LATENCY.format(302, 1912)}"
        ),
        STATES[2],
    )
    place = await an_upgrade(kube, namespace, states)
    async with outside(tmp_path / "nats") as bus, browser.opened() as window:
        await bus.publish(happened(namespace))
        arguments = ("--nats", bus.url, "--nats-credentials", str(bus.folder))
        where = ("--kubeconfig", str(control_plane.kubeconfig), "-n", namespace)
        async with dashboard.started(tmp_path, *where, *arguments) as running:
            page = Watched(await window.new_page(viewport={"width": 1280, "height": 1060}))
            await page.page.goto(running.address + place)
            await page.until("#gates", "Gates at 25 % of the traffic")
            await page.until("#timeline", "gate is waited for at 25 %")
            shown = await page.text("#gates-list")
            assert "4 of 1912 requests failed (0.209%), at most 1% allowed" in shown
            assert "Inconclusive, the step waits" in shown
            assert await page.page.locator("#chart path.verdict.good").count() == 5
            assert await page.page.locator("#chart path.verdict.warn").count() == 1
            tips = await page.page.locator("#chart path.verdict title").all_text_contents()
            assert tips[-1] == "Inconclusive: timeToFirstTokenP95: 61 of 100 requests observed"
            await page.page.evaluate("document.getElementById('upgrade').scrollIntoView()")
            await page.picture(pictures / "dashboard-gates.png")
            await page.page.evaluate(LONGEST_TIME)
            assert await page.overflowing() == []
            for scheme in ("light", "dark"):
                await page.page.emulate_media(color_scheme=scheme)
                assert await violations(page) == []
            await page.page.set_viewport_size({"width": 390, "height": 844})
            assert await page.overflowing() == []
            assert await page.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
            assert page.complaints == []


async def test_hostile_texts_of_gates_are_text_without_any_event(
    control_plane: ControlPlane,
    kube: KubeClient,
    namespace: str,
    nobodys_bus: tuple[str, ...],
    tmp_path: Path,
) -> None:
    place = await an_upgrade(kube, namespace, STATES)
    where = ("--kubeconfig", str(control_plane.kubeconfig), "-n", namespace)
    async with (
        dashboard.started(tmp_path, *where, *nobodys_bus) as running,
        browser.opened() as window,
    ):
        page = Watched(await window.new_page(viewport={"width": 1280, "height": 1060}))
        await page.page.goto(running.address + place)
        await page.until("#gates-list .bad", '<img src=x onerror="alert(1)">')
        assert await page.page.locator("#gates img").count() == 0
        assert await page.page.locator("#chart path.verdict.bad").count() == 1
        assert page.complaints == []
