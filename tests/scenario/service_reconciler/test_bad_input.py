"""Failures beyond the numbered cases: broken applications, wrong answers, manual changes, clocks.

Spec rayservice §17.
"""

from datetime import timedelta

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.kube.resources import CONTROLLER_REVISION, RAY_CLUSTER, RAY_SERVICE, SERVICE
from support.builders.ray_service import NAME, NAMESPACE, a_cluster_config, a_serve_config
from support.fakes.kube import refusing
from support.simulator.simulator import Simulator, a_running_simulator

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")
WITNESS = "applications:\n" + "".join(
    f"- {{name: app{number}, import_path: 'app:main'}}\n" for number in range(5)
)


def messages_sent(sim: Simulator, cluster: str) -> list[str]:
    sent = sim.serve.head(f"{cluster}-head-svc").puts
    return [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in sent]


async def test_a_deleted_service_gets_no_clusters_before_the_watch_reports_its_deletion() -> None:
    sim = await a_running_simulator()
    sim.kube.requests.clear()
    del sim.kube.objects[RAY_SERVICE.kind, NAMESPACE, NAME]
    for _ in range(3):  # the garbage collector takes what stands below it
        for name in sim.clusters:
            await sim.kube.delete(RAY_CLUSTER, NAMESPACE, name)
        await sim.reconcile()
    assert sim.clusters == []
    assert (
        len(
            [
                each
                for each in sim.kube.requests
                if (each.verb, each.kind) == ("create", "RayCluster")
            ]
        )
        <= 1
    )


async def test_a_cluster_that_the_bus_has_not_delivered_yet_is_not_taken_for_deleted() -> None:
    sim = await a_running_simulator()
    blue, before = sim.active, len(sim.kube.writes())
    sim.restart()
    sim.services["service"].parts.cache.forget(
        sim.services["service"].parts.cache.list_all(RayCluster)
    )
    await sim.reconcile()
    assert (sim.clusters, sim.active, sim.pending, len(sim.kube.writes())) == (
        [blue],
        blue,
        "",
        before,
    )


async def test_one_slow_application_among_many_is_waited_for_and_the_config_is_sent_once() -> None:
    sim = await a_running_simulator(serve=WITNESS)
    blue = sim.active
    sim.apply(serve=WITNESS, config=GREEN)
    await sim.until(lambda: bool(sim.pending))
    green = sim.pending
    head = sim.serve.head(f"{green}-head-svc")
    head.late = {"app3": 300.0}
    await sim.run(290)
    shown = sim.status["pendingServiceStatus"]["applicationStatuses"]
    assert {name: each["status"] for name, each in shown.items()} == {
        **dict.fromkeys(("app0", "app1", "app2", "app4"), "RUNNING"),
        "app3": "DEPLOYING",
    }
    assert (sim.active, sim.selected(), sim.is_ready(), len(head.puts)) == (blue, blue, True, 1)
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=30)


@pytest.mark.parametrize("edit", ["Serve config alone", "with a new cluster"])
async def test_one_application_that_fails_is_named_and_the_others_are_shown_as_they_are(
    edit: str,
) -> None:
    failing = WITNESS.replace(
        "app2, import_path: 'app:main'", "app2, import_path: 'missing.module:main'"
    )
    sim = await a_running_simulator(serve=WITNESS)
    blue = sim.active
    config = a_cluster_config() if edit == "Serve config alone" else GREEN
    sim.apply(serve=failing, config=config)
    await sim.run(15)
    role, kind = (
        ("active", "Ready") if edit == "Serve config alone" else ("pending", "UpgradeInProgress")
    )
    shown = sim.status[f"{role}ServiceStatus"]["applicationStatuses"]
    assert [each["status"] for _, each in sorted(shown.items())] == [
        *["RUNNING"] * 2,
        "DEPLOY_FAILED",
        *["RUNNING"] * 2,
    ]
    assert "application app2 is DEPLOY_FAILED" in sim.message(kind)
    assert "No module named 'missing.module'" in sim.message(kind)
    assert (sim.active, sim.is_ready()) == (blue, True)
    sim.apply(serve=WITNESS, config=config)
    await sim.until(lambda: sim.is_complete() and "app2" not in sim.message("Ready"), seconds=10)


async def test_a_dashboard_that_answers_for_the_other_cluster_fails_the_identity_check_and_gets_nothing() -> (
    None
):
    sim = await a_running_simulator()
    blue = sim.active
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await sim.run(1)
    green = sim.pending
    own = sim.serve.head(f"{green}-head-svc")
    sim.serve.heads[f"{green}-head-svc"] = sim.serve.head(f"{blue}-head-svc")
    sim.ray_clusters.holds_pods = False
    await sim.run(60)
    assert (sim.active, sim.pending, sim.selected(), messages_sent(sim, blue)) == (
        blue,
        green,
        blue,
        ["v1"],
    )
    text = f"the dashboard of RayCluster {green} answers for RayCluster {blue}"
    assert sim.message("UpgradeInProgress").endswith(text)
    assert sim.kube.events().count(("Warning", "RayDashboardUnreachable", text)) == 1
    sim.serve.heads[f"{green}-head-svc"] = own
    await sim.until(lambda: sim.is_complete() and sim.active == green, seconds=20)
    assert messages_sent(sim, green) == ["v2"]


