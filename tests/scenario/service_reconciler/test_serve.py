"""Serve configs, proxies and endpoints, the bad ones above all; spec rayservice §11, §12, acceptance 69-78."""

import pytest

from common import errors, labels
from common.api.opaque import Body, Json
from common.kube.resources import ENDPOINT_SLICE, POD, RAY_CLUSTER, SECRET, SERVICE
from scenario.service_reconciler.world import World, a_running_world
from support.builders.ray_service import a_cluster_config, a_serve_config
from support.fakes.kube import Request

GREEN = a_cluster_config(image="rayproject/ray:2.53.0")


def puts(world: World, cluster: str) -> int:
    return len(world.serve.head(f"{cluster}-head-svc").puts)


def set_endpoints(world: World, ready: list[str], *others: Json, number: int = 1) -> None:
    """Write an EndpointSlice of the Serve Service in place of the world, with these pods ready."""
    world.freezes_endpoints = True
    body: Body = {
        "metadata": {"name": f"demo-serve-svc-{number}", "labels": {labels.SERVICE_NAME: "demo-serve-svc"}},
        "endpoints": [
            *({"conditions": {"ready": True}, "targetRef": {"kind": "Pod", "uid": uid}} for uid in ready),
            *others,
        ]
        or None,  # as the API server writes it
    }
    world.kube.put(ENDPOINT_SLICE, body)


def head_label(world: World) -> str:
    return world.kube.objects[(POD.kind, "default", f"{world.active}-head")]["metadata"]["labels"][labels.SERVE]


@pytest.mark.acceptance("rayservice", 69)
async def test_69_a_restart_at_rest_sends_nothing() -> None:
    world = await a_running_world()
    writes = len(world.kube.writes())
    world.restart()
    await world.run(20)
    assert puts(world, world.active) == 1
    assert len(world.kube.writes()) == writes


@pytest.mark.long
@pytest.mark.acceptance("rayservice", 54)
async def test_54_an_hour_at_rest_costs_no_write_and_few_reads() -> None:
    world = await a_running_world()
    head = world.serve.head(f"{world.active}-head-svc")
    writes, gets = len(world.kube.requests), head.gets
    await world.run(3600)
    assert len(world.kube.requests) == writes
    assert head.gets - gets <= 3600 / 4


@pytest.mark.acceptance("rayservice", 70)
async def test_70_a_head_that_lost_its_applications_gets_them_again() -> None:
    world = await a_running_world()
    world.serve.head(f"{world.active}-head-svc").restart()
    await world.run(10)
    assert puts(world, world.active) == 2


async def test_a_config_of_which_only_the_answer_is_lost_is_no_problem_once_serve_reports_it() -> None:
    world = await a_running_world()
    world.serve.next_puts = ["lost"]
    world.apply(serve=a_serve_config(message="v2"))
    await world.run(3)
    assert "could not be sent" not in world.message("Ready")
    assert puts(world, world.active) == 2, "it is not sent again"


@pytest.mark.acceptance("rayservice", 71)
async def test_71_an_application_without_a_name_is_shown_as_default() -> None:
    world = await a_running_world(serve="applications: [{import_path: 'app:main'}]")
    await world.run(1)
    assert list(world.status["activeServiceStatus"]["applicationStatuses"]) == ["default"]


@pytest.mark.acceptance("rayservice", 72)
@pytest.mark.parametrize("behaviour", ["500", "silent"])
async def test_72_a_failing_dashboard_changes_nothing_and_recovery_is_seen_within_10_s(behaviour: str) -> None:
    world = await a_running_world()
    head = world.serve.head(f"{world.active}-head-svc")
    shown = world.status["activeServiceStatus"]["applicationStatuses"]
    head.behaviour = behaviour
    services, done = world.kube.all(SERVICE), len(world.kube.writes())
    await world.run(60)
    assert world.kube.all(SERVICE) == services
    assert world.kube.writes()[done:] == ["update RayService/status demo"]  # the message alone
    assert world.is_ready()
    assert world.status["activeServiceStatus"]["applicationStatuses"] == shown
    assert world.reasons().count("RayDashboardUnreachable") == 1
    for gone, condition in (
        (True, ("False", "ZeroServeEndpoints")),
        (False, ("True", "NonZeroServeEndpoints")),
    ):
        set_endpoints(world, [] if gone else ["one"])
        await world.look()
        assert world.condition("Ready") == condition
    head.behaviour = "ok"
    await world.run(10)
    assert world.message("Ready") == "Number of serve endpoints is greater than 0"


