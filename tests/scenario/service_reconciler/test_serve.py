"""Serve configs, proxies and endpoints, the bad ones above all; spec rayservice §11, §12, acceptance 69-78."""

from base64 import b64decode

import pytest

from common import errors, labels
from common.api.opaque import Body, Json
from common.kube.resources import ENDPOINT_SLICE, POD, RAY_CLUSTER, SECRET, SERVICE, SERVICE_ACCOUNT
from common.ray.dashboard_token import ACCOUNT
from scenario.service_reconciler.harness import Harness, a_running_harness
from support.builders.ray_service import a_cluster_config, a_serve_config
from support.fakes.kube import Request

KUBERNETES_TOKENS = {"mode": "token", "enableK8sTokenAuth": True}
GREEN = a_cluster_config(image="rayproject/ray:2.53.0")


def puts(harness: Harness, cluster: str) -> int:
    return len(harness.serve.head(f"{cluster}-head-svc").puts)


def set_endpoints(harness: Harness, ready: list[str], *others: Json, number: int = 1) -> None:
    """Write an EndpointSlice of the Serve Service in place of the harness, with these pods ready."""
    harness.freezes_endpoints = True
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
    harness.kube.put(ENDPOINT_SLICE, body)


def head_label(harness: Harness) -> str:
    return harness.kube.objects[(POD.kind, "default", f"{harness.active}-head")]["metadata"][
        "labels"
    ][labels.SERVE]


@pytest.mark.acceptance("rayservice", 69)
async def test_69_a_restart_at_rest_sends_nothing() -> None:
    harness = await a_running_harness()
    writes = len(harness.kube.writes())
    harness.restart()
    await harness.run(20)
    assert puts(harness, harness.active) == 1
    assert len(harness.kube.writes()) == writes


@pytest.mark.long
@pytest.mark.acceptance("rayservice", 54)
async def test_54_an_hour_at_rest_costs_no_write_and_few_reads() -> None:
    harness = await a_running_harness()
    head = harness.serve.head(f"{harness.active}-head-svc")
    writes, gets = len(harness.kube.requests), head.gets
    await harness.run(3600)
    assert len(harness.kube.requests) == writes
    assert head.gets - gets <= 3600 / 4


@pytest.mark.acceptance("rayservice", 70)
async def test_70_a_head_that_lost_its_applications_gets_them_again() -> None:
    harness = await a_running_harness()
    harness.serve.head(f"{harness.active}-head-svc").restart()
    await harness.run(10)
    assert puts(harness, harness.active) == 2


async def test_a_config_of_which_only_the_answer_is_lost_is_no_problem_once_serve_reports_it() -> (
    None
):
    harness = await a_running_harness()
    harness.serve.next_puts = ["lost"]
    harness.apply(serve=a_serve_config(message="v2"))
    await harness.run(3)
    assert "could not be sent" not in harness.message("Ready")
    assert puts(harness, harness.active) == 2, "it is not sent again"


@pytest.mark.acceptance("rayservice", 71)
async def test_71_an_application_without_a_name_is_shown_as_default() -> None:
    harness = await a_running_harness(serve="applications: [{import_path: 'app:main'}]")
    await harness.run(1)
    assert list(harness.status["activeServiceStatus"]["applicationStatuses"]) == ["default"]


@pytest.mark.acceptance("rayservice", 72)
@pytest.mark.parametrize("behaviour", ["500", "silent"])
async def test_72_a_failing_dashboard_changes_nothing_and_recovery_is_seen_within_10_s(
    behaviour: str,
) -> None:
    harness = await a_running_harness()
    head = harness.serve.head(f"{harness.active}-head-svc")
    shown = harness.status["activeServiceStatus"]["applicationStatuses"]
    head.behaviour = behaviour
    services, done = harness.kube.all(SERVICE), len(harness.kube.writes())
    await harness.run(60)
    assert harness.kube.all(SERVICE) == services
    assert harness.kube.writes()[done:] == ["update RayService/status demo"]  # the message alone
    assert harness.is_ready()
    assert harness.status["activeServiceStatus"]["applicationStatuses"] == shown
    assert harness.reasons().count("RayDashboardUnreachable") == 1
    for gone, condition in (
        (True, ("False", "ZeroServeEndpoints")),
        (False, ("True", "NonZeroServeEndpoints")),
    ):
        set_endpoints(harness, [] if gone else ["one"])
        await harness.reconcile()
        assert harness.condition("Ready") == condition
    head.behaviour = "ok"
    await harness.run(10)
    assert harness.message("Ready") == "Number of serve endpoints is greater than 0"


