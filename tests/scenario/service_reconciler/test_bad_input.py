"""Unhappy paths beyond the numbered cases: sick applications, wrong answers, helping hands, clocks; spec rayservice §17."""

from datetime import timedelta

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.kube.resources import CONTROLLER_REVISION, RAY_CLUSTER, RAY_SERVICE, SERVICE
from scenario.service_reconciler.world import World, a_running_world
from support.builders.ray_service import NAME, NAMESPACE, a_cluster_config, a_serve_config
from support.fakes.kube import Request

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")
WITNESS = "applications:\n" + "".join(f"- {{name: app{number}, import_path: 'app:main'}}\n" for number in range(5))


def messages_sent(world: World, cluster: str) -> list[str]:
    sent = world.serve.head(f"{cluster}-head-svc").puts
    return [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in sent]


async def test_a_service_whose_end_the_watch_has_not_told_gets_no_clusters_once_the_api_server_does_not_know_it() -> (
    None
):
    world = await a_running_world()
    world.kube.requests.clear()
    del world.kube.objects[RAY_SERVICE.kind, NAMESPACE, NAME]
    for _ in range(3):  # the garbage collector takes what stands below it
        for name in world.clusters:
            await world.kube.delete(RAY_CLUSTER, NAMESPACE, name)
        await world.look()
    assert world.clusters == []
    assert len([each for each in world.kube.requests if (each.verb, each.kind) == ("create", "RayCluster")]) <= 1


async def test_a_cluster_that_the_bus_has_not_told_of_yet_is_not_taken_for_gone() -> None:
    world = await a_running_world()
    blue, before = world.active, len(world.kube.writes())
    world.restart()
    world.app.cache.forget(world.app.cache.all(RayCluster))
    await world.look()
    assert (world.clusters, world.active, world.pending, len(world.kube.writes())) == ([blue], blue, "", before)


async def test_one_slow_application_among_many_is_waited_for_and_the_config_is_sent_once() -> None:
    world = await a_running_world(serve=WITNESS)
    blue = world.active
    world.apply(serve=WITNESS, config=GREEN)
    await world.until(lambda: bool(world.pending))
    green = world.pending
    head = world.serve.head(f"{green}-head-svc")
    head.late = {"app3": 300.0}
    await world.run(290)
    shown = world.status["pendingServiceStatus"]["applicationStatuses"]
    assert {name: each["status"] for name, each in shown.items()} == {
        **dict.fromkeys(("app0", "app1", "app2", "app4"), "RUNNING"),
        "app3": "DEPLOYING",
    }
    assert (world.active, world.selected(), world.is_ready(), len(head.puts)) == (blue, blue, True, 1)
    await world.until(lambda: world.is_settled() and world.active == green, seconds=30)


@pytest.mark.parametrize("edit", ["Serve config alone", "with a new cluster"])
async def test_one_application_that_fails_is_named_and_the_others_are_shown_as_they_are(edit: str) -> None:
    failing = WITNESS.replace("app2, import_path: 'app:main'", "app2, import_path: 'missing.module:main'")
    world = await a_running_world(serve=WITNESS)
    blue = world.active
    config = a_cluster_config() if edit == "Serve config alone" else GREEN
    world.apply(serve=failing, config=config)
    await world.run(15)
    role, kind = ("active", "Ready") if edit == "Serve config alone" else ("pending", "UpgradeInProgress")
    shown = world.status[f"{role}ServiceStatus"]["applicationStatuses"]
    assert [each["status"] for _, each in sorted(shown.items())] == [
        *["RUNNING"] * 2,
        "DEPLOY_FAILED",
        *["RUNNING"] * 2,
    ]
    assert "application app2 is DEPLOY_FAILED" in world.message(kind)
    assert "No module named 'missing.module'" in world.message(kind)
    assert (world.active, world.is_ready()) == (blue, True)
    world.apply(serve=WITNESS, config=config)
    await world.until(lambda: world.is_settled() and "app2" not in world.message("Ready"), seconds=10)


async def test_a_dashboard_that_answers_for_the_other_cluster_is_not_believed_and_gets_nothing() -> None:
    world = await a_running_world()
    blue = world.active
    world.holds_pods = True
    world.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await world.run(1)
    green = world.pending
    own = world.serve.head(f"{green}-head-svc")
    world.serve.heads[f"{green}-head-svc"] = world.serve.head(f"{blue}-head-svc")
    world.holds_pods = False
    await world.run(60)
    assert (world.active, world.pending, world.selected(), messages_sent(world, blue)) == (blue, green, blue, ["v1"])
    text = f"the dashboard of RayCluster {green} answers for RayCluster {blue}"
    assert world.message("UpgradeInProgress").endswith(text)
    assert world.kube.events().count(("Warning", "RayDashboardUnreachable", text)) == 1
    world.serve.heads[f"{green}-head-svc"] = own
    await world.until(lambda: world.is_settled() and world.active == green, seconds=20)
    assert messages_sent(world, green) == ["v2"]


