"""A change is planned on what is stored, and planned again when the spec changes in between; over real HTTP on loopback."""

import copy
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from common import errors
from common.api.opaque import Body, Json
from common.kube.client import KubeClient
from common.kube.rest_config import RestConfig
from raybus_cli.changing import edits, execute
from raybus_cli.changing.execute import Order
from raybus_cli.planning.plan import UpgradePlan
from raybus_cli.planning.predict import PlanOutcome
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import NamedTarget
from support.builders import snapshots
from support.builders.snapshots import BLUE, NEW_IMAGE, a_cluster, a_config
from support.servers.loopback import served

DEMO = NamedTarget(kinds.SERVICE, "demo")


class Server:
    """An API server with a few objects by path; it executes a JSON patch, and refuses one with a failing test as the real one does."""

    def __init__(self, **objects: Body) -> None:
        self.objects = objects
        self.writes = 0
        self.rivals = 0
        """Number of dry runs that are followed by a change of another client."""

    async def answer(self, request: web.Request) -> web.Response:
        name = request.path.rpartition("/")[2]
        if name not in self.objects:
            found = [
                each
                for each in self.objects.values()
                if request.path.endswith(f"/{each['kind'].lower()}s")
            ]
            return web.json_response({"items": found})
        if request.method == "GET":
            return web.json_response(self.objects[name])
        patched = _patched(self.objects[name], await request.json())
        if patched is None:
            reason = "the server rejected our request due to an error in our request"
            return web.json_response({"message": reason, "reason": "Invalid"}, status=422)
        if "dryRun" not in request.query:
            self.objects[name] = patched
            self.writes += 1
        elif self.rivals:
            self.rivals -= 1
            self.objects[name]["metadata"]["generation"] += 1
        return web.json_response(patched)


def _patched(body: Body, operations: list[Json]) -> Body | None:
    changed: Any = copy.deepcopy(body)
    for each in operations:
        parts = [part.replace("~1", "/") for part in each["path"].split("/")[1:]]
        at: Any = changed
        for part in parts[:-1]:
            at = at[int(part) if part.isdecimal() else part]
        if each["op"] == "add":
            at[parts[-1]] = each["value"]
        elif at[parts[-1]] != each["value"]:
            return None
    return changed


def a_server() -> Server:
    service, cluster = snapshots.a_ready_service(), a_cluster(BLUE, a_config())
    lone = a_cluster("lone", {**a_config(), "upgradeStrategy": {"type": "Recreate"}})
    lone["metadata"] |= {"labels": {}, "generation": 1}
    return Server(demo=service, **{BLUE: cluster, "lone": lone})


@asynccontextmanager
async def reached(server: Server) -> AsyncGenerator[KubeClient]:
    app = web.Application()
    app.router.add_route("*", "/{rest:.*}", server.answer)
    async with served(app) as port:
        kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
        try:
            yield kube
        finally:
            await kube.close()


def an_order(*assignments: str, target: NamedTarget = DEMO, **fields: Any) -> Order:
    wanted = [edits.parse(each) for each in assignments or (f"*={NEW_IMAGE}",)]
    return Order(target=target, decide=lambda config: edits.set_images(config, wanted), **fields)


def _image(body: Body) -> str:
    config = body["spec"].get("rayClusterConfig") or body["spec"]
    return config["headGroupSpec"]["template"]["spec"]["containers"][0]["image"]


async def _changed(server: Server, order: Order) -> list[UpgradePlan]:
    shown: list[UpgradePlan] = []
    async with reached(server) as kube:
        await execute.change(kube, "default", order, shown.append)
    return shown


async def test_the_plan_is_shown_and_the_images_are_written() -> None:
    server = a_server()
    (plan,) = await _changed(server, an_order())
    assert (plan.outcome, _image(server.objects["demo"])) == (PlanOutcome.NEW_CLUSTER, NEW_IMAGE)


async def test_a_dry_run_writes_nothing() -> None:
    server = a_server()
    (plan,) = await _changed(server, an_order(is_dry_run=True))
    assert (plan.outcome, server.writes, _image(server.objects["demo"])) == (
        PlanOutcome.NEW_CLUSTER,
        0,
        snapshots.OLD_IMAGE,
    )


async def test_a_cluster_of_its_own_is_changed_by_the_same_patch() -> None:
    server = a_server()
    (plan,) = await _changed(server, an_order(target=NamedTarget(kinds.CLUSTER, "lone")))
    assert (plan.kind, plan.outcome, _image(server.objects["lone"])) == (
        "RayCluster",
        PlanOutcome.RECREATED,
        NEW_IMAGE,
    )


async def test_a_spec_that_changed_in_between_is_planned_again_and_the_same_plan_is_shown_once() -> (
    None
):
    server = a_server()
    server.rivals = 2
    assert len(await _changed(server, an_order())) == 1
    assert (server.writes, _image(server.objects["demo"])) == (1, NEW_IMAGE)


async def test_a_spec_that_changes_all_the_time_is_a_conflict() -> None:
    server = a_server()
    server.rivals = 100
    with pytest.raises(
        errors.Conflict, match=r"RayService demo changed 5 times .* nothing is changed"
    ):
        await _changed(server, an_order())
    assert server.writes == 0


async def test_a_refusal_of_the_same_spec_is_not_repeated() -> None:
    server = a_server()
    server.objects["demo"]["spec"]["managedBy"] = "kueue.x-k8s.io/multikueue"
    with pytest.raises(errors.Rejected, match=r"spec\.managedBy of RayService demo"):
        await _changed(server, an_order())


async def test_a_restart_that_would_make_no_new_cluster_is_refused() -> None:
    server = a_server()
    server.objects["demo"]["spec"]["upgradeStrategy"] = {"type": "None"}
    with pytest.raises(errors.Rejected, match="would make no new pod now"):
        await _changed(server, an_order(must_restart=True))
    assert server.writes == 0
