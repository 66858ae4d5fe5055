"""An upgrade in steps on a real API server with the real Gateway API: its defaults, its conflicts, its generations."""

import pytest

from common.api.opaque import Json
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER
from integration.service_reconciler.conftest import Live
from integration.service_reconciler.test_life import active, condition, is_complete, pending
from support.builders.ray_service import a_cluster_config, a_group, a_serve_config, a_strategy

pytestmark = [pytest.mark.integration]

STEPS: Json = a_strategy(surge=50, step=25, interval=1)


def config(image: str) -> Json:
    return a_cluster_config(
        a_group(minReplicas=1, replicas=1), image=image, enableInTreeAutoscaling=True
    )


def percent(status: Json) -> int:
    return status["pendingServiceStatus"].get("trafficRoutedPercent", 0)


async def weights(live: Live) -> dict[str, int]:
    route = (await live.found(HTTP_ROUTE))[0]
    return {
        each["name"].removesuffix("-serve-svc"): each["weight"]
        for each in route["spec"]["rules"][0]["backendRefs"]
    }


@pytest.mark.acceptance("rayservice", 39, 51, 59)
async def test_forward_back_and_forward_again(stepping: Live) -> None:
    live = stepping
    await live.apply(
        config=config("rayproject/ray:2.52.0"),
        upgradeStrategy=STEPS,
        rayClusterDeletionDelaySeconds=0,
    )
    blue = active(await live.until(is_complete, "it serves"))
    await live.until(
        lambda s: s["activeServiceStatus"].get("trafficRoutedPercent") == 100, "its route is there"
    )
    assert await weights(live) == {blue: 100}

    await live.patch(
        rayClusterConfig=config("rayproject/ray:2.53.0"), serveConfigV2=a_serve_config(message="v2")
    )
    await live.until(lambda s: percent(s) == 50, "half of the traffic has moved")
    await live.patch(
        rayClusterConfig=config("rayproject/ray:2.52.0"), serveConfigV2=a_serve_config()
    )
    await live.until(lambda s: condition(s, "RollbackInProgress")[0] == "True", "it is rolled back")
    back = await live.until(is_complete, "all is back")
    assert (active(back), pending(back)) == (blue, "")

    await live.patch(
        rayClusterConfig=config("rayproject/ray:2.53.0"), serveConfigV2=a_serve_config(message="v2")
    )
    done = await live.until(
        lambda s: is_complete(s) and active(s) != blue, "the new cluster serves"
    )
    green = active(done)
    await live.eventually(RAY_CLUSTER, [green])
    assert await weights(live) == {green: 100}
    assert await live.selected("demo-head-svc") == green
    assert {each["target_capacity"] for each in live.serve.head(f"{green}-head-svc").puts} == {
        0,
        50,
        100,
    }
