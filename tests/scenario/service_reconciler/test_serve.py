"""Serve configs, proxies and endpoints, the bad ones above all; spec rayservice §11, §12, acceptance 69-78."""

from base64 import b64decode

import pytest

from common import errors, labels
from common.api.opaque import Body, Json
from common.kube.resources import ENDPOINT_SLICE, POD, RAY_CLUSTER, SECRET, SERVICE, SERVICE_ACCOUNT
from common.ray.dashboard_token import ACCOUNT
from support.builders.ray_service import a_cluster_config, a_serve_config
from support.fakes.kube import Request, refusing
from support.simulator.simulator import Simulator, a_running_simulator
from support.tables import cases

KUBERNETES_TOKENS = {"mode": "token", "enableK8sTokenAuth": True}
GREEN = a_cluster_config(image="rayproject/ray:2.53.0")


def puts(sim: Simulator, cluster: str) -> int:
    return len(sim.serve.head(f"{cluster}-head-svc").puts)


def set_endpoints(sim: Simulator, ready: list[str], *others: Json, number: int = 1) -> None:
    """Write an EndpointSlice of the Serve Service in place of the sim, with these pods ready."""
    sim.ray_clusters.freezes_endpoints = True
    body: Body = {
        "metadata": {
            "name": f"demo-serve-svc-{number}",
            "labels": {labels.SERVICE_NAME: "demo-serve-svc"},
        },
        "endpoints": [
            *(
                {"conditions": {"ready": True}, "targetRef": {"kind": "Pod", "uid": uid}}
                for uid in ready
            ),
            *others,
        ]
        or None,  # as the API server writes it
    }
    sim.kube.put(ENDPOINT_SLICE, body)


def head_label(sim: Simulator) -> str:
    return sim.kube.objects[(POD.kind, "default", f"{sim.active}-head")]["metadata"]["labels"][
        labels.SERVE
    ]


@pytest.mark.acceptance("rayservice", 69)
async def test_69_a_restart_at_rest_sends_nothing() -> None:
    sim = await a_running_simulator()
    writes = len(sim.kube.writes())
    sim.restart()
    await sim.run(20)
    assert puts(sim, sim.active) == 1
    assert len(sim.kube.writes()) == writes


@pytest.mark.long
@pytest.mark.acceptance("rayservice", 54)
async def test_54_an_hour_at_rest_costs_no_write_and_few_reads() -> None:
    sim = await a_running_simulator()
    head = sim.serve.head(f"{sim.active}-head-svc")
    writes, gets = len(sim.kube.requests), head.gets
    await sim.run(3600)
    assert len(sim.kube.requests) == writes
    assert head.gets - gets <= 3600 / 4


@pytest.mark.acceptance("rayservice", 70)
async def test_70_a_head_that_lost_its_applications_gets_them_again() -> None:
    sim = await a_running_simulator()
    sim.serve.head(f"{sim.active}-head-svc").restart()
    await sim.run(10)
    assert puts(sim, sim.active) == 2


async def test_a_config_of_which_only_the_answer_is_lost_is_no_problem_once_serve_reports_it() -> (
    None
):
    sim = await a_running_simulator()
    sim.serve.next_puts = ["lost"]
    sim.apply(serve=a_serve_config(message="v2"))
    await sim.run(3)
    assert "could not be sent" not in sim.message("Ready")
    assert puts(sim, sim.active) == 2, "it is not sent again"


@pytest.mark.acceptance("rayservice", 71)
async def test_71_an_application_without_a_name_is_shown_as_default() -> None:
    sim = await a_running_simulator(serve="applications: [{import_path: 'app:main'}]")
    await sim.run(1)
    assert list(sim.status["activeServiceStatus"]["applicationStatuses"]) == ["default"]


