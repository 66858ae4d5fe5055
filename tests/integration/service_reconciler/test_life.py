"""A RayService's life on a real API server: real defaults, real conflicts, real EndpointSlices, kwok's pods."""

import msgspec
import pytest

from common.api.opaque import Json
from common.kube.resources import CONTROLLER_REVISION, POD, RAY_CLUSTER, RAY_SERVICE, SERVICE
from integration.service_reconciler.conftest import TIMEOUT, Live
from service_reconciler.settings import Config
from support.builders.ray_service import a_cluster_config, a_serve_config
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]


def condition(status: Json, kind: str) -> tuple[str, str]:
    found = [each for each in status.get("conditions", []) if each["type"] == kind]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def active(status: Json) -> str:
    return status.get("activeServiceStatus", {}).get("rayClusterName", "")


def pending(status: Json) -> str:
    return status.get("pendingServiceStatus", {}).get("rayClusterName", "")


def is_complete(status: Json) -> bool:
    return condition(status, "Ready")[0] == "True" and bool(active(status)) and not pending(status)


async def test_created_upgraded_suspended_resumed_and_deleted(live: Live) -> None:
    created = await live.apply(rayClusterDeletionDelaySeconds=1)
    blue = active(await live.until(is_complete, "it serves"))
    assert (await live.service())["metadata"]["generation"] == created["metadata"]["generation"]
    assert await live.selected() == await live.selected("demo-head-svc") == blue

    config = a_cluster_config(image="rayproject/ray:2.53.0")
    await live.patch(rayClusterConfig=config, serveConfigV2=a_serve_config(message="v2"))
    upgrading = await live.until(lambda s: bool(pending(s)), "an upgrade begins")
    assert condition(upgrading, "UpgradeInProgress") == ("True", "BothActivePendingClustersExist")
    done = await live.until(
        lambda s: is_complete(s) and active(s) != blue, "it serves from the new cluster"
    )
    green = active(done)
    assert condition(done, "UpgradeInProgress") == ("False", "NoPendingCluster")
    assert await live.selected() == await live.selected("demo-head-svc") == green
    await live.eventually(RAY_CLUSTER, [green])
    assert len(live.serve.head(f"{blue}-head-svc").puts) == 1
    records = await live.found(CONTROLLER_REVISION)
    assert a_serve_config(message="v2") in [each["data"].get("serveConfigV2") for each in records]

    await live.patch(suspend=True)
    await live.until(lambda s: condition(s, "Suspended")[0] == "True", "it is suspended")
    await live.eventually(RAY_CLUSTER, [])
    await live.patch(suspend=False)
    await live.until(is_complete, "it serves again")

    await live.kube.delete(RAY_SERVICE, live.namespace, "demo")
    await live.eventually(RAY_CLUSTER, [])
    await live.eventually(RAY_SERVICE, [])


@pytest.mark.acceptance("rayservice", 2)
async def test_2_all_that_a_name_of_47_characters_leads_to_is_accepted(live: Live) -> None:
    name = "a" * 47
    await live.apply(name=name)

    async def serves() -> bool:
        body = msgspec.json.decode(await live.kube.get(RAY_SERVICE, live.namespace, name))
        return body.get("status", {}).get("serviceStatus") == "Running"

    await eventually_true(serves, within=TIMEOUT, what="it serves")
    (cluster,) = await live.names(RAY_CLUSTER)
    services = await live.names(SERVICE)
    assert {f"{name}-head-svc", f"{name}-serve-svc", f"{cluster}-head-svc"} <= set(services)
    assert max(map(len, (cluster, *services, *await live.names(POD)))) <= 63


@pytest.mark.parametrize("live", [Config(writes_zero_values=True)], indirect=True)
async def test_with_zero_values_the_first_write_makes_a_new_generation_as_kuberays_does(
    live: Live,
) -> None:
    created = await live.apply()
    seen = created["metadata"]["generation"] + 1
    status = await live.until(
        lambda s: is_complete(s) and s["observedGeneration"] == seen, "the next generation is seen"
    )
    assert (await live.service())["metadata"]["generation"] == seen
    assert await live.names(RAY_CLUSTER) == [active(status)]


async def test_the_defaults_of_the_real_server_are_no_change(live: Live) -> None:
    group = {
        "groupName": "small",
        "template": {
            "spec": {"containers": [{"name": "ray-worker", "image": "rayproject/ray:2.52.0"}]}
        },
        "replicas": 1,
    }
    await live.apply(config=a_cluster_config(group))
    before = await live.until(is_complete, "it serves")
    await live.patch(rayClusterDeletionDelaySeconds=30)
    status = await live.until(lambda s: s["observedGeneration"] == 2, "the edit is seen")
    assert (active(status), pending(status)) == (active(before), "")


async def test_a_bad_edit_shows_and_a_good_one_heals(live: Live) -> None:
    await live.apply()
    blue = active(await live.until(is_complete, "it serves"))
    await live.patch(upgradeStrategy={"type": "Foo"})
    bad = await live.until(
        lambda s: condition(s, "Ready")[1] == "ValidationFailed", "the bad edit is reported"
    )
    assert active(bad) == await live.selected() == blue
    assert "InvalidRayServiceSpec" in await live.reasons()
    await live.patch(upgradeStrategy={"type": "NewCluster"})
    await live.until(is_complete, "healed")