async def test_an_application_that_serve_does_not_list_yet_holds_the_switch() -> None:
    sim = await a_running_simulator(serve=WITNESS)
    blue = sim.active
    sim.apply(serve=WITNESS, config=GREEN)
    await sim.until(
        lambda: bool(sim.pending) and bool(sim.serve.head(f"{sim.pending}-head-svc").puts)
    )
    head = sim.serve.head(f"{sim.pending}-head-svc")
    head.hides = {
        each["name"] for each in head.puts[-1]["applications"][4:]
    }  # as if Serve took them in one by one
    await sim.run(10)
    assert (sim.active, sim.selected()) == (blue, blue)
    head.hides = set()
    await sim.until(lambda: sim.is_complete() and sim.active != blue)


async def test_an_active_cluster_that_somebody_deletes_is_replaced_and_the_outage_is_shown() -> (
    None
):
    sim = await a_running_simulator()
    gone = sim.active
    await sim.kube.delete(RAY_CLUSTER, "default", gone)
    await sim.run(1)
    assert sim.condition("Ready") == ("False", "ZeroServeEndpoints")
    await sim.until(lambda: sim.is_complete() and sim.active != gone, seconds=20)
    assert sim.selected() == sim.selected("demo-head-svc") == sim.active
    assert sim.clusters == [sim.active]


async def test_a_pending_cluster_that_somebody_deletes_is_made_again_and_gets_its_config_again() -> (
    None
):
    sim = await a_running_simulator()
    blue = sim.active
    sim.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await sim.until(
        lambda: bool(sim.pending) and bool(sim.serve.head(f"{sim.pending}-head-svc").puts)
    )
    green = sim.pending
    await sim.kube.delete(RAY_CLUSTER, "default", green)
    assert not [
        each
        for each in sim.kube.all(CONTROLLER_REVISION)
        if each["metadata"]["name"].startswith(green)
    ]
    sim.serve.head(f"{green}-head-svc").restart()
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    assert (messages_sent(sim, blue), messages_sent(sim, sim.active)) == (["v1"], ["v2", "v2"])


async def test_both_clusters_deleted_at_once_leave_one_new_cluster() -> None:
    sim = await a_running_simulator()
    sim.apply(config=GREEN)
    await sim.until(lambda: bool(sim.pending))
    for name in list(sim.clusters):
        await sim.kube.delete(RAY_CLUSTER, "default", name)
    await sim.until(lambda: sim.is_complete() and len(sim.clusters) == 1)
    assert sim.selected() == sim.active


@pytest.mark.parametrize("name", ["demo-serve-svc", "demo-head-svc"])
async def test_a_service_that_somebody_deletes_comes_back(name: str) -> None:
    sim = await a_running_simulator()
    await sim.kube.delete(SERVICE, "default", name)
    await sim.run(1)
    assert sim.selected(name) == sim.active


async def test_a_finalizer_that_somebody_takes_off_comes_back_beside_those_of_others() -> None:
    sim = await a_running_simulator()
    stored = sim.service
    sim.kube.put(
        RAY_SERVICE,
        {**stored, "metadata": {**stored["metadata"], "finalizers": ["example.com/mine"]}},
    )
    await sim.reconcile()
    assert sim.service["metadata"]["finalizers"] == [
        "example.com/mine",
        "ray.io/rayservice-finalizer",
    ]


@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("moment", ["starting", "upgrading", "cleaning up"])
async def test_a_clock_that_jumps_delays_nothing_by_more_than_its_own_time(
    hours: int, moment: str
) -> None:
    sim = Simulator()
    sim.apply(rayClusterDeletionDelaySeconds=20)
    if moment != "starting":
        await sim.until(sim.is_complete)
        sim.apply(config=GREEN, rayClusterDeletionDelaySeconds=20)
        await sim.until(lambda: bool(sim.pending))
    if moment == "cleaning up":
        await sim.until(sim.is_complete)
        await sim.run(5)
    sim.jump(timedelta(hours=hours))
    await sim.until(lambda: sim.is_complete() and len(sim.clusters) == 1, seconds=60)


async def test_the_time_limit_holds_although_the_clock_was_set_back() -> None:
    sim = Simulator()
    sim.ray_clusters.holds_pods = True
    sim.apply(annotations={"ray.io/initializing-timeout": "20s"})
    await sim.run(10)
    sim.jump(timedelta(hours=-1))
    await sim.until(lambda: sim.condition("Ready") == ("False", "InitializingTimeout"), seconds=30)