@pytest.mark.acceptance("rayservice", 72)
@pytest.mark.parametrize("behaviour", ["500", "silent"])
async def test_72_a_failing_dashboard_changes_nothing_and_recovery_is_seen_within_10_s(
    behaviour: str,
) -> None:
    sim = await a_running_simulator()
    head = sim.serve.head(f"{sim.active}-head-svc")
    shown = sim.status["activeServiceStatus"]["applicationStatuses"]
    head.behaviour = behaviour
    services, done = sim.kube.all(SERVICE), len(sim.kube.writes())
    await sim.run(60)
    assert sim.kube.all(SERVICE) == services
    assert sim.kube.writes()[done:] == ["update RayService/status demo"]  # the message alone
    assert sim.is_ready()
    assert sim.status["activeServiceStatus"]["applicationStatuses"] == shown
    assert sim.reasons().count("RayDashboardUnreachable") == 1
    for gone, condition in (
        (True, ("False", "ZeroServeEndpoints")),
        (False, ("True", "NonZeroServeEndpoints")),
    ):
        set_endpoints(sim, [] if gone else ["one"])
        await sim.reconcile()
        assert sim.condition("Ready") == condition
    head.behaviour = "ok"
    await sim.run(10)
    assert sim.message("Ready") == "Number of serve endpoints is greater than 0"


@pytest.mark.acceptance("rayservice", 73)
async def test_73_every_call_to_a_dashboard_has_the_token_of_the_clusters_secret() -> None:
    sim = Simulator()
    sim.apply(config=a_cluster_config(authOptions={"mode": "token"}))
    await sim.reconcile()
    secret: Body = {"metadata": {"name": sim.pending}, "data": {"auth_token": "c2VjcmV0"}}
    sim.kube.put(SECRET, secret)
    await sim.until(sim.is_complete)
    assert set(sim.serve.calls) == {("GET", "secret"), ("PUT", "secret")}


@pytest.mark.acceptance("rayservice", 12)
async def test_12_with_kubernetes_tokens_every_call_to_a_dashboard_has_an_issued_one_of_the_clusters_namespace() -> (
    None
):
    sim = Simulator()
    sim.kube.put(SERVICE_ACCOUNT, {"metadata": {"name": ACCOUNT}})
    sim.apply(config=a_cluster_config(rayVersion="2.55.0", authOptions=KUBERNETES_TOKENS))
    await sim.until(sim.is_complete)
    assert set(sim.serve.calls) == {("GET", "issued-default-1"), ("PUT", "issued-default-1")}
    await sim.run(3600)
    assert sim.is_ready()
    assert {token for _, token in sim.serve.calls} == {"issued-default-1", "issued-default-2"}, (
        "before its end"
    )


async def test_a_namespace_without_the_account_for_tokens_is_a_problem_that_names_it_until_it_is_created() -> (
    None
):
    sim = Simulator()
    sim.apply(config=a_cluster_config(rayVersion="2.55.0", authOptions=KUBERNETES_TOKENS))
    await sim.run(30)
    text = f"ServiceAccount default/{ACCOUNT} does not exist; create it, with the verb ray:write on rayclusters.ray.io"
    assert text in sim.message("Ready")
    assert sim.kube.events().count(("Warning", "RayDashboardUnauthorized", text)) == 1
    assert sim.serve.calls == [], "nothing is sent without a token"
    sim.kube.put(SERVICE_ACCOUNT, {"metadata": {"name": ACCOUNT}})
    await sim.until(sim.is_complete, seconds=60)


async def test_a_changed_secret_is_read_when_the_dashboard_refuses_the_old_token() -> None:
    sim = await a_harness_with_a_token("b25l")
    head = sim.serve.head(f"{sim.active}-head-svc")
    sim.kube.put(SECRET, {"metadata": {"name": sim.active}, "data": {"auth_token": "dHdv"}})
    await sim.run(30)
    assert sim.serve.calls[-1] == ("GET", "one"), "the head has the token of its start"
    head.expects = "two"
    await sim.run(10)
    assert sim.serve.calls[-1] == ("GET", "two")
    assert "RayDashboardUnauthorized" not in sim.reasons()


async def test_a_refused_token_is_reported_with_the_remedy_and_without_the_token_and_changes_nothing_else() -> (
    None
):
    sim = await a_harness_with_a_token("c2VjcmV0")
    sim.serve.head(f"{sim.active}-head-svc").expects = "another"
    services, reads = sim.kube.all(SERVICE), len(reads_of_secrets(sim))
    await sim.run(60)
    assert sim.is_ready()
    assert sim.kube.all(SERVICE) == services
    (note,) = (
        note for _, reason, note in sim.kube.events() if reason == "RayDashboardUnauthorized"
    )
    assert (
        f"refuses raybus: Ray read Secret default/{sim.active} when its pods started: restart them"
        in note
    )
    assert note.endswith("(403 Forbidden: Forbidden: Invalid authentication token)")
    assert len(reads_of_secrets(sim)) - reads <= 20, (
        "as often as a dashboard that does not answer is asked"
    )
    assert "secret" not in str([*sim.kube.events(), sim.status]).replace("Secret", "")


