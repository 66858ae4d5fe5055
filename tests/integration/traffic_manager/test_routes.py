"""gRPC and a user's route on a real API server with the real Gateway API: its defaults must not make us write again and again."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest

from common import labels
from common.api.opaque import Body, Json
from common.kube.client import PatchRequest
from common.kube.resources import EVENT, GATEWAY, GRPC_ROUTE, HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE
from common.upgrade.traffic_record import ANNOTATION
from integration.service_reconciler.conftest import TIMEOUT, Live
from integration.service_reconciler.test_life import active, is_complete
from integration.traffic_manager.test_steps import STEPS
from support import server_side_apply
from support.builders.ray_service import a_cluster_config, a_group, a_serve_config
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]

OTHER: Json = {"name": "other", "port": 80, "weight": 7}
FILTER: Json = {
    "type": "RequestHeaderModifier",
    "requestHeaderModifier": {"set": [{"name": "x", "value": "1"}]},
}
MINE: Json = {
    "metadata": {
        "name": "mine",
        "labels": {"team": "a"},
        "annotations": {labels.ROUTE_PERMITS: "demo"},
    },
    "spec": {
        "parentRefs": [{"name": "shared"}],
        "hostnames": ["a.example"],
        "rules": [
            {
                "matches": [{"path": {"type": "PathPrefix", "value": "/docs"}}],
                "backendRefs": [OTHER],
            },
            {"filters": [FILTER], "timeouts": {"request": "30s"}},
        ],
    },
}


def config(image: str, **container: Any) -> Json:
    found = a_cluster_config(
        a_group(minReplicas=1, replicas=1), image=image, enableInTreeAutoscaling=True
    )
    found["headGroupSpec"]["template"]["spec"]["containers"][0] |= container
    return found


PORTS = [
    {"name": name, "containerPort": number}
    for name, number in (
        ("dashboard", 8265),
        ("gcs-server", 6379),
        ("serve", 8000),
        ("serve-grpc", 9000),
    )
]
RULE = "the rule with our backends"


async def until(live: Live, what: str, holds: Callable[[dict[str, Body]], bool]) -> dict[str, Body]:
    """Wait until something holds of all routes and Gateways, by kind; return them."""
    deadline = time.monotonic() + TIMEOUT
    while True:
        found = {
            kind.kind: each
            for kind in (GATEWAY, HTTP_ROUTE, GRPC_ROUTE)
            for each in await live.found(kind)
        }
        if holds(found):
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {TIMEOUT:g} s: {what}; {found}")
        await asyncio.sleep(0.05)


def refs(route: Body, *, rule: int = 0) -> list[tuple[str, int, int]]:
    return [
        (each["name"], each["port"], each["weight"])
        for each in route["spec"]["rules"][rule].get("backendRefs", [])
    ]


@pytest.mark.acceptance("rayservice", 87)
async def test_grpc_calls_follow_the_requests(stepping: Live) -> None:
    live = stepping
    blue_config = config("rayproject/ray:2.52.0", ports=PORTS)
    await live.apply(config=blue_config, upgradeStrategy=STEPS, rayClusterDeletionDelaySeconds=0)
    blue = active(await live.until(is_complete, "it serves"))
    found = await until(
        live,
        "both routes and both listeners",
        lambda f: len(f) == 3 and _listeners(f) == ["http", "grpc"],
    )
    assert refs(found[GRPC_ROUTE.kind]) == [(f"{blue}-serve-svc", 9000, 100)]
    assert refs(found[HTTP_ROUTE.kind]) == [(f"{blue}-serve-svc", 8000, 100)]
    await live.until(
        lambda s: s["activeServiceStatus"].get("trafficRoutedPercent") == 100,
        "its share is reported",
    )
    generations = [each["metadata"]["generation"] for each in found.values()]
    assert max(generations) <= 2, "what the API server adds is taken for a difference"

    green_config = config("rayproject/ray:2.53.0", ports=PORTS)
    await live.patch(rayClusterConfig=green_config, serveConfigV2=a_serve_config(message="v2"))
    green = active(
        await live.until(lambda s: is_complete(s) and active(s) != blue, "the new cluster serves")
    )
    wanted = [(f"{green}-serve-svc", 9000, 100)]
    await until(
        live, "all calls go to the new cluster", lambda f: refs(f[GRPC_ROUTE.kind]) == wanted
    )
    await live.eventually(RAY_CLUSTER, [green])


async def test_a_users_route_keeps_what_is_the_users(stepping: Live) -> None:
    live = stepping
    gateway: Json = {
        "gatewayClassName": "fast",
        "listeners": [{"name": "web", "protocol": "HTTP", "port": 80}],
    }
    api = {"apiVersion": GATEWAY.api_version}
    await live.kube.create(
        GATEWAY,
        live.namespace,
        {**api, "kind": GATEWAY.kind, "metadata": {"name": "shared"}, "spec": gateway},
    )
    await live.kube.create(HTTP_ROUTE, live.namespace, {**api, "kind": HTTP_ROUTE.kind, **MINE})
    annotations = {labels.HTTP_ROUTE: "mine"}
    await live.apply(
        config=config("rayproject/ray:2.52.0"),
        upgradeStrategy=STEPS,
        rayClusterDeletionDelaySeconds=0,
        annotations=annotations,
    )
    blue = active(await live.until(is_complete, "it serves"))
    await until(
        live, RULE, lambda f: refs(f[HTTP_ROUTE.kind], rule=1) == [(f"{blue}-serve-svc", 8000, 100)]
    )
    await live.until(
        lambda s: s["activeServiceStatus"].get("trafficRoutedPercent") == 100,
        "its share is reported",
    )

    await live.patch(
        rayClusterConfig=config("rayproject/ray:2.53.0"), serveConfigV2=a_serve_config(message="v2")
    )
    green = active(
        await live.until(lambda s: is_complete(s) and active(s) != blue, "the new cluster serves")
    )
    wanted = [(f"{green}-serve-svc", 8000, 100)]
    found = await until(live, RULE, lambda f: refs(f[HTTP_ROUTE.kind], rule=1) == wanted)
    mine = found[HTTP_ROUTE.kind]
    assert await live.names(GATEWAY) == ["shared"]
    assert await live.names(HTTP_ROUTE) == ["mine"]
    assert refs(mine) == [("other", 80, 7)]
    assert (mine["spec"]["hostnames"], mine["spec"]["rules"][1]["filters"]) == (
        ["a.example"],
        [FILTER],
    )
    assert mine["spec"]["rules"][1]["timeouts"] == {"request": "30s"}

    await live.kube.delete(RAY_SERVICE, live.namespace, "demo")
    await live.eventually(RAY_SERVICE, [])
    left = (await live.found(HTTP_ROUTE))[0]
    assert (refs(left), refs(left, rule=1)) == ([("other", 80, 7)], [])
    assert left["metadata"]["labels"] == {"team": "a"}
    assert ANNOTATION not in left["metadata"].get("annotations", {})


async def test_a_missing_route_is_reported_and_used_once_it_exists(stepping: Live) -> None:
    live = stepping
    await live.apply(
        config=config("rayproject/ray:2.52.0"),
        upgradeStrategy=STEPS,
        annotations={labels.HTTP_ROUTE: "mine"},
    )
    text = "HTTPRoute t-"
    await live.until(
        lambda s: any(text in each["message"] for each in s.get("conditions", [])), "it is named"
    )

    async def reported() -> int:
        return [each["reason"] for each in await live.found(EVENT)].count("HTTPRouteNotReady")

    await eventually_true(reported, within=TIMEOUT, what="an Event about it")
    api = {"apiVersion": HTTP_ROUTE.api_version, "kind": HTTP_ROUTE.kind}
    await live.kube.create(HTTP_ROUTE, live.namespace, {**api, **MINE})
    blue = active(await live.until(is_complete, "it serves"))
    await until(
        live, RULE, lambda f: refs(f[HTTP_ROUTE.kind], rule=1) == [(f"{blue}-serve-svc", 8000, 100)]
    )
    await live.kube.patch(
        RAY_SERVICE,
        live.namespace,
        "demo",
        PatchRequest(body={"metadata": {"annotations": {labels.HTTP_ROUTE: None}}}),
    )
    await until(live, "its own route", lambda f: len(f) == 2 and GATEWAY.kind in f)
    assert await reported() == 1


async def test_a_tool_that_owns_the_rules_is_named_and_one_that_leaves_them_out_is_none_the_worse(
    stepping: Live,
) -> None:
    live = stepping
    api = {"apiVersion": HTTP_ROUTE.api_version, "kind": HTTP_ROUTE.kind}
    metadata = {"name": "mine", "annotations": {labels.ROUTE_PERMITS: "demo"}}
    modest: Body = {**api, "metadata": metadata, "spec": {"parentRefs": [{"name": "shared"}]}}
    greedy: Body = {**modest, "spec": {**modest["spec"], "rules": [{"filters": [FILTER]}]}}

    async def sync(body: Body) -> None:
        await server_side_apply.apply(
            live.kube, HTTP_ROUTE, live.namespace, body, manager="argocd-controller"
        )

    await sync(modest)
    await live.apply(
        config=config("rayproject/ray:2.52.0"),
        upgradeStrategy=STEPS,
        annotations={labels.HTTP_ROUTE: "mine"},
    )
    blue = active(await live.until(is_complete, "it serves"))
    ours = [(f"{blue}-serve-svc", 8000, 100)]
    await until(live, RULE, lambda f: refs(f[HTTP_ROUTE.kind]) == ours)
    await sync(modest)
    assert refs((await live.found(HTTP_ROUTE))[0]) == ours
    assert "HTTPRouteOverwritten" not in await live.reasons()

    await sync(greedy)
    await until(live, RULE, lambda f: refs(f[HTTP_ROUTE.kind]) == ours)

    async def reported() -> list[str]:
        return [
            each["note"]
            for each in await live.found(EVENT)
            if each["reason"] == "HTTPRouteOverwritten"
        ]

    await eventually_true(reported, within=TIMEOUT, what="an Event names the tool")
    (note,) = await reported()
    assert "field manager argocd-controller replaced spec.rules" in note


def _listeners(found: dict[str, Body]) -> list[str]:
    return [each["name"] for each in found[GATEWAY.kind]["spec"]["listeners"]]