async def test_an_application_that_serve_does_not_list_yet_holds_the_switch() -> None:
    world = await a_running_world(serve=WITNESS)
    blue = world.active
    world.apply(serve=WITNESS, config=GREEN)
    await world.until(lambda: bool(world.pending) and bool(world.serve.head(f"{world.pending}-head-svc").puts))
    head = world.serve.head(f"{world.pending}-head-svc")
    head.hides = {each["name"] for each in head.puts[-1]["applications"][4:]}  # as if Serve took them in one by one
    await world.run(10)
    assert (world.active, world.selected()) == (blue, blue)
    head.hides = set()
    await world.until(lambda: world.is_settled() and world.active != blue)


async def test_an_active_cluster_that_somebody_deletes_is_replaced_and_the_outage_is_shown() -> None:
    world = await a_running_world()
    gone = world.active
    await world.kube.delete(RAY_CLUSTER, "default", gone)
    await world.run(1)
    assert world.condition("Ready") == ("False", "ZeroServeEndpoints")
    await world.until(lambda: world.is_settled() and world.active != gone, seconds=20)
    assert world.selected() == world.selected("demo-head-svc") == world.active
    assert world.clusters == [world.active]


async def test_a_pending_cluster_that_somebody_deletes_is_made_again_and_gets_its_config_again() -> None:
    world = await a_running_world()
    blue = world.active
    world.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await world.until(lambda: bool(world.pending) and bool(world.serve.head(f"{world.pending}-head-svc").puts))
    green = world.pending
    await world.kube.delete(RAY_CLUSTER, "default", green)
    assert not [each for each in world.kube.all(CONTROLLER_REVISION) if each["metadata"]["name"].startswith(green)]
    world.serve.head(f"{green}-head-svc").restart()
    await world.until(lambda: world.is_settled() and world.active != blue)
    assert (messages_sent(world, blue), messages_sent(world, world.active)) == (["v1"], ["v2", "v2"])


async def test_both_clusters_deleted_at_once_leave_one_new_cluster() -> None:
    world = await a_running_world()
    world.apply(config=GREEN)
    await world.until(lambda: bool(world.pending))
    for name in list(world.clusters):
        await world.kube.delete(RAY_CLUSTER, "default", name)
    await world.until(lambda: world.is_settled() and len(world.clusters) == 1)
    assert world.selected() == world.active


@pytest.mark.parametrize("name", ["demo-serve-svc", "demo-head-svc"])
async def test_a_service_that_somebody_deletes_comes_back(name: str) -> None:
    world = await a_running_world()
    await world.kube.delete(SERVICE, "default", name)
    await world.run(1)
    assert world.selected(name) == world.active


async def test_a_finalizer_that_somebody_takes_off_comes_back_beside_those_of_others() -> None:
    world = await a_running_world()
    stored = world.service
    world.kube.put(RAY_SERVICE, {**stored, "metadata": {**stored["metadata"], "finalizers": ["example.com/mine"]}})
    await world.look()
    assert world.service["metadata"]["finalizers"] == ["example.com/mine", "ray.io/rayservice-finalizer"]


@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("moment", ["starting", "upgrading", "cleaning up"])
async def test_a_clock_that_jumps_delays_nothing_by_more_than_its_own_time(hours: int, moment: str) -> None:
    world = World()
    world.apply(rayClusterDeletionDelaySeconds=20)
    if moment != "starting":
        await world.until(world.is_settled)
        world.apply(config=GREEN, rayClusterDeletionDelaySeconds=20)
        await world.until(lambda: bool(world.pending))
    if moment == "cleaning up":
        await world.until(world.is_settled)
        await world.run(5)
    world.jump(timedelta(hours=hours))
    await world.until(lambda: world.is_settled() and len(world.clusters) == 1, seconds=60)


async def test_the_time_limit_holds_although_the_clock_was_set_back() -> None:
    world = World()
    world.holds_pods = True
    world.apply(annotations={"ray.io/initializing-timeout": "20s"})
    await world.run(10)
    world.jump(timedelta(hours=-1))
    await world.until(lambda: world.condition("Ready") == ("False", "InitializingTimeout"), seconds=30)