@pytest.mark.acceptance("rayservice", 73)
async def test_73_every_call_to_a_dashboard_has_the_token_of_the_clusters_secret() -> None:
    harness = Harness()
    harness.apply(config=a_cluster_config(authOptions={"mode": "token"}))
    await harness.reconcile()
    secret: Body = {"metadata": {"name": harness.pending}, "data": {"auth_token": "c2VjcmV0"}}
    harness.kube.put(SECRET, secret)
    await harness.until(harness.is_complete)
    assert set(harness.serve.calls) == {("GET", "secret"), ("PUT", "secret")}


@pytest.mark.acceptance("rayservice", 12)
async def test_12_with_kubernetes_tokens_every_call_to_a_dashboard_has_an_issued_one_of_the_clusters_namespace() -> (
    None
):
    harness = Harness()
    harness.kube.put(SERVICE_ACCOUNT, {"metadata": {"name": ACCOUNT}})
    harness.apply(config=a_cluster_config(rayVersion="2.55.0", authOptions=KUBERNETES_TOKENS))
    await harness.until(harness.is_complete)
    assert set(harness.serve.calls) == {("GET", "issued-default-1"), ("PUT", "issued-default-1")}
    await harness.run(3600)
    assert harness.is_ready()
    assert {token for _, token in harness.serve.calls} == {
        "issued-default-1",
        "issued-default-2",
    }, "before its end"


async def test_a_namespace_without_the_account_for_tokens_is_a_problem_that_names_it_until_it_is_created() -> (
    None
):
    harness = Harness()
    harness.apply(config=a_cluster_config(rayVersion="2.55.0", authOptions=KUBERNETES_TOKENS))
    await harness.run(30)
    text = f"ServiceAccount default/{ACCOUNT} does not exist; create it, with the verb ray:write on rayclusters.ray.io"
    assert text in harness.message("Ready")
    assert harness.kube.events().count(("Warning", "RayDashboardUnauthorized", text)) == 1
    assert harness.serve.calls == [], "nothing is sent without a token"
    harness.kube.put(SERVICE_ACCOUNT, {"metadata": {"name": ACCOUNT}})
    await harness.until(harness.is_complete, seconds=60)


async def test_a_changed_secret_is_read_when_the_dashboard_refuses_the_old_token() -> None:
    harness = await a_harness_with_a_token("b25l")
    head = harness.serve.head(f"{harness.active}-head-svc")
    harness.kube.put(SECRET, {"metadata": {"name": harness.active}, "data": {"auth_token": "dHdv"}})
    await harness.run(30)
    assert harness.serve.calls[-1] == ("GET", "one"), "the head has the token of its start"
    head.expects = "two"
    await harness.run(10)
    assert harness.serve.calls[-1] == ("GET", "two")
    assert "RayDashboardUnauthorized" not in harness.reasons()


async def test_a_refused_token_is_reported_with_the_remedy_and_without_the_token_and_changes_nothing_else() -> (
    None
):
    harness = await a_harness_with_a_token("c2VjcmV0")
    harness.serve.head(f"{harness.active}-head-svc").expects = "another"
    services, reads = harness.kube.all(SERVICE), len(reads_of_secrets(harness))
    await harness.run(60)
    assert harness.is_ready()
    assert harness.kube.all(SERVICE) == services
    (note,) = (
        note for _, reason, note in harness.kube.events() if reason == "RayDashboardUnauthorized"
    )
    assert (
        f"refuses raybus: Ray read Secret default/{harness.active} when its pods started: restart them"
        in note
    )
    assert note.endswith("(403 Forbidden: Forbidden: Invalid authentication token)")
    assert len(reads_of_secrets(harness)) - reads <= 20, (
        "as often as a dashboard that does not answer is asked"
    )
    assert "secret" not in str([*harness.kube.events(), harness.status]).replace("Secret", "")


