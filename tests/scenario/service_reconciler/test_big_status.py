"""A status has room for 1.5 MiB; what Ray Serve says of applications is cut to fit, and the user is told."""

from typing import Any

import msgspec

from common import errors
from common.api.opaque import Json
from common.kube.resources import RAY_SERVICE
from scenario.service_reconciler.world import World, a_running_world
from support.builders.ray_service import NAMESPACE
from support.fakes.kube import LARGEST, Request

TRACEBACK = (
    "Traceback (most recent call last):\n"
    + '  File "/app/main.py", line 1, in <module>\n' * 400
    + "ValueError: no weights\n"
)


def says(world: World, count: int, message: str, *, deployments: int = 1) -> None:
    """Let the active cluster's Serve have that many applications, which fail."""
    failed: Json = {"status": "DEPLOY_FAILED", "message": message}
    app = {
        **failed,
        "deployments": {f"Model{each}": {"status": "UNHEALTHY", "message": message} for each in range(deployments)},
    }
    head: Any = world.serve.head(f"{world.active}-head-svc")
    apps = {f"app-{number:05}": {**app, "deployed_app_config": {}} for number in range(count)}
    head.details = lambda: {"applications": apps, "proxies": {}}


def apps_of(world: World) -> dict[str, Json]:
    return world.status["activeServiceStatus"]["applicationStatuses"]


async def test_many_applications_leave_room_for_the_rest() -> None:
    world = await a_running_world()
    says(world, 150, TRACEBACK)
    await world.run(10)
    assert "app-00000" in apps_of(world)
    assert len(msgspec.json.encode(world.service)) < LARGEST // 2
    assert "application app-00000 is DEPLOY_FAILED" in world.message("Ready")
    told = [(kind, note) for kind, reason, note in world.kube.events() if reason == "StatusTruncated"]
    assert len(told) == 1
    assert told[0][0] == "Warning"
    writes = len(world.kube.writes())
    await world.run(20)
    assert len(world.kube.writes()) == writes


async def test_the_end_of_a_traceback_stays() -> None:
    world = await a_running_world()
    says(world, 150, TRACEBACK)
    await world.run(10)
    message = apps_of(world)["app-00000"]["message"]
    assert message.startswith("Traceback")
    assert message.endswith("ValueError: no weights\n")
    assert "characters left out" in message


async def test_a_few_tracebacks_stay_whole_and_nobody_is_told() -> None:
    world = await a_running_world()
    says(world, 5, TRACEBACK)
    await world.run(10)
    assert apps_of(world)["app-00000"]["message"] == TRACEBACK
    assert "StatusTruncated" not in world.reasons()


async def test_a_status_that_is_refused_all_the_same_is_told() -> None:
    world = await a_running_world()

    def full(request: Request) -> errors.RaybusError | None:
        is_status = (request.kind, request.subresource) == (RAY_SERVICE.kind, "status")
        return errors.Rejected("etcdserver: request is too large") if is_status else None

    world.kube.faults.append(full)
    says(world, 1, "no weights")
    await world.run(10)
    told = [note for kind, reason, note in world.kube.events() if (kind, reason) == ("Warning", "StatusNotWritten")]
    assert told == ["The status is not written: etcdserver: request is too large"]
    assert (RAY_SERVICE.kind, NAMESPACE, "demo") in world.kube.objects