async def test_a_dashboard_that_asks_for_a_token_that_the_spec_does_not_is_a_problem_that_names_the_field() -> (
    None
):
    sim = await a_running_simulator()
    sim.serve.head(f"{sim.active}-head-svc").expects = "secret"
    await sim.run(30)
    assert any(
        "the RayCluster has no authOptions.mode: token (401" in note
        for _, _, note in sim.kube.events()
    )


def reads_of_secrets(sim: Simulator) -> list[Request]:
    return [each for each in sim.kube.requests if (each.verb, each.kind) == ("get", "Secret")]


async def a_harness_with_a_token(stored: str) -> Simulator:
    """Return a sim at rest with a cluster with a head that asks for the token in its Secret, given
    in base64.
    """
    sim = Simulator()
    sim.apply(config=a_cluster_config(authOptions={"mode": "token"}))
    await sim.reconcile()
    sim.kube.put(SECRET, {"metadata": {"name": sim.pending}, "data": {"auth_token": stored}})
    sim.serve.head(f"{sim.pending}-head-svc").expects = b64decode(stored).decode()
    await sim.until(sim.is_complete)
    return sim


@pytest.mark.acceptance("rayservice", 74)
async def test_74_an_excluded_head_is_labelled_false_without_a_question() -> None:
    sim = await a_running_simulator(excludeHeadPodFromServeSvc=True)
    await sim.run(30)
    assert (head_label(sim), sim.serve.checked, sim.status["numServeEndpoints"]) == ("false", [], 1)


async def test_excluding_the_head_of_a_running_service_takes_its_label_and_allowing_it_gives_it_back() -> (
    None
):
    sim = await a_running_simulator()
    await sim.run(6)
    assert head_label(sim) == "true"
    for is_excluded, label in ((True, "false"), (False, "true")):
        sim.apply(excludeHeadPodFromServeSvc=is_excluded)
        await sim.run(6)
        assert (head_label(sim), sim.pending) == (label, "")


@pytest.mark.acceptance("rayservice", 75)
async def test_75_a_proxy_must_fail_twice_and_recovers_at_once() -> None:
    sim = await a_running_simulator()
    await sim.run(2)
    head = sim.serve.head(f"{sim.active}-head-svc")
    assert head_label(sim) == "true"
    head.proxy_is_healthy = False
    await sim.run(5)
    assert head_label(sim) == "true"
    await sim.run(15)
    assert head_label(sim) == "false"
    notes = [note for _, reason, note in sim.kube.events() if reason == "UpdatedHeadPodServeLabel"]
    assert (
        notes[-1]
        == f'Updated the serve label to "false" for the Head Pod default/{sim.active}-head'
    )
    head.proxy_is_healthy = True
    await sim.run(6)
    assert head_label(sim) == "true"


@pytest.mark.acceptance("rayservice", 76)
async def test_76_one_pod_in_two_slices_counts_once_and_the_unready_and_nameless_not_at_all() -> (
    None
):
    sim = await a_running_simulator()
    nameless = {"conditions": {"ready": True}}
    unknown = {"conditions": {}, "targetRef": {"kind": "Pod", "uid": "two"}}
    unready = {"conditions": {"ready": False}, "targetRef": {"kind": "Pod", "uid": "three"}}
    for number in (1, 2):  # IPv4 and IPv6
        set_endpoints(sim, ["one"], nameless, unknown, unready, number=number)
    await sim.reconcile()
    assert sim.status["numServeEndpoints"] == 1


@pytest.mark.acceptance("rayservice", 77)
@pytest.mark.parametrize("slices", ["empty", "gone"])
async def test_77_without_endpoints_the_service_is_not_ready(slices: str) -> None:
    sim = await a_running_simulator()
    set_endpoints(sim, [])
    if slices == "gone":
        await sim.kube.delete(ENDPOINT_SLICE, "default", "demo-serve-svc-1")
    await sim.reconcile()
    assert sim.condition("Ready") == ("False", "ZeroServeEndpoints")
    assert sim.message("Ready") == "Number of serve endpoints dropped to 0"
    assert "serviceStatus" not in sim.status
    assert "numServeEndpoints" not in sim.status