async def test_a_dashboard_that_asks_for_a_token_that_the_spec_does_not_is_a_problem_that_names_the_field() -> (
    None
):
    harness = await a_running_harness()
    harness.serve.head(f"{harness.active}-head-svc").expects = "secret"
    await harness.run(30)
    assert any(
        "the RayCluster has no authOptions.mode: token (401" in note
        for _, _, note in harness.kube.events()
    )


def reads_of_secrets(harness: Harness) -> list[Request]:
    return [each for each in harness.kube.requests if (each.verb, each.kind) == ("get", "Secret")]


async def a_harness_with_a_token(stored: str) -> Harness:
    """Return a harness at rest with a cluster with a head that asks for the token in its Secret, given in base64."""
    harness = Harness()
    harness.apply(config=a_cluster_config(authOptions={"mode": "token"}))
    await harness.reconcile()
    harness.kube.put(
        SECRET, {"metadata": {"name": harness.pending}, "data": {"auth_token": stored}}
    )
    harness.serve.head(f"{harness.pending}-head-svc").expects = b64decode(stored).decode()
    await harness.until(harness.is_complete)
    return harness


@pytest.mark.acceptance("rayservice", 74)
async def test_74_an_excluded_head_is_labelled_false_without_a_question() -> None:
    harness = await a_running_harness(excludeHeadPodFromServeSvc=True)
    await harness.run(30)
    assert (head_label(harness), harness.serve.checked, harness.status["numServeEndpoints"]) == (
        "false",
        [],
        1,
    )


async def test_excluding_the_head_of_a_running_service_takes_its_label_and_allowing_it_gives_it_back() -> (
    None
):
    harness = await a_running_harness()
    await harness.run(6)
    assert head_label(harness) == "true"
    for is_excluded, label in ((True, "false"), (False, "true")):
        harness.apply(excludeHeadPodFromServeSvc=is_excluded)
        await harness.run(6)
        assert (head_label(harness), harness.pending) == (label, "")


@pytest.mark.acceptance("rayservice", 75)
async def test_75_a_proxy_must_fail_twice_and_recovers_at_once() -> None:
    harness = await a_running_harness()
    await harness.run(2)
    head = harness.serve.head(f"{harness.active}-head-svc")
    assert head_label(harness) == "true"
    head.proxy_is_healthy = False
    await harness.run(5)
    assert head_label(harness) == "true"
    await harness.run(15)
    assert head_label(harness) == "false"
    notes = [
        note for _, reason, note in harness.kube.events() if reason == "UpdatedHeadPodServeLabel"
    ]
    assert (
        notes[-1]
        == f'Updated the serve label to "false" for the Head Pod default/{harness.active}-head'
    )
    head.proxy_is_healthy = True
    await harness.run(6)
    assert head_label(harness) == "true"


@pytest.mark.acceptance("rayservice", 76)
async def test_76_one_pod_in_two_slices_counts_once_and_the_unready_and_nameless_not_at_all() -> (
    None
):
    harness = await a_running_harness()
    nameless = {"conditions": {"ready": True}}
    unknown = {"conditions": {}, "targetRef": {"kind": "Pod", "uid": "two"}}
    unready = {"conditions": {"ready": False}, "targetRef": {"kind": "Pod", "uid": "three"}}
    for number in (1, 2):  # IPv4 and IPv6
        set_endpoints(harness, ["one"], nameless, unknown, unready, number=number)
    await harness.reconcile()
    assert harness.status["numServeEndpoints"] == 1


@pytest.mark.acceptance("rayservice", 77)
@pytest.mark.parametrize("slices", ["empty", "gone"])
async def test_77_without_endpoints_the_service_is_not_ready(slices: str) -> None:
    harness = await a_running_harness()
    set_endpoints(harness, [])
    if slices == "gone":
        await harness.kube.delete(ENDPOINT_SLICE, "default", "demo-serve-svc-1")
    await harness.reconcile()
    assert harness.condition("Ready") == ("False", "ZeroServeEndpoints")
    assert harness.message("Ready") == "Number of serve endpoints dropped to 0"
    assert "serviceStatus" not in harness.status
    assert "numServeEndpoints" not in harness.status