async def test_a_config_that_could_not_be_sent_is_sent_again_although_the_clock_was_set_back() -> (
    None
):
    sim = await a_running_simulator()
    head = sim.serve.head(f"{sim.active}-head-svc")

    def breaks_off(what: str) -> None:
        if what.startswith("put") and head.proxy_is_healthy:
            raise errors.Unavailable("connection reset")

    sim.serve.on_put.append(breaks_off)
    sim.apply(serve=a_serve_config(message="v2"))
    await sim.run(1)
    assert "could not be sent: connection reset" in sim.message("Ready")
    sim.jump(timedelta(hours=-1))
    sim.serve.on_put.remove(breaks_off)
    await sim.run(10)
    assert messages_sent(sim, sim.active) == ["v1", "v2"]


async def test_a_cluster_that_quota_forbids_is_reported_and_the_active_one_serves_on() -> None:
    sim = await a_running_simulator()
    blue = sim.active
    full = refusing("create", "RayCluster", errors.Forbidden("exceeded quota: rayclusters"))
    sim.kube.faults.append(full)
    sim.apply(config=GREEN)
    await sim.run(60)
    text = f"Failed to create the RayCluster default/{sim.pending}: exceeded quota: rayclusters"
    assert sim.kube.events().count(("Warning", "FailedToCreateRayCluster", text)) == 1
    assert (sim.active, sim.selected(), sim.is_ready()) == (blue, blue, True)
    assert len([each for each in sim.kube.writes() if each.startswith("create RayCluster")]) <= 62
    sim.kube.faults.remove(full)
    await sim.until(lambda: sim.is_complete() and sim.active != blue)


async def test_a_head_service_without_a_dashboard_port_is_reported() -> None:
    sim = await a_running_simulator()
    blue = sim.active
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN)
    await sim.run(1)
    name = f"{sim.pending}-head-svc"
    stored = sim.kube.objects[(SERVICE.kind, "default", name)]
    sim.kube.put(
        SERVICE, {**stored, "spec": {**stored["spec"], "ports": [{"name": "serve", "port": 8000}]}}
    )
    sim.ray_clusters.holds_pods = False
    await sim.run(15)
    assert sim.message("UpgradeInProgress").endswith(
        f"dashboard port is not found in Service {name}"
    )
    assert (sim.active, sim.selected(), sim.is_ready()) == (blue, blue, True)


async def test_labels_and_annotations_of_the_service_are_the_clusters_too() -> None:
    sim = Simulator()
    sim.apply(annotations={"team/contact": "a", "ray.io/initializing-timeout": "5m"})
    await sim.reconcile()
    meta = sim.kube.objects[(RAY_CLUSTER.kind, "default", sim.pending)]["metadata"]
    assert meta["labels"] == {
        "team": "a",
        labels.ORIGIN_NAME: "demo",
        labels.ORIGIN_KIND: "RayService",
    }
    assert {"team/contact": "a", "ray.io/initializing-timeout": "5m"}.items() <= meta[
        "annotations"
    ].items()


async def test_the_name_of_a_secret_that_cannot_exist_is_reported_with_its_field_and_nothing_is_read() -> (
    None
):
    sim = Simulator()
    options = {"mode": "token", "secretName": "../../tenant-b/secrets/prod-ray"}
    sim.apply(config=a_cluster_config(authOptions=options))
    await sim.reconcile()
    problem = "authOptions.secretName is not the name of a Secret"
    assert problem in str(sim.status["conditions"])
    assert any(problem in note for _, _, note in sim.kube.events())
    assert sim.clusters == []


async def test_a_status_that_names_a_cluster_by_a_path_is_survived() -> None:
    sim = await a_running_simulator()
    active = {
        **sim.status["activeServiceStatus"],
        "rayClusterName": "../../../other/rayclusters/prod",
    }
    sim.kube.set_status(RAY_SERVICE, NAMESPACE, NAME, {**sim.status, "activeServiceStatus": active})
    await sim.until(lambda: "/" not in sim.active and sim.is_complete(), seconds=120)


@pytest.mark.parametrize(
    "spec",
    [
        {"rayClusterConfig": {"headGroupSpec": []}, "serveConfigV2": "x"},
        {"rayClusterConfig": []},
        [],
        None,
    ],
    ids=str,
)
async def test_an_undecodable_spec_is_reported_and_the_serving_cluster_is_still_reconciled(
    spec: Json | list[Json] | None,
) -> None:
    """An older CRD, or a foreign one, may accept such a spec."""
    sim = await a_running_simulator()
    sim.kube.put(RAY_SERVICE, {**sim.service, "spec": spec})
    await sim.run(5)
    assert sim.condition("Ready") == ("False", "ValidationFailed")
    assert sim.clusters == [sim.active]
    sim.apply(serve=a_serve_config(message="v2"))
    await sim.until(sim.is_complete)