async def test_a_config_that_could_not_be_sent_is_sent_again_although_the_clock_was_set_back() -> None:
    world = await a_running_world()
    head = world.serve.head(f"{world.active}-head-svc")

    def breaks_off(what: str) -> None:
        if what.startswith("put") and head.proxy_is_healthy:
            raise errors.Unavailable("connection reset")

    world.serve.on_put.append(breaks_off)
    world.apply(serve=a_serve_config(message="v2"))
    await world.run(1)
    assert "could not be sent: connection reset" in world.message("Ready")
    world.jump(timedelta(hours=-1))
    world.serve.on_put.remove(breaks_off)
    await world.run(10)
    assert messages_sent(world, world.active) == ["v1", "v2"]


async def test_a_cluster_that_quota_forbids_is_told_and_the_active_one_serves_on() -> None:
    world = await a_running_world()
    blue = world.active

    def full(request: Request) -> errors.RaybusError | None:
        is_creation = (request.verb, request.kind) == ("create", "RayCluster")
        return errors.Forbidden("exceeded quota: rayclusters") if is_creation else None

    world.kube.faults.append(full)
    world.apply(config=GREEN)
    await world.run(60)
    text = f"Failed to create the RayCluster default/{world.pending}: exceeded quota: rayclusters"
    assert world.kube.events().count(("Warning", "FailedToCreateRayCluster", text)) == 1
    assert (world.active, world.selected(), world.is_ready()) == (blue, blue, True)
    assert len([each for each in world.kube.writes() if each.startswith("create RayCluster")]) <= 62
    world.kube.faults.remove(full)
    await world.until(lambda: world.is_settled() and world.active != blue)


async def test_a_head_service_without_a_dashboard_port_is_told() -> None:
    world = await a_running_world()
    blue = world.active
    world.holds_pods = True
    world.apply(config=GREEN)
    await world.run(1)
    name = f"{world.pending}-head-svc"
    stored = world.kube.objects[(SERVICE.kind, "default", name)]
    world.kube.put(SERVICE, {**stored, "spec": {**stored["spec"], "ports": [{"name": "serve", "port": 8000}]}})
    world.holds_pods = False
    await world.run(15)
    assert world.message("UpgradeInProgress").endswith(f"dashboard port is not found in Service {name}")
    assert (world.active, world.selected(), world.is_ready()) == (blue, blue, True)


async def test_labels_and_annotations_of_the_service_are_the_clusters_too() -> None:
    world = World()
    world.apply(annotations={"team/contact": "a", "ray.io/initializing-timeout": "5m"})
    await world.look()
    meta = world.kube.objects[(RAY_CLUSTER.kind, "default", world.pending)]["metadata"]
    assert meta["labels"] == {"team": "a", labels.ORIGIN_NAME: "demo", labels.ORIGIN_KIND: "RayService"}
    assert {"team/contact": "a", "ray.io/initializing-timeout": "5m"}.items() <= meta["annotations"].items()


async def test_the_name_of_a_secret_that_cannot_exist_is_told_by_its_field_and_nothing_is_asked_for() -> None:
    world = World()
    options = {"mode": "token", "secretName": "../../tenant-b/secrets/prod-ray"}
    world.apply(config=a_cluster_config(authOptions=options))
    await world.look()
    problem = "authOptions.secretName is not the name of a Secret"
    assert problem in str(world.status["conditions"])
    assert any(problem in note for _, _, note in world.kube.events())
    assert world.clusters == []


async def test_a_status_that_names_a_cluster_by_a_path_is_survived() -> None:
    world = await a_running_world()
    active = {**world.status["activeServiceStatus"], "rayClusterName": "../../../other/rayclusters/prod"}
    world.kube.set_status(RAY_SERVICE, NAMESPACE, NAME, {**world.status, "activeServiceStatus": active})
    await world.until(lambda: "/" not in world.active and world.is_settled(), seconds=120)


@pytest.mark.parametrize(
    "spec",
    [{"rayClusterConfig": {"headGroupSpec": []}, "serveConfigV2": "x"}, {"rayClusterConfig": []}, [], None],
    ids=str,
)
async def test_a_spec_that_cannot_be_read_is_told_and_what_serves_is_looked_after(
    spec: Json | list[Json] | None,
) -> None:
    """A CRD of another age, or none of ours, may admit it."""
    world = await a_running_world()
    world.kube.put(RAY_SERVICE, {**world.service, "spec": spec})
    await world.run(5)
    assert world.condition("Ready") == ("False", "ValidationFailed")
    assert world.clusters == [world.active]
    world.apply(serve=a_serve_config(message="v2"))
    await world.until(world.is_settled)
