"""A status has room for 1.5 MiB; what Ray Serve reports of applications is cut to fit, and the cut is reported."""

from typing import Any

import msgspec

from common import errors
from common.api.opaque import Json
from common.kube.resources import RAY_SERVICE
from support.builders.ray_service import NAMESPACE
from support.fakes.kube import LARGEST, Request
from support.simulator.simulator import Simulator, a_running_simulator

TRACEBACK = (
    "Traceback (most recent call last):\n"
    + '  File "/app/main.py", line 1, in <module>\n' * 400
    + "ValueError: no weights\n"
)


def report(sim: Simulator, count: int, message: str, *, deployments: int = 1) -> None:
    """Let the active cluster's Serve report this number of declared applications, which fail."""
    names = [f"app-{number:05}" for number in range(count)]
    declared = [
        {"name": name, "import_path": "app:main", "route_prefix": f"/{name}"} for name in names
    ]
    sim.apply(serve=msgspec.json.encode({"applications": declared}).decode())
    failed: Json = {"status": "DEPLOY_FAILED", "message": message}
    app = {
        **failed,
        "deployments": {
            f"Model{each}": {"status": "UNHEALTHY", "message": message}
            for each in range(deployments)
        },
    }
    head: Any = sim.serve.head(f"{sim.active}-head-svc")
    apps = {name: {**app, "deployed_app_config": {}} for name in names}
    head.details = lambda: {"applications": apps, "proxies": {}}


def apps_of(sim: Simulator) -> dict[str, Json]:
    return sim.status["activeServiceStatus"]["applicationStatuses"]


async def test_many_applications_leave_room_for_the_rest() -> None:
    sim = await a_running_simulator()
    report(sim, 150, TRACEBACK)
    await sim.run(10)
    assert "app-00000" in apps_of(sim)
    assert len(msgspec.json.encode(sim.service)) < LARGEST // 2
    assert "application app-00000 is DEPLOY_FAILED" in sim.message("Ready")
    notes = [
        (kind, note) for kind, reason, note in sim.kube.events() if reason == "StatusTruncated"
    ]
    assert len(notes) == 1
    assert notes[0][0] == "Warning"
    writes = len(sim.kube.writes())
    await sim.run(20)
    assert len(sim.kube.writes()) == writes


async def test_the_end_of_a_traceback_stays() -> None:
    sim = await a_running_simulator()
    report(sim, 150, TRACEBACK)
    await sim.run(10)
    message = apps_of(sim)["app-00000"]["message"]
    assert message.startswith("Traceback")
    assert message.endswith("ValueError: no weights\n")
    assert "characters left out" in message


async def test_a_few_tracebacks_stay_whole_without_a_log_line() -> None:
    sim = await a_running_simulator()
    report(sim, 5, TRACEBACK)
    await sim.run(10)
    assert apps_of(sim)["app-00000"]["message"] == TRACEBACK
    assert "StatusTruncated" not in sim.reasons()


async def test_a_status_that_is_refused_all_the_same_is_reported() -> None:
    sim = await a_running_simulator()

    def full(request: Request) -> errors.RaybusError | None:
        is_status = (request.kind, request.subresource) == (RAY_SERVICE.kind, "status")
        return errors.Rejected("etcdserver: request is too large") if is_status else None

    sim.kube.faults.append(full)
    report(sim, 1, "no weights")
    await sim.run(10)
    notes = [
        note
        for kind, reason, note in sim.kube.events()
        if (kind, reason) == ("Warning", "StatusNotWritten")
    ]
    assert notes == ["The status is not written: etcdserver: request is too large"]
    assert (RAY_SERVICE.kind, NAMESPACE, "demo") in sim.kube.objects