@pytest.mark.acceptance("rayservice", 73)
async def test_73_every_call_to_a_dashboard_has_the_token_of_the_clusters_secret() -> None:
    world = World()
    world.apply(config=a_cluster_config(authOptions={"mode": "token"}))
    await world.look()
    secret: Body = {"metadata": {"name": world.pending}, "data": {"auth_token": "c2VjcmV0"}}
    world.kube.put(SECRET, secret)
    await world.until(world.is_settled)
    assert set(world.serve.calls) == {("GET", "secret"), ("PUT", "secret")}


@pytest.mark.acceptance("rayservice", 74)
async def test_74_an_excluded_head_is_labelled_false_without_a_question() -> None:
    world = await a_running_world(excludeHeadPodFromServeSvc=True)
    await world.run(30)
    assert (head_label(world), world.serve.checked, world.status["numServeEndpoints"]) == ("false", [], 1)


async def test_excluding_the_head_of_a_running_service_takes_its_label_and_allowing_it_gives_it_back() -> None:
    world = await a_running_world()
    await world.run(6)
    assert head_label(world) == "true"
    for is_excluded, label in ((True, "false"), (False, "true")):
        world.apply(excludeHeadPodFromServeSvc=is_excluded)
        await world.run(6)
        assert (head_label(world), world.pending) == (label, "")


@pytest.mark.acceptance("rayservice", 75)
async def test_75_a_proxy_must_fail_twice_and_recovers_at_once() -> None:
    world = await a_running_world()
    await world.run(2)
    head = world.serve.head(f"{world.active}-head-svc")
    assert head_label(world) == "true"
    head.proxy_is_healthy = False
    await world.run(5)
    assert head_label(world) == "true"
    await world.run(15)
    assert head_label(world) == "false"
    notes = [note for _, reason, note in world.kube.events() if reason == "UpdatedHeadPodServeLabel"]
    assert notes[-1] == f'Updated the serve label to "false" for the Head Pod default/{world.active}-head'
    head.proxy_is_healthy = True
    await world.run(6)
    assert head_label(world) == "true"


@pytest.mark.acceptance("rayservice", 76)
async def test_76_one_pod_in_two_slices_counts_once_and_the_unready_and_nameless_not_at_all() -> None:
    world = await a_running_world()
    nameless = {"conditions": {"ready": True}}
    unknown = {"conditions": {}, "targetRef": {"kind": "Pod", "uid": "two"}}
    unready = {"conditions": {"ready": False}, "targetRef": {"kind": "Pod", "uid": "three"}}
    for number in (1, 2):  # IPv4 and IPv6
        set_endpoints(world, ["one"], nameless, unknown, unready, number=number)
    await world.look()
    assert world.status["numServeEndpoints"] == 1


@pytest.mark.acceptance("rayservice", 77)
@pytest.mark.parametrize("slices", ["empty", "gone"])
async def test_77_without_endpoints_the_service_is_not_ready(slices: str) -> None:
    world = await a_running_world()
    set_endpoints(world, [])
    if slices == "gone":
        await world.kube.delete(ENDPOINT_SLICE, "default", "demo-serve-svc-1")
    await world.look()
    assert world.condition("Ready") == ("False", "ZeroServeEndpoints")
    assert world.message("Ready") == "Number of serve endpoints dropped to 0"
    assert "serviceStatus" not in world.status
    assert "numServeEndpoints" not in world.status


