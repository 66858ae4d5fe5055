"""A status has room for 1.5 MiB; what Ray Serve reports of applications is cut to fit, and the cut is reported."""

from typing import Any

import msgspec

from common import errors
from common.api.opaque import Json
from common.kube.resources import RAY_SERVICE
from scenario.service_reconciler.harness import Harness, a_running_harness
from support.builders.ray_service import NAMESPACE
from support.fakes.kube import LARGEST, Request

TRACEBACK = (
    "Traceback (most recent call last):\n"
    + '  File "/app/main.py", line 1, in <module>\n' * 400
    + "ValueError: no weights\n"
)


def report(harness: Harness, count: int, message: str, *, deployments: int = 1) -> None:
    """Let the active cluster's Serve have that many declared applications, which fail."""
    names = [f"app-{number:05}" for number in range(count)]
    declared = [
        {"name": name, "import_path": "app:main", "route_prefix": f"/{name}"} for name in names
    ]
    harness.apply(serve=msgspec.json.encode({"applications": declared}).decode())
    failed: Json = {"status": "DEPLOY_FAILED", "message": message}
    app = {
        **failed,
        "deployments": {
            f"Model{each}": {"status": "UNHEALTHY", "message": message}
            for each in range(deployments)
        },
    }
    head: Any = harness.serve.head(f"{harness.active}-head-svc")
    apps = {name: {**app, "deployed_app_config": {}} for name in names}
    head.details = lambda: {"applications": apps, "proxies": {}}


def apps_of(harness: Harness) -> dict[str, Json]:
    return harness.status["activeServiceStatus"]["applicationStatuses"]


async def test_many_applications_leave_room_for_the_rest() -> None:
    harness = await a_running_harness()
    report(harness, 150, TRACEBACK)
    await harness.run(10)
    assert "app-00000" in apps_of(harness)
    assert len(msgspec.json.encode(harness.service)) < LARGEST // 2
    assert "application app-00000 is DEPLOY_FAILED" in harness.message("Ready")
    notes = [
        (kind, note) for kind, reason, note in harness.kube.events() if reason == "StatusTruncated"
    ]
    assert len(notes) == 1
    assert notes[0][0] == "Warning"
    writes = len(harness.kube.writes())
    await harness.run(20)
    assert len(harness.kube.writes()) == writes


async def test_the_end_of_a_traceback_stays() -> None:
    harness = await a_running_harness()
    report(harness, 150, TRACEBACK)
    await harness.run(10)
    message = apps_of(harness)["app-00000"]["message"]
    assert message.startswith("Traceback")
    assert message.endswith("ValueError: no weights\n")
    assert "characters left out" in message


async def test_a_few_tracebacks_stay_whole_without_a_log_line() -> None:
    harness = await a_running_harness()
    report(harness, 5, TRACEBACK)
    await harness.run(10)
    assert apps_of(harness)["app-00000"]["message"] == TRACEBACK
    assert "StatusTruncated" not in harness.reasons()


async def test_a_status_that_is_refused_all_the_same_is_reported() -> None:
    harness = await a_running_harness()

    def full(request: Request) -> errors.RaybusError | None:
        is_status = (request.kind, request.subresource) == (RAY_SERVICE.kind, "status")
        return errors.Rejected("etcdserver: request is too large") if is_status else None

    harness.kube.faults.append(full)
    report(harness, 1, "no weights")
    await harness.run(10)
    notes = [
        note
        for kind, reason, note in harness.kube.events()
        if (kind, reason) == ("Warning", "StatusNotWritten")
    ]
    assert notes == ["The status is not written: etcdserver: request is too large"]
    assert (RAY_SERVICE.kind, NAMESPACE, "demo") in harness.kube.objects