BAD_CONFIGS = {
    "78: no YAML": (
        "applications: [",
        "cannot be read as YAML: line 2",
        "FailedToUpdateServeApplications",
    ),
    "no mapping": ("- a", "must be a mapping", "FailedToUpdateServeApplications"),
    "schema": ("apps: []", "Ray refused the Serve config: 400", "FailedToUpdateServeApplications"),
    "empty": ("  ", "spec.serveConfigV2 is empty", "EmptyServeConfig"),
    "no such import path": (
        a_serve_config(import_path="missing.app:main"),
        "ModuleNotFoundError: No module named 'missing.app'",
        "ServeApplicationNotRunning",
    ),
}


@pytest.mark.acceptance("rayservice", 78)
@cases(("config", "text", "reason"), BAD_CONFIGS)
async def test_78_a_bad_config_of_a_new_service_is_reported_within_15_s(
    config: str, text: str, reason: str
) -> None:
    sim = Simulator()
    sim.apply(serve=config)
    await sim.run(15)
    assert text in sim.message("Ready")
    assert sim.condition("Ready") == ("False", "Initializing")
    assert sim.reasons().count(reason) == 1


@pytest.mark.acceptance("rayservice", 78)
@cases(("config", "text", "reason"), BAD_CONFIGS)
async def test_78_a_bad_config_in_an_upgrade_is_reported_and_affects_no_other_service(
    config: str, text: str, reason: str
) -> None:
    sim = await a_running_simulator()
    active = sim.active
    sim.apply(name="other")
    await sim.until(lambda: sim.status_of("other").get("serviceStatus") == "Running")
    other = sim.status_of("other")["activeServiceStatus"]["rayClusterName"]
    sim.apply(name="other", config=GREEN)
    sim.apply(config=GREEN, serve=config)
    await sim.run(15)
    assert text in sim.message("UpgradeInProgress")
    assert sim.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")
    assert (sim.selected(), sim.is_ready(), puts(sim, active)) == (active, True, 1)
    assert sim.reasons().count(reason) == 1
    assert sim.status_of("other")["serviceStatus"] == "Running"
    assert sim.status_of("other")["activeServiceStatus"]["rayClusterName"] != other


@pytest.mark.acceptance("rayservice", 78)
@cases(("config", "text", "reason"), BAD_CONFIGS)
async def test_78_a_bad_config_is_no_hot_loop_and_a_fix_ends_it(
    config: str, text: str, reason: str
) -> None:
    sim = await a_running_simulator()
    sim.apply(serve=config)
    await sim.run(5)
    requests, attempts = len(sim.kube.writes()), sim.serve.attempts
    await sim.run(60)
    assert len(sim.kube.writes()) == requests
    assert sim.serve.attempts - attempts <= 6
    assert text in sim.message("Ready")
    sim.apply(serve=a_serve_config(message="fixed"))
    await sim.run(10)
    assert text not in sim.message("Ready")
    assert puts(sim, sim.active) >= 2


def a_broken_pod(sim: Simulator, cluster: str, *, reason: str) -> None:
    waiting = {"waiting": {"reason": reason, "message": "Back-off pulling image"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "ray-head", "state": waiting}]}
    sim.kube.set_status(POD, "default", f"{cluster}-head", status)


async def test_an_image_that_cannot_be_pulled_is_reported_once_whatever_kubelet_calls_it() -> None:
    sim = await a_running_simulator()
    sim.ray_clusters.holds_pods = True
    sim.apply(config=GREEN)
    await sim.run(1)
    for reason in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"):
        a_broken_pod(sim, sim.pending, reason=reason)
        await sim.run(2)
    text = f"pod {sim.pending}-head: the image rayproject/ray:2.53.0 cannot be pulled"
    assert sim.message("UpgradeInProgress") == f"Both active and pending Ray clusters exist: {text}"
    assert sim.reasons().count("PodsNotStarting") == 1