BAD_CONFIGS = [
    pytest.param(
        "applications: [", "cannot be read as YAML: line 2", "FailedToUpdateServeApplications", id="78: no YAML"
    ),
    pytest.param("- a", "must be a mapping", "FailedToUpdateServeApplications", id="no mapping"),
    pytest.param("apps: []", "Ray refused the Serve config: 400", "FailedToUpdateServeApplications", id="schema"),
    pytest.param("  ", "spec.serveConfigV2 is empty", "EmptyServeConfig", id="empty"),
    pytest.param(
        a_serve_config(import_path="missing.app:main"),
        "ModuleNotFoundError: No module named 'missing.app'",
        "ServeApplicationNotRunning",
        id="no such import path",
    ),
]


@pytest.mark.acceptance("rayservice", 78)
@pytest.mark.parametrize(("config", "text", "reason"), BAD_CONFIGS)
async def test_78_a_bad_config_of_a_new_service_is_told_within_15_s(config: str, text: str, reason: str) -> None:
    world = World()
    world.apply(serve=config)
    await world.run(15)
    assert text in world.message("Ready")
    assert world.condition("Ready") == ("False", "Initializing")
    assert world.reasons().count(reason) == 1


@pytest.mark.acceptance("rayservice", 78)
@pytest.mark.parametrize(("config", "text", "reason"), BAD_CONFIGS)
async def test_78_a_bad_config_in_an_upgrade_is_told_and_hurts_nobody_else(config: str, text: str, reason: str) -> None:
    world = await a_running_world()
    active = world.active
    world.apply(name="other")
    await world.until(lambda: world.status_of("other").get("serviceStatus") == "Running")
    other = world.status_of("other")["activeServiceStatus"]["rayClusterName"]
    world.apply(name="other", config=GREEN)
    world.apply(config=GREEN, serve=config)
    await world.run(15)
    assert text in world.message("UpgradeInProgress")
    assert world.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")
    assert (world.selected(), world.is_ready(), puts(world, active)) == (active, True, 1)
    assert world.reasons().count(reason) == 1
    assert world.status_of("other")["serviceStatus"] == "Running"
    assert world.status_of("other")["activeServiceStatus"]["rayClusterName"] != other


@pytest.mark.acceptance("rayservice", 78)
@pytest.mark.parametrize(("config", "text", "reason"), BAD_CONFIGS)
async def test_78_a_bad_config_is_no_hot_loop_and_a_fix_ends_it(config: str, text: str, reason: str) -> None:
    world = await a_running_world()
    world.apply(serve=config)
    await world.run(5)
    requests, attempts = len(world.kube.writes()), world.serve.attempts
    await world.run(60)
    assert len(world.kube.writes()) == requests
    assert world.serve.attempts - attempts <= 6
    assert text in world.message("Ready")
    world.apply(serve=a_serve_config(message="fixed"))
    await world.run(10)
    assert text not in world.message("Ready")
    assert puts(world, world.active) >= 2


def a_broken_pod(world: World, cluster: str, *, reason: str) -> None:
    waiting = {"waiting": {"reason": reason, "message": "Back-off pulling image"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "ray-head", "state": waiting}]}
    world.kube.set_status(POD, "default", f"{cluster}-head", status)


async def test_an_image_that_cannot_be_pulled_is_told_once_whatever_kubelet_calls_it() -> None:
    world = await a_running_world()
    world.holds_pods = True
    world.apply(config=GREEN)
    await world.run(1)
    for reason in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"):
        a_broken_pod(world, world.pending, reason=reason)
        await world.run(2)
    text = f"pod {world.pending}-head: the image rayproject/ray:2.53.0 cannot be pulled"
    assert world.message("UpgradeInProgress") == f"Both active and pending Ray clusters exist: {text}"
    assert world.reasons().count("PodsNotStarting") == 1


async def test_no_traffic_moves_before_a_pod_with_replicas_is_ready() -> None:
    world = await a_running_world()
    blue = world.active
    world.apply(config=GREEN)
    await world.until(lambda: bool(world.pending))
    green = world.pending
    await world.run(1.5)
    key = (POD.kind, "default", f"{green}-worker")
    status = {**world.kube.objects[key]["status"], "conditions": [{"type": "Ready", "status": "False"}]}
    world.kube.set_status(POD, "default", f"{green}-worker", status)
    await world.run(20)
    assert world.selected() == blue
    world.kube.set_status(
        POD, "default", f"{green}-worker", {**status, "conditions": [{"type": "Ready", "status": "True"}]}
    )
    await world.look()
    assert world.selected() == green


