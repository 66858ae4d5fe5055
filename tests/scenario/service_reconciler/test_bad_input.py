"""Unhappy paths beyond the numbered cases: sick applications, wrong answers, helping hands, clocks; spec rayservice §17."""

from datetime import timedelta

import pytest

from common import errors, labels
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.kube.resources import CONTROLLER_REVISION, RAY_CLUSTER, RAY_SERVICE, SERVICE
from scenario.service_reconciler.harness import Harness, a_running_harness
from support.builders.ray_service import NAME, NAMESPACE, a_cluster_config, a_serve_config
from support.fakes.kube import Request

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")
RED = a_cluster_config(image="rayproject/ray:2.54.0")
WITNESS = "applications:\n" + "".join(
    f"- {{name: app{number}, import_path: 'app:main'}}\n" for number in range(5)
)


def messages_sent(harness: Harness, cluster: str) -> list[str]:
    sent = harness.serve.head(f"{cluster}-head-svc").puts
    return [put["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] for put in sent]


async def test_a_deleted_service_gets_no_clusters_before_the_watch_reports_its_deletion() -> None:
    harness = await a_running_harness()
    harness.kube.requests.clear()
    del harness.kube.objects[RAY_SERVICE.kind, NAMESPACE, NAME]
    for _ in range(3):  # the garbage collector takes what stands below it
        for name in harness.clusters:
            await harness.kube.delete(RAY_CLUSTER, NAMESPACE, name)
        await harness.reconcile()
    assert harness.clusters == []
    assert (
        len(
            [
                each
                for each in harness.kube.requests
                if (each.verb, each.kind) == ("create", "RayCluster")
            ]
        )
        <= 1
    )


async def test_a_cluster_that_the_bus_has_not_delivered_yet_is_not_taken_for_deleted() -> None:
    harness = await a_running_harness()
    blue, before = harness.active, len(harness.kube.writes())
    harness.restart()
    harness.app.cache.forget(harness.app.cache.list_all(RayCluster))
    await harness.reconcile()
    assert (harness.clusters, harness.active, harness.pending, len(harness.kube.writes())) == (
        [blue],
        blue,
        "",
        before,
    )


async def test_one_slow_application_among_many_is_waited_for_and_the_config_is_sent_once() -> None:
    harness = await a_running_harness(serve=WITNESS)
    blue = harness.active
    harness.apply(serve=WITNESS, config=GREEN)
    await harness.until(lambda: bool(harness.pending))
    green = harness.pending
    head = harness.serve.head(f"{green}-head-svc")
    head.late = {"app3": 300.0}
    await harness.run(290)
    shown = harness.status["pendingServiceStatus"]["applicationStatuses"]
    assert {name: each["status"] for name, each in shown.items()} == {
        **dict.fromkeys(("app0", "app1", "app2", "app4"), "RUNNING"),
        "app3": "DEPLOYING",
    }
    assert (harness.active, harness.selected(), harness.is_ready(), len(head.puts)) == (
        blue,
        blue,
        True,
        1,
    )
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=30)


@pytest.mark.parametrize("edit", ["Serve config alone", "with a new cluster"])
async def test_one_application_that_fails_is_named_and_the_others_are_shown_as_they_are(
    edit: str,
) -> None:
    failing = WITNESS.replace(
        "app2, import_path: 'app:main'", "app2, import_path: 'missing.module:main'"
    )
    harness = await a_running_harness(serve=WITNESS)
    blue = harness.active
    config = a_cluster_config() if edit == "Serve config alone" else GREEN
    harness.apply(serve=failing, config=config)
    await harness.run(15)
    role, kind = (
        ("active", "Ready") if edit == "Serve config alone" else ("pending", "UpgradeInProgress")
    )
    shown = harness.status[f"{role}ServiceStatus"]["applicationStatuses"]
    assert [each["status"] for _, each in sorted(shown.items())] == [
        *["RUNNING"] * 2,
        "DEPLOY_FAILED",
        *["RUNNING"] * 2,
    ]
    assert "application app2 is DEPLOY_FAILED" in harness.message(kind)
    assert "No module named 'missing.module'" in harness.message(kind)
    assert (harness.active, harness.is_ready()) == (blue, True)
    harness.apply(serve=WITNESS, config=config)
    await harness.until(
        lambda: harness.is_complete() and "app2" not in harness.message("Ready"), seconds=10
    )


async def test_a_dashboard_that_answers_for_the_other_cluster_fails_the_identity_check_and_gets_nothing() -> (
    None
):
    harness = await a_running_harness()
    blue = harness.active
    harness.holds_pods = True
    harness.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await harness.run(1)
    green = harness.pending
    own = harness.serve.head(f"{green}-head-svc")
    harness.serve.heads[f"{green}-head-svc"] = harness.serve.head(f"{blue}-head-svc")
    harness.holds_pods = False
    await harness.run(60)
    assert (harness.active, harness.pending, harness.selected(), messages_sent(harness, blue)) == (
        blue,
        green,
        blue,
        ["v1"],
    )
    text = f"the dashboard of RayCluster {green} answers for RayCluster {blue}"
    assert harness.message("UpgradeInProgress").endswith(text)
    assert harness.kube.events().count(("Warning", "RayDashboardUnreachable", text)) == 1
    harness.serve.heads[f"{green}-head-svc"] = own
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=20)
    assert messages_sent(harness, green) == ["v2"]