async def test_no_traffic_moves_before_a_pod_with_replicas_is_ready() -> None:
    sim = await a_running_simulator()
    blue = sim.active
    sim.apply(config=GREEN)
    await sim.until(lambda: bool(sim.pending))
    green = sim.pending
    await sim.run(1.5)
    key = (POD.kind, "default", f"{green}-worker")
    status = {
        **sim.kube.objects[key]["status"],
        "conditions": [{"type": "Ready", "status": "False"}],
    }
    sim.kube.set_status(POD, "default", f"{green}-worker", status)
    await sim.run(20)
    assert sim.selected() == blue
    sim.kube.set_status(
        POD,
        "default",
        f"{green}-worker",
        {**status, "conditions": [{"type": "Ready", "status": "True"}]},
    )
    await sim.reconcile()
    assert sim.selected() == green


async def test_a_config_edited_in_the_last_moment_is_deployed_before_traffic_moves() -> None:
    sim = await a_running_simulator()
    sim.apply(config=GREEN)
    await sim.until(lambda: bool(sim.pending))
    pending = sim.pending
    await sim.until(lambda: puts(sim, pending) == 1)
    await sim.run(1.5)
    sim.apply(config=GREEN, serve=a_serve_config(message="late"))
    await sim.until(lambda: sim.active == pending)
    head = sim.serve.head(f"{pending}-head-svc")
    assert head.puts[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == "late"
    assert head.details()["applications"]["app"]["status"] == "RUNNING"


async def test_what_a_cluster_was_given_is_recorded_on_it() -> None:
    sim = await a_running_simulator()
    for message in ("v2", "v3", "v2"):
        sim.apply(serve=a_serve_config(message=message))
        await sim.run(8)
    records = [
        body
        for (kind, _, _), body in sim.kube.objects.items()
        if kind == "ControllerRevision" and "serveConfigV2" in body["data"]
    ]
    newest = max(records, key=lambda each: each["revision"])
    assert len(records) == 2
    assert newest["data"]["serveConfigV2"] == a_serve_config(message="v2")
    assert newest["metadata"]["ownerReferences"][0]["kind"] == RAY_CLUSTER.kind


async def test_a_capacity_that_another_writer_left_behind_is_taken_back() -> None:
    sim = await a_running_simulator()
    head = sim.serve.head(f"{sim.active}-head-svc")
    head.deploy({**head.puts[-1], "target_capacity": 50})
    await sim.run(10)
    assert head.puts[-1].get("target_capacity") is None
    attempts = sim.serve.attempts
    await sim.run(30)
    assert sim.serve.attempts == attempts


async def test_a_capacity_that_the_config_itself_asks_for_stays() -> None:
    sim = await a_running_simulator(serve=f"{a_serve_config()}target_capacity: 50\n")
    attempts = sim.serve.attempts
    await sim.run(30)
    assert sim.serve.attempts == attempts
    assert sim.serve.head(f"{sim.active}-head-svc").details()["target_capacity"] == 50


@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_a_record_that_is_refused_is_reported_and_is_no_hot_loop(verb: str) -> None:
    sim = await a_running_simulator()
    refuse = refusing(verb, "ControllerRevision", errors.Forbidden("exceeded quota"))
    sim.kube.faults.append(refuse)
    attempts = sim.serve.attempts
    sim.apply(serve=a_serve_config(message="v2"))
    await sim.run(40)
    notes = [note for _, _, note in sim.kube.events() if "exceeded quota" in note]
    assert (sim.serve.attempts - attempts, len(notes)) == ((0, 1) if verb == "create" else (1, 1))
    assert ("cannot be recorded" in sim.message("Ready")) == (verb == "create")
    sim.kube.faults.remove(refuse)
    await sim.run(15)
    head = sim.serve.head(f"{sim.active}-head-svc")
    assert head.puts[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == "v2"
    assert sim.message("Ready") == "Number of serve endpoints is greater than 0"


async def test_a_head_that_lost_its_applications_gets_them_again_while_no_record_can_be_written() -> (
    None
):
    sim = await a_running_simulator()
    sim.kube.faults.append(
        lambda each: errors.Forbidden("no") if each.kind == "ControllerRevision" else None
    )
    sim.serve.head(f"{sim.active}-head-svc").restart()
    await sim.run(10)
    assert puts(sim, sim.active) == 2


async def test_89_a_dead_dashboard_of_the_active_cluster_does_not_hold_an_upgrade_up() -> None:
    sim = await a_running_simulator()
    blue = sim.active
    sim.serve.head(f"{blue}-head-svc").behaviour = "silent"
    sim.apply(config=GREEN)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=10)
    assert sim.kube.objects[(SERVICE.kind, "default", "demo-head-svc")]