async def test_a_config_edited_in_the_last_moment_is_deployed_before_traffic_moves() -> None:
    world = await a_running_world()
    world.apply(config=GREEN)
    await world.until(lambda: bool(world.pending))
    pending = world.pending
    await world.until(lambda: puts(world, pending) == 1)
    await world.run(1.5)
    world.apply(config=GREEN, serve=a_serve_config(message="late"))
    await world.until(lambda: world.active == pending)
    head = world.serve.head(f"{pending}-head-svc")
    assert head.puts[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == "late"
    assert head.details()["applications"]["app"]["status"] == "RUNNING"


async def test_what_a_cluster_was_given_is_recorded_on_it() -> None:
    world = await a_running_world()
    for message in ("v2", "v3", "v2"):
        world.apply(serve=a_serve_config(message=message))
        await world.run(8)
    records = [
        body
        for (kind, _, _), body in world.kube.objects.items()
        if kind == "ControllerRevision" and "serveConfigV2" in body["data"]
    ]
    newest = max(records, key=lambda each: each["revision"])
    assert len(records) == 2
    assert newest["data"]["serveConfigV2"] == a_serve_config(message="v2")
    assert newest["metadata"]["ownerReferences"][0]["kind"] == RAY_CLUSTER.kind


async def test_a_capacity_that_another_writer_left_behind_is_taken_back() -> None:
    world = await a_running_world()
    head = world.serve.head(f"{world.active}-head-svc")
    head.deploy({**head.puts[-1], "target_capacity": 50})
    await world.run(10)
    assert head.puts[-1].get("target_capacity") is None
    attempts = world.serve.attempts
    await world.run(30)
    assert world.serve.attempts == attempts


async def test_a_capacity_that_the_config_itself_asks_for_stays() -> None:
    world = await a_running_world(serve=f"{a_serve_config()}target_capacity: 50\n")
    attempts = world.serve.attempts
    await world.run(30)
    assert world.serve.attempts == attempts
    assert world.serve.head(f"{world.active}-head-svc").details()["target_capacity"] == 50


@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_a_record_that_is_refused_is_told_and_is_no_hot_loop(verb: str) -> None:
    world = await a_running_world()

    def refuse(request: Request) -> errors.RaybusError | None:
        is_refused = request.kind == "ControllerRevision" and request.verb == verb
        return errors.Forbidden("exceeded quota") if is_refused else None

    world.kube.faults.append(refuse)
    attempts = world.serve.attempts
    world.apply(serve=a_serve_config(message="v2"))
    await world.run(40)
    told = [note for _, _, note in world.kube.events() if "exceeded quota" in note]
    assert (world.serve.attempts - attempts, len(told)) == ((0, 1) if verb == "create" else (1, 1))
    assert ("cannot be recorded" in world.message("Ready")) == (verb == "create")
    world.kube.faults.remove(refuse)
    await world.run(15)
    head = world.serve.head(f"{world.active}-head-svc")
    assert head.puts[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == "v2"
    assert world.message("Ready") == "Number of serve endpoints is greater than 0"


async def test_a_head_that_lost_its_applications_gets_them_again_while_no_record_can_be_written() -> None:
    world = await a_running_world()
    world.kube.faults.append(lambda each: errors.Forbidden("no") if each.kind == "ControllerRevision" else None)
    world.serve.head(f"{world.active}-head-svc").restart()
    await world.run(10)
    assert puts(world, world.active) == 2


async def test_89_a_dead_dashboard_of_the_active_cluster_does_not_hold_an_upgrade_up() -> None:
    world = await a_running_world()
    blue = world.active
    world.serve.head(f"{blue}-head-svc").behaviour = "silent"
    world.apply(config=GREEN)
    await world.until(lambda: world.is_settled() and world.active != blue, seconds=10)
    assert world.kube.objects[(SERVICE.kind, "default", "demo-head-svc")]