async def test_an_application_that_serve_does_not_list_yet_holds_the_switch() -> None:
    harness = await a_running_harness(serve=WITNESS)
    blue = harness.active
    harness.apply(serve=WITNESS, config=GREEN)
    await harness.until(
        lambda: (
            bool(harness.pending) and bool(harness.serve.head(f"{harness.pending}-head-svc").puts)
        )
    )
    head = harness.serve.head(f"{harness.pending}-head-svc")
    head.hides = {
        each["name"] for each in head.puts[-1]["applications"][4:]
    }  # as if Serve took them in one by one
    await harness.run(10)
    assert (harness.active, harness.selected()) == (blue, blue)
    head.hides = set()
    await harness.until(lambda: harness.is_complete() and harness.active != blue)


async def test_an_active_cluster_that_somebody_deletes_is_replaced_and_the_outage_is_shown() -> (
    None
):
    harness = await a_running_harness()
    gone = harness.active
    await harness.kube.delete(RAY_CLUSTER, "default", gone)
    await harness.run(1)
    assert harness.condition("Ready") == ("False", "ZeroServeEndpoints")
    await harness.until(lambda: harness.is_complete() and harness.active != gone, seconds=20)
    assert harness.selected() == harness.selected("demo-head-svc") == harness.active
    assert harness.clusters == [harness.active]


async def test_a_pending_cluster_that_somebody_deletes_is_made_again_and_gets_its_config_again() -> (
    None
):
    harness = await a_running_harness()
    blue = harness.active
    harness.apply(config=GREEN, serve=a_serve_config(message="v2"))
    await harness.until(
        lambda: (
            bool(harness.pending) and bool(harness.serve.head(f"{harness.pending}-head-svc").puts)
        )
    )
    green = harness.pending
    await harness.kube.delete(RAY_CLUSTER, "default", green)
    assert not [
        each
        for each in harness.kube.all(CONTROLLER_REVISION)
        if each["metadata"]["name"].startswith(green)
    ]
    harness.serve.head(f"{green}-head-svc").restart()
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    assert (messages_sent(harness, blue), messages_sent(harness, harness.active)) == (
        ["v1"],
        ["v2", "v2"],
    )


async def test_both_clusters_deleted_at_once_leave_one_new_cluster() -> None:
    harness = await a_running_harness()
    harness.apply(config=GREEN)
    await harness.until(lambda: bool(harness.pending))
    for name in list(harness.clusters):
        await harness.kube.delete(RAY_CLUSTER, "default", name)
    await harness.until(lambda: harness.is_complete() and len(harness.clusters) == 1)
    assert harness.selected() == harness.active


@pytest.mark.parametrize("name", ["demo-serve-svc", "demo-head-svc"])
async def test_a_service_that_somebody_deletes_comes_back(name: str) -> None:
    harness = await a_running_harness()
    await harness.kube.delete(SERVICE, "default", name)
    await harness.run(1)
    assert harness.selected(name) == harness.active


async def test_a_finalizer_that_somebody_takes_off_comes_back_beside_those_of_others() -> None:
    harness = await a_running_harness()
    stored = harness.service
    harness.kube.put(
        RAY_SERVICE,
        {**stored, "metadata": {**stored["metadata"], "finalizers": ["example.com/mine"]}},
    )
    await harness.reconcile()
    assert harness.service["metadata"]["finalizers"] == [
        "example.com/mine",
        "ray.io/rayservice-finalizer",
    ]


@pytest.mark.parametrize("hours", [-1, 1])
@pytest.mark.parametrize("moment", ["starting", "upgrading", "cleaning up"])
async def test_a_clock_that_jumps_delays_nothing_by_more_than_its_own_time(
    hours: int, moment: str
) -> None:
    harness = Harness()
    harness.apply(rayClusterDeletionDelaySeconds=20)
    if moment != "starting":
        await harness.until(harness.is_complete)
        harness.apply(config=GREEN, rayClusterDeletionDelaySeconds=20)
        await harness.until(lambda: bool(harness.pending))
    if moment == "cleaning up":
        await harness.until(harness.is_complete)
        await harness.run(5)
    harness.jump(timedelta(hours=hours))
    await harness.until(lambda: harness.is_complete() and len(harness.clusters) == 1, seconds=60)