BAD_CONFIGS = [
    pytest.param(
        "applications: [",
        "cannot be read as YAML: line 2",
        "FailedToUpdateServeApplications",
        id="78: no YAML",
    ),
    pytest.param("- a", "must be a mapping", "FailedToUpdateServeApplications", id="no mapping"),
    pytest.param(
        "apps: []",
        "Ray refused the Serve config: 400",
        "FailedToUpdateServeApplications",
        id="schema",
    ),
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
async def test_78_a_bad_config_of_a_new_service_is_reported_within_15_s(
    config: str, text: str, reason: str
) -> None:
    harness = Harness()
    harness.apply(serve=config)
    await harness.run(15)
    assert text in harness.message("Ready")
    assert harness.condition("Ready") == ("False", "Initializing")
    assert harness.reasons().count(reason) == 1


@pytest.mark.acceptance("rayservice", 78)
@pytest.mark.parametrize(("config", "text", "reason"), BAD_CONFIGS)
async def test_78_a_bad_config_in_an_upgrade_is_reported_and_affects_no_other_service(
    config: str, text: str, reason: str
) -> None:
    harness = await a_running_harness()
    active = harness.active
    harness.apply(name="other")
    await harness.until(lambda: harness.status_of("other").get("serviceStatus") == "Running")
    other = harness.status_of("other")["activeServiceStatus"]["rayClusterName"]
    harness.apply(name="other", config=GREEN)
    harness.apply(config=GREEN, serve=config)
    await harness.run(15)
    assert text in harness.message("UpgradeInProgress")
    assert harness.condition("UpgradeInProgress") == ("True", "BothActivePendingClustersExist")
    assert (harness.selected(), harness.is_ready(), puts(harness, active)) == (active, True, 1)
    assert harness.reasons().count(reason) == 1
    assert harness.status_of("other")["serviceStatus"] == "Running"
    assert harness.status_of("other")["activeServiceStatus"]["rayClusterName"] != other


@pytest.mark.acceptance("rayservice", 78)
@pytest.mark.parametrize(("config", "text", "reason"), BAD_CONFIGS)
async def test_78_a_bad_config_is_no_hot_loop_and_a_fix_ends_it(
    config: str, text: str, reason: str
) -> None:
    harness = await a_running_harness()
    harness.apply(serve=config)
    await harness.run(5)
    requests, attempts = len(harness.kube.writes()), harness.serve.attempts
    await harness.run(60)
    assert len(harness.kube.writes()) == requests
    assert harness.serve.attempts - attempts <= 6
    assert text in harness.message("Ready")
    harness.apply(serve=a_serve_config(message="fixed"))
    await harness.run(10)
    assert text not in harness.message("Ready")
    assert puts(harness, harness.active) >= 2


def a_broken_pod(harness: Harness, cluster: str, *, reason: str) -> None:
    waiting = {"waiting": {"reason": reason, "message": "Back-off pulling image"}}
    status = {"phase": "Pending", "containerStatuses": [{"name": "ray-head", "state": waiting}]}
    harness.kube.set_status(POD, "default", f"{cluster}-head", status)


async def test_an_image_that_cannot_be_pulled_is_reported_once_whatever_kubelet_calls_it() -> None:
    harness = await a_running_harness()
    harness.holds_pods = True
    harness.apply(config=GREEN)
    await harness.run(1)
    for reason in ("ErrImagePull", "ImagePullBackOff", "ErrImagePull", "ImagePullBackOff"):
        a_broken_pod(harness, harness.pending, reason=reason)
        await harness.run(2)
    text = f"pod {harness.pending}-head: the image rayproject/ray:2.53.0 cannot be pulled"
    assert (
        harness.message("UpgradeInProgress")
        == f"Both active and pending Ray clusters exist: {text}"
    )
    assert harness.reasons().count("PodsNotStarting") == 1


async def test_no_traffic_moves_before_a_pod_with_replicas_is_ready() -> None:
    harness = await a_running_harness()
    blue = harness.active
    harness.apply(config=GREEN)
    await harness.until(lambda: bool(harness.pending))
    green = harness.pending
    await harness.run(1.5)
    key = (POD.kind, "default", f"{green}-worker")
    status = {
        **harness.kube.objects[key]["status"],
        "conditions": [{"type": "Ready", "status": "False"}],
    }
    harness.kube.set_status(POD, "default", f"{green}-worker", status)
    await harness.run(20)
    assert harness.selected() == blue
    harness.kube.set_status(
        POD,
        "default",
        f"{green}-worker",
        {**status, "conditions": [{"type": "Ready", "status": "True"}]},
    )
    await harness.reconcile()
    assert harness.selected() == green


async def test_a_config_edited_in_the_last_moment_is_deployed_before_traffic_moves() -> None:
    harness = await a_running_harness()
    harness.apply(config=GREEN)
    await harness.until(lambda: bool(harness.pending))
    pending = harness.pending
    await harness.until(lambda: puts(harness, pending) == 1)
    await harness.run(1.5)
    harness.apply(config=GREEN, serve=a_serve_config(message="late"))
    await harness.until(lambda: harness.active == pending)
    head = harness.serve.head(f"{pending}-head-svc")
    assert head.puts[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == "late"
    assert head.details()["applications"]["app"]["status"] == "RUNNING"


async def test_what_a_cluster_was_given_is_recorded_on_it() -> None:
    harness = await a_running_harness()
    for message in ("v2", "v3", "v2"):
        harness.apply(serve=a_serve_config(message=message))
        await harness.run(8)
    records = [
        body
        for (kind, _, _), body in harness.kube.objects.items()
        if kind == "ControllerRevision" and "serveConfigV2" in body["data"]
    ]
    newest = max(records, key=lambda each: each["revision"])
    assert len(records) == 2
    assert newest["data"]["serveConfigV2"] == a_serve_config(message="v2")
    assert newest["metadata"]["ownerReferences"][0]["kind"] == RAY_CLUSTER.kind


async def test_a_capacity_that_another_writer_left_behind_is_taken_back() -> None:
    harness = await a_running_harness()
    head = harness.serve.head(f"{harness.active}-head-svc")
    head.deploy({**head.puts[-1], "target_capacity": 50})
    await harness.run(10)
    assert head.puts[-1].get("target_capacity") is None
    attempts = harness.serve.attempts
    await harness.run(30)
    assert harness.serve.attempts == attempts


async def test_a_capacity_that_the_config_itself_asks_for_stays() -> None:
    harness = await a_running_harness(serve=f"{a_serve_config()}target_capacity: 50\n")
    attempts = harness.serve.attempts
    await harness.run(30)
    assert harness.serve.attempts == attempts
    assert harness.serve.head(f"{harness.active}-head-svc").details()["target_capacity"] == 50


@pytest.mark.parametrize("verb", ["create", "patch"])
async def test_a_record_that_is_refused_is_reported_and_is_no_hot_loop(verb: str) -> None:
    harness = await a_running_harness()

    def refuse(request: Request) -> errors.RaybusError | None:
        is_refused = request.kind == "ControllerRevision" and request.verb == verb
        return errors.Forbidden("exceeded quota") if is_refused else None

    harness.kube.faults.append(refuse)
    attempts = harness.serve.attempts
    harness.apply(serve=a_serve_config(message="v2"))
    await harness.run(40)
    notes = [note for _, _, note in harness.kube.events() if "exceeded quota" in note]
    assert (harness.serve.attempts - attempts, len(notes)) == (
        (0, 1) if verb == "create" else (1, 1)
    )
    assert ("cannot be recorded" in harness.message("Ready")) == (verb == "create")
    harness.kube.faults.remove(refuse)
    await harness.run(15)
    head = harness.serve.head(f"{harness.active}-head-svc")
    assert head.puts[-1]["applications"][0]["runtime_env"]["env_vars"]["MESSAGE"] == "v2"
    assert harness.message("Ready") == "Number of serve endpoints is greater than 0"


async def test_a_head_that_lost_its_applications_gets_them_again_while_no_record_can_be_written() -> (
    None
):
    harness = await a_running_harness()
    harness.kube.faults.append(
        lambda each: errors.Forbidden("no") if each.kind == "ControllerRevision" else None
    )
    harness.serve.head(f"{harness.active}-head-svc").restart()
    await harness.run(10)
    assert puts(harness, harness.active) == 2


async def test_89_a_dead_dashboard_of_the_active_cluster_does_not_hold_an_upgrade_up() -> None:
    harness = await a_running_harness()
    blue = harness.active
    harness.serve.head(f"{blue}-head-svc").behaviour = "silent"
    harness.apply(config=GREEN)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=10)
    assert harness.kube.objects[(SERVICE.kind, "default", "demo-head-svc")]