async def test_the_time_limit_holds_although_the_clock_was_set_back() -> None:
    harness = Harness()
    harness.holds_pods = True
    harness.apply(annotations={"ray.io/initializing-timeout": "20s"})
    await harness.run(10)
    harness.jump(timedelta(hours=-1))
    await harness.until(
        lambda: harness.condition("Ready") == ("False", "InitializingTimeout"), seconds=30
    )


async def test_a_config_that_could_not_be_sent_is_sent_again_although_the_clock_was_set_back() -> (
    None
):
    harness = await a_running_harness()
    head = harness.serve.head(f"{harness.active}-head-svc")

    def breaks_off(what: str) -> None:
        if what.startswith("put") and head.proxy_is_healthy:
            raise errors.Unavailable("connection reset")

    harness.serve.on_put.append(breaks_off)
    harness.apply(serve=a_serve_config(message="v2"))
    await harness.run(1)
    assert "could not be sent: connection reset" in harness.message("Ready")
    harness.jump(timedelta(hours=-1))
    harness.serve.on_put.remove(breaks_off)
    await harness.run(10)
    assert messages_sent(harness, harness.active) == ["v1", "v2"]


async def test_a_cluster_that_quota_forbids_is_reported_and_the_active_one_serves_on() -> None:
    harness = await a_running_harness()
    blue = harness.active

    def full(request: Request) -> errors.RaybusError | None:
        is_creation = (request.verb, request.kind) == ("create", "RayCluster")
        return errors.Forbidden("exceeded quota: rayclusters") if is_creation else None

    harness.kube.faults.append(full)
    harness.apply(config=GREEN)
    await harness.run(60)
    text = f"Failed to create the RayCluster default/{harness.pending}: exceeded quota: rayclusters"
    assert harness.kube.events().count(("Warning", "FailedToCreateRayCluster", text)) == 1
    assert (harness.active, harness.selected(), harness.is_ready()) == (blue, blue, True)
    assert (
        len([each for each in harness.kube.writes() if each.startswith("create RayCluster")]) <= 62
    )
    harness.kube.faults.remove(full)
    await harness.until(lambda: harness.is_complete() and harness.active != blue)


async def test_a_head_service_without_a_dashboard_port_is_reported() -> None:
    harness = await a_running_harness()
    blue = harness.active
    harness.holds_pods = True
    harness.apply(config=GREEN)
    await harness.run(1)
    name = f"{harness.pending}-head-svc"
    stored = harness.kube.objects[(SERVICE.kind, "default", name)]
    harness.kube.put(
        SERVICE, {**stored, "spec": {**stored["spec"], "ports": [{"name": "serve", "port": 8000}]}}
    )
    harness.holds_pods = False
    await harness.run(15)
    assert harness.message("UpgradeInProgress").endswith(
        f"dashboard port is not found in Service {name}"
    )
    assert (harness.active, harness.selected(), harness.is_ready()) == (blue, blue, True)


async def test_labels_and_annotations_of_the_service_are_the_clusters_too() -> None:
    harness = Harness()
    harness.apply(annotations={"team/contact": "a", "ray.io/initializing-timeout": "5m"})
    await harness.reconcile()
    meta = harness.kube.objects[(RAY_CLUSTER.kind, "default", harness.pending)]["metadata"]
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
    harness = Harness()
    options = {"mode": "token", "secretName": "../../tenant-b/secrets/prod-ray"}
    harness.apply(config=a_cluster_config(authOptions=options))
    await harness.reconcile()
    problem = "authOptions.secretName is not the name of a Secret"
    assert problem in str(harness.status["conditions"])
    assert any(problem in note for _, _, note in harness.kube.events())
    assert harness.clusters == []


async def test_a_status_that_names_a_cluster_by_a_path_is_survived() -> None:
    harness = await a_running_harness()
    active = {
        **harness.status["activeServiceStatus"],
        "rayClusterName": "../../../other/rayclusters/prod",
    }
    harness.kube.set_status(
        RAY_SERVICE, NAMESPACE, NAME, {**harness.status, "activeServiceStatus": active}
    )
    await harness.until(lambda: "/" not in harness.active and harness.is_complete(), seconds=120)


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
    """A CRD of another age, or none of ours, may admit it."""
    harness = await a_running_harness()
    harness.kube.put(RAY_SERVICE, {**harness.service, "spec": spec})
    await harness.run(5)
    assert harness.condition("Ready") == ("False", "ValidationFailed")
    assert harness.clusters == [harness.active]
    harness.apply(serve=a_serve_config(message="v2"))
    await harness.until(harness.is_complete)
