"""Why a RayService is not ready: each cause with its remedy, in the order in which they are to be fixed."""

from typing import Any

import msgspec
import pytest

from common.api.opaque import Json
from common.labels import UPGRADE_FROM, UPGRADE_POLICY_RECORD
from common.ray.serve_status import ServeDetails
from common.upgrade import policy as upgrade_policy
from common.upgrade.policy import Stored
from raybus_cli.explaining import cli, findings
from raybus_cli.explaining.remedies import Rank
from raybus_cli.reading.snapshot import Snapshot
from support.builders import snapshots
from support.builders.snapshots import (
    BLUE,
    GREEN,
    NOW,
    READY,
    UPGRADING,
    a_condition,
    a_pod,
    a_service,
    a_snapshot,
    an_event,
    at_rest,
    gated,
    in_steps,
)
from support.golden import Golden
from support.tables import cases
from support.terminal import text_of

NOT_READY = a_condition(
    "Ready", "False", reason="Initializing", message="RayService is initializing"
)
NO_NODE = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: no GPU",
        }
    ]
}


NOT_FOUND = (
    'rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/rayproject/ray:2.6O.0": failed to resolve '
    'reference "docker.io/rayproject/ray:2.6O.0": docker.io/rayproject/ray:2.6O.0: not found'
)
PULLING = f'Back-off pulling image "docker.io/rayproject/ray:2.6O.0": ErrImagePull: {NOT_FOUND}'


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {
        "containerStatuses": [
            {"name": "ray", "state": {"waiting": {"reason": reason, "message": message}}}
        ]
    }


def _starting(**pod: Any) -> Snapshot:
    """Return a RayService at its first start with a worker that is not ready."""
    service = a_service(NOT_READY, pending=snapshots.a_side(BLUE), endpoints=0)
    service["status"]["pendingServiceStatus"]["applicationStatuses"] = {}
    return at_rest(
        service=service,
        pods=[a_pod(BLUE, "head"), a_pod(BLUE, "gpu", 1, ready=False, **pod)],
        serve={},
    )


def _failed_application() -> Snapshot:
    service = a_service(NOT_READY, pending=snapshots.a_side(BLUE), endpoints=0)
    apps = service["status"]["pendingServiceStatus"]["applicationStatuses"]
    apps["app"] = {
        "status": "DEPLOY_FAILED",
        "message": "No module named\n'model'",
        "serveDeploymentStatuses": {},
    }
    return at_rest(service=service, serve={})


def _over_quota() -> Snapshot:
    failure = a_condition(
        "ReplicaFailure", reason="FailedCreateWorkerPod", message="exceeded quota: gpus"
    )
    cluster = snapshots.a_cluster(BLUE, snapshots.a_config())
    cluster["status"]["conditions"].append(failure)
    return at_rest(service=a_service(NOT_READY, pending=snapshots.a_side(BLUE)), clusters=[cluster])


def _ended(reason: str) -> dict[str, Any]:
    return {
        "containerStatuses": [
            {"name": "ray", "state": {"terminated": {"exitCode": 137, "reason": reason}}}
        ]
    }


@cases(
    ("snapshot", "rank", "what", "remedy"),
    {
        "an invalid spec": (
            at_rest(service=snapshots.a_ready_service(upgradeStrategy={"type": "Soon"})),
            Rank.SPEC,
            "UpgradeStrategy.Type value Soon is invalid",
            "raybus lint",
        ),
        "no node": (_starting(**NO_NODE), Rank.CAPACITY, "cannot be placed on a node", "add nodes"),
        "no image": (
            _starting(**_waiting("ErrImagePull")),
            Rank.IMAGE,
            "cannot pull image",
            "imagePullSecrets",
        ),
        "it crashes": (
            _starting(**_waiting("CrashLoopBackOff")),
            Rank.PODS,
            "keeps ending",
            "kubectl describe pod",
        ),
        "out of memory": (
            _starting(**_ended("OOMKilled")),
            Rank.PODS,
            "OOMKilled",
            "limits.memory",
        ),
        "over quota": (_over_quota(), Rank.QUOTA, "exceeded quota", "raybus plan"),
        "an application": (
            _failed_application(),
            Rank.SERVE,
            "is DEPLOY_FAILED: No module named 'model'",
            "dashboard",
        ),
        "no Gateway": (
            in_steps(a_condition("UpgradeInProgress", since=60)),
            Rank.GATEWAY,
            "Gateway default/demo-gateway does not exist (is the Gateway API installed?)",
            "gatewayClassName",
        ),
        "a pause": (
            in_steps(
                UPGRADING,
                a_condition(
                    "UpgradePaused", reason="PauseRequested", message="Paused by raybus.io/pause."
                ),
            ),
            Rank.REQUESTED,
            "Paused by raybus.io/pause.",
            "raybus resume demo",
        ),
        "no operator": (
            a_snapshot(a_service(endpoints=0)),
            Rank.UNMANAGED,
            "no service of raybus",
            "raybus doctor",
        ),
    },
)
def test_the_first_cause_is_named_with_its_remedy(
    snapshot: Snapshot, rank: Rank, what: str, remedy: str
) -> None:
    first = findings.explain(snapshot, now=NOW).findings[0]
    assert first.rank is rank
    assert what in first.message
    assert remedy in first.remedy


def test_a_service_that_serves_has_no_findings() -> None:
    snapshot = at_rest(
        events=[an_event("Unhealthy", "probe failed", kind="Warning", about=("Pod", "x"))]
    )
    assert findings.explain(snapshot, now=NOW).findings == []


def test_every_pod_is_asked_and_warnings_add_what_is_new(golden: Golden) -> None:
    pods = [
        a_pod(GREEN, "gpu", 1, ready=False, age=150, **NO_NODE),
        a_pod(GREEN, "gpu", 2, ready=False, age=150, **_waiting("ImagePullBackOff", PULLING)),
        a_pod(GREEN, "gpu", 3, ready=False, age=150, **_waiting("ErrImagePull", NOT_FOUND)),
    ]
    events = [
        an_event(
            "FailedMount",
            "secret hf-token not found",
            kind="Warning",
            about=("Pod", pods[0]["metadata"]["name"]),
        ),
        an_event(
            "FailedScheduling",
            "0/3 nodes",
            kind="Warning",
            about=("Pod", pods[0]["metadata"]["name"]),
        ),
        an_event(
            "Failed",
            f"Failed to pull image: {NOT_FOUND}",
            kind="Warning",
            about=("Pod", pods[1]["metadata"]["name"]),
        ),
        an_event("BackOff", "too old", kind="Warning", at=4000),
    ]
    stalled = a_condition(
        "UpgradeStalled",
        reason="InsufficientCapacity",
        message="No progress for 10m0s: something else",
    )
    found = findings.explain(
        in_steps(UPGRADING, stalled, pods=pods, events=events, serve={}), now=NOW
    )
    assert [each.rank for each in found.findings] == [
        Rank.IMAGE,
        Rank.CAPACITY,
        Rank.GATEWAY,
        Rank.EVENT,
    ]
    golden.check("cli/explain.txt", text_of(cli.draw(found), width=150))


def test_what_was_before_the_upgrade_and_what_a_ready_pod_went_through_explain_nothing() -> None:
    events = [
        an_event("GatewayNotReady", "not yet\nprogrammed", kind="Warning", at=400),
        an_event(
            "Unhealthy",
            "probe failed",
            kind="Warning",
            about=("Pod", f"{GREEN}-gpu-worker-00001"),
            at=20,
        ),
    ]
    assert _of_events(in_steps(events=events)) == []
    later = an_event("GatewayNotReady", "not yet\nprogrammed", kind="Warning", at=20)
    (gateway,) = findings.explain(in_steps(events=[later]), now=NOW).findings
    assert gateway.evidence == ["RayService demo: GatewayNotReady 20s ago: not yet programmed"]


def test_what_an_upgrade_that_is_over_went_through_explains_nothing() -> None:
    aborted = a_condition(
        "UpgradeAborted", reason="AbortRequested", message="Generation 4 is aborted."
    )
    over = a_condition("UpgradeInProgress", "False", reason="NoPendingCluster", since=60)
    before = an_event("GatewayNotReady", "not yet programmed", kind="Warning", at=90)
    later = an_event("ServiceNotOwned", "somebody has it", kind="Warning", at=30)
    draining = an_event(
        "Unhealthy", "probe failed", kind="Warning", about=("Pod", f"{GREEN}-head-aaaaa"), at=30
    )
    pods = [a_pod(BLUE, "head"), a_pod(GREEN, "head", ready=False)]
    service = a_service(READY, aborted, over, active=snapshots.a_side(BLUE))
    snapshot = at_rest(service=service, pods=pods, events=[before, draining, later])
    assert _of_events(snapshot) == ["RayService demo: ServiceNotOwned: somebody has it"]


@pytest.mark.parametrize(
    ("location", "role", "expected"),
    [("EveryNode", "gpu", 1), ("HeadOnly", "gpu", 0), ("Disabled", "gpu", 0), ("HeadOnly", "head", 1)],
)  # fmt: skip
def test_a_worker_without_a_proxy_is_never_ready_and_that_is_no_finding(
    location: str, role: str, expected: int
) -> None:
    pod = a_pod(GREEN, role, 1, ready=False)
    event = an_event(
        "Unhealthy", "probe failed", kind="Warning", about=("Pod", pod["metadata"]["name"]), at=20
    )
    serve = {GREEN: ServeDetails(proxy_location=location)}
    found = _of_events(in_steps(pods=[pod], events=[event], serve=serve))
    assert len(found) == expected


def test_the_end_of_a_version_that_is_taken_back_is_waited_for() -> None:
    text = f"RayCluster {GREEN} failed with an earlier spec; a new one starts when it is gone."
    aborted = a_condition("UpgradeAborted", reason="EarlierGateFailed", message=text)
    (found,) = findings.explain(at_rest(service=a_service(READY, aborted)), now=NOW).findings
    assert (found.message, found.remedy.partition(":")[0]) == (text, "wait")
    assert found.command == "raybus status demo -n default"


def _of_events(snapshot: Snapshot) -> list[str]:
    found = findings.explain(snapshot, now=NOW).findings
    return [each.message for each in found if each.rank is Rank.EVENT]


TRACEBACK = (
    "Deploying app 'app' failed with exception:\nTraceback (most recent call last):\n"
    '  File "application_state.py", line 1, in build\n    import_attr(path)\n'
    "\x1b[36mray::build()\x1b[39m (pid=12, ip=10.0.0.1)\nModuleNotFoundError: No module named 'model'\n"
)


def test_of_a_traceback_the_last_exception_is_named_and_the_rest_is_wide() -> None:
    service = a_service(NOT_READY, pending=snapshots.a_side(BLUE), endpoints=0)
    apps = service["status"]["pendingServiceStatus"]["applicationStatuses"]
    apps["app"] = {"status": "DEPLOY_FAILED", "message": TRACEBACK, "serveDeploymentStatuses": {}}
    found = findings.explain(at_rest(service=service, serve={}), now=NOW)
    (named,) = [each for each in found.findings if "DEPLOY_FAILED" in each.message]
    assert (
        named.message
        == f"application app on RayCluster {BLUE} is DEPLOY_FAILED: ModuleNotFoundError: No module named 'model'"
    )
    assert "import_attr(path)" not in text_of(cli.draw(found))
    assert "import_attr(path)" in text_of(cli.draw(found, wide=True))


def test_an_application_that_the_dashboard_reports_is_named_once() -> None:
    service = a_service(NOT_READY, pending=snapshots.a_side(BLUE), endpoints=0)
    apps = service["status"]["pendingServiceStatus"]["applicationStatuses"]
    apps["app"] = {
        "status": "DEPLOY_FAILED",
        "message": "no such model",
        "serveDeploymentStatuses": {},
    }
    failed = snapshots.serving(target=2, running=0)
    failed["applications"]["app"] |= {"status": "DEPLOY_FAILED", "message": "no such model"}
    found = findings.explain(at_rest(service=service, serve={BLUE: failed}), now=NOW)
    assert [
        each.message.count("no such model")
        for each in found.findings
        if "DEPLOY_FAILED" in each.message
    ] == [1]


def test_an_application_that_fails_on_both_clusters_is_named_for_each_with_all_of_its_message() -> (
    None
):
    service = a_service(UPGRADING, active=snapshots.a_side(BLUE), pending=snapshots.a_side(GREEN))
    for side in ("activeServiceStatus", "pendingServiceStatus"):
        app: dict[str, Any] = {
            "status": "DEPLOY_FAILED",
            "message": TRACEBACK,
            "serveDeploymentStatuses": {},
        }
        service["status"][side]["applicationStatuses"] = {"app": app}
    failed = snapshots.serving(target=2, running=0)
    failed["applications"]["app"] |= {"status": "DEPLOY_FAILED", "message": TRACEBACK}
    clusters = [snapshots.a_cluster(name, snapshots.a_config()) for name in (BLUE, GREEN)]
    snapshot = at_rest(service=service, clusters=clusters, serve={BLUE: failed, GREEN: failed})
    found = findings.explain(snapshot, now=NOW)
    named = [each for each in found.findings if "DEPLOY_FAILED" in each.message]
    assert [each.message.split(" is ")[0] for each in named] == [
        f"application app on RayCluster {each}" for each in (BLUE, GREEN)
    ]
    assert all(each.detail == TRACEBACK for each in named)


def test_the_pods_of_one_cause_and_its_events_are_one_finding() -> None:
    names = [f"{BLUE}-gpu-worker-0000{number}" for number in (1, 2, 3)]
    pods = [
        a_pod(BLUE, "gpu", number, ready=False, **_waiting("ErrImagePull", NOT_FOUND))
        for number in (1, 2, 3)
    ]
    events = [
        an_event("BackOff", PULLING, kind="Warning", about=("Pod", names[1]), at=9),
        an_event(
            "PodsNotStarting",
            f"pod {names[0]}: the image rayproject/ray:2.52.0 cannot be pulled",
            kind="Warning",
        ),
    ]
    service = a_service(NOT_READY, pending=snapshots.a_side(BLUE), endpoints=0)
    (found,) = findings.explain(
        at_rest(service=service, pods=pods, serve={}, events=events), now=NOW
    ).findings
    pull = 'cannot pull image "docker.io/rayproject/ray:2.6O.0" (container ray): not found'
    assert found.message == f"Pod {names[0]} and 2 more: {pull}"
    assert found.evidence[:2] == [f"Pod {names[1]}", f"Pod {names[2]}"]
    assert [line.split(" ago: ")[0] for line in found.evidence[2:]] == [
        "RayService demo: PodsNotStarting 5s",
        f"Pod {names[1]}: BackOff 9s",
    ]
    assert found.command == f"kubectl -n default describe pod {names[0]}"
    assert found.anchor == "docs/troubleshooting.md#imagepullfailed"
    assert {"code", "message", "evidence", "command", "anchor"} <= set(msgspec.to_builtins(found))


def test_an_init_container_and_the_answer_in_an_event_are_named() -> None:
    waiting = {
        "name": "wait-gcs-ready",
        "state": {
            "waiting": {
                "reason": "ImagePullBackOff",
                "message": f'Back-off pulling image "{IMAGE}"',
            }
        },
    }
    event = an_event(
        "Failed",
        f'Failed to pull image "{IMAGE}": {NOT_FOUND}',
        kind="Warning",
        about=("Pod", f"{BLUE}-gpu-worker-00001"),
    )
    snapshot = _starting(initContainerStatuses=[waiting])
    snapshot = msgspec.structs.replace(snapshot, events=at_rest(events=[event]).events)
    (found,) = findings.explain(snapshot, now=NOW).findings
    assert found.message == (
        f'Pod {BLUE}-gpu-worker-00001: cannot pull image "{IMAGE}" (init container wait-gcs-ready): not found'
    )


def test_one_image_is_one_cause_whichever_container_needs_it_and_whatever_the_registry_answers() -> (
    None
):
    def pulling(name: str, answer: str) -> Any:
        return {
            "name": name,
            "state": {
                "waiting": {"reason": "ErrImagePull", "message": f'image "{IMAGE}": {answer}'}
            },
        }

    pods = [
        a_pod(
            BLUE,
            "gpu",
            1,
            ready=False,
            initContainerStatuses=[pulling("wait-gcs-ready", "read tcp port 1")],
        ),
        a_pod(BLUE, "gpu", 2, ready=False, containerStatuses=[pulling("ray", "read tcp port 2")]),
    ]
    service = a_service(NOT_READY, pending=snapshots.a_side(BLUE), endpoints=0)
    (found,) = findings.explain(at_rest(service=service, pods=pods, serve={}), now=NOW).findings
    assert found.message.startswith(
        f'Pod {BLUE}-gpu-worker-00001 and 1 more: cannot pull image "{IMAGE}"'
    )


IMAGE = "rayproject/ray:2.6O.0"
SCHEDULED: Any = [{"type": "PodScheduled", "status": "True"}]
RUNS: dict[str, Any] = {"name": "ray", "state": {"running": {}}}
WORKER = ("Pod", f"{BLUE}-gpu-worker-00001")


@pytest.mark.parametrize(
    ("pod", "event"),
    [
        (
            {"conditions": SCHEDULED},
            an_event("FailedScheduling", "0/3 nodes", kind="Warning", about=WORKER),
        ),
        (
            {"phase": "Running"},
            an_event("FailedScheduling", "0/3 nodes", kind="Warning", about=WORKER),
        ),
        (
            {"containerStatuses": [RUNS]},
            an_event("Failed", "Failed to pull image", kind="Warning", about=WORKER),
        ),
        (
            {"containerStatuses": [RUNS]},
            an_event("FailedMount", "no secret", kind="Warning", about=WORKER),
        ),
        (
            {"phase": "Running", "conditions": SCHEDULED},
            an_event(
                "PodsNotStarting", f"pod {WORKER[1]} cannot be placed on a node: x", kind="Warning"
            ),
        ),
    ],
)
def test_an_event_that_the_pod_contradicts_is_dropped(
    pod: dict[str, Any], event: dict[str, Any]
) -> None:
    snapshot = msgspec.structs.replace(_starting(**pod), events=at_rest(events=[event]).events)
    assert findings.explain(snapshot, now=NOW).findings == []


def test_an_event_that_the_pod_does_not_contradict_is_a_finding() -> None:
    event = an_event("FailedMount", "no secret", kind="Warning", about=WORKER)
    waits = msgspec.structs.replace(
        _starting(**_waiting("ContainerCreating")), events=at_rest(events=[event]).events
    )
    (found,) = findings.explain(waits, now=NOW).findings
    assert found.message == f"Pod {WORKER[1]}: FailedMount: no secret"
    assert found.command == f"kubectl -n default describe pod {WORKER[1]}"


LACKING = "0/3 nodes are available: 3 Insufficient nvidia.com/gpu."


@pytest.mark.parametrize(
    ("offered", "remedy"),
    [
        (frozenset({"cpu"}), "No node offers nvidia.com/gpu: add nodes that have it"),
        (frozenset({"cpu", "nvidia.com/gpu"}), "add nodes, or request less: smaller pods"),
        (None, "add nodes, or request less: smaller pods"),
    ],
)
def test_the_remedy_of_a_pod_without_a_node_fits_the_nodes_and_the_first_start(
    offered: frozenset[str] | None, remedy: str
) -> None:
    unplaced = {"conditions": [{**NO_NODE["conditions"][0], "message": LACKING}]}
    snapshot = _starting(**unplaced)
    assert findings.is_short_of_resources(snapshot.pods)
    (found,) = findings.explain(snapshot, now=NOW, offered=offered).findings
    assert found.remedy.startswith(remedy)
    assert "maxSurgePercent" not in found.remedy


def test_a_refused_serve_config_is_one_finding_with_its_field() -> None:
    service = a_service(
        NOT_READY, pending=snapshots.a_side(BLUE), endpoints=0, serve="applications: [{name: app}]"
    )
    event = an_event(
        "FailedToUpdateServeApplications",
        "Ray refused the Serve config: 400 … tail",
        kind="Warning",
    )
    (found,) = findings.explain(
        at_rest(service=service, events=[event], serve={}, revisions=[]), now=NOW
    ).findings
    assert (
        found.message
        == "Ray Serve refuses spec.serveConfigV2: applications[0].import_path: Required value"
    )
    assert found.evidence == [
        "RayService demo: FailedToUpdateServeApplications 5s ago: Ray refused the Serve config: applications[0].import_path: Required value"
    ]


def test_names_in_a_command_are_quoted() -> None:
    hostile = a_service(a_condition("UpgradePaused", reason="PauseRequested", message="Paused."))
    hostile["metadata"]["name"] = "a; rm -rf b"
    found = findings.explain(a_snapshot(hostile), now=NOW).findings
    (paused,) = [each for each in found if each.message == "Paused."]
    assert paused.command == "raybus resume 'a; rm -rf b' -n default"


def test_what_keeps_the_new_cluster_from_being_ready_is_a_warning_of_a_promotion() -> None:
    pods = [a_pod(GREEN, "gpu", 1, ready=False, age=150, **_waiting("ErrImagePull", NOT_FOUND))]
    upgrade = in_steps(UPGRADING, pods=pods, serve={})
    assert [each.rank for each in findings.explain_new_cluster(upgrade, now=NOW)] == [Rank.IMAGE]
    assert findings.explain_new_cluster(at_rest(), now=NOW) == []


@pytest.mark.parametrize(
    ("reason", "note"),
    [
        ("RayDashboardUnreachable", "the dashboard does not answer"),
        (
            "RayDashboardUnauthorized",
            "the dashboard at c-head-svc:8265 refuses raybus: restart them",
        ),
        ("FailedToUpdateServeApplications", "Ray refused the Serve config: 400"),
        ("ServeApplicationNotRunning", "application app is UNHEALTHY: x"),
    ],
)
def test_an_event_that_serve_contradicts_is_dropped(reason: str, note: str) -> None:
    event = an_event(reason, note, kind="Warning")
    service = a_service(NOT_READY, active=snapshots.a_side(BLUE), endpoints=0)
    assert _of_events(at_rest(service=service, events=[event])) == []
    unknown = at_rest(service=service, events=[event], serve={}, revisions=[])
    assert _of_events(unknown) == [f"RayService demo: {reason}: {note}"]


def test_the_gates_of_an_upgrade_are_shown_with_their_figures(golden: Golden) -> None:
    found = findings.explain(gated(), now=NOW)
    assert found.gates is not None
    assert [each.gate for each in found.gates.gates] == ["errorRate", "timeToFirstTokenP95"]
    golden.check("cli/explain-gated.txt", text_of(cli.draw(found), width=150))
    assert findings.explain(in_steps(), now=NOW).gates is None


def _followed(*conditions: Json, **spec: Any) -> Snapshot:
    """Return an upgrade that follows the second generation of a policy."""
    snapshot = in_steps(*conditions)
    held = {
        UPGRADE_POLICY_RECORD: upgrade_policy.recorded("careful", "uid-careful", 2, spec),
        UPGRADE_FROM: BLUE,
    }
    green = snapshot.clusters[1]
    annotations = {**green.metadata.annotations, **held}
    green = msgspec.structs.replace(
        green, metadata=msgspec.structs.replace(green.metadata, annotations=annotations)
    )
    return msgspec.structs.replace(snapshot, clusters=(snapshot.clusters[0], green))


def _stored(generation: int, *conditions: Json, uid: str = "uid-careful") -> Stored:
    meta = {"name": "careful", "namespace": "default", "uid": uid, "generation": generation}
    return msgspec.convert({"metadata": meta, "status": {"conditions": [*conditions]}}, Stored)


AT_ONCE: Json = {"applyEdits": "AtOnce"}
REFUSED = a_condition(
    "Accepted", "False", reason="Invalid", message="UpgradePolicy careful is not valid: spec.bake"
)


@pytest.mark.parametrize(
    ("snapshot", "stored", "when"),
    [
        (
            _followed(),
            _stored(3),
            "applies to the next upgrade, for this one began with applyEdits: NextUpgrade",
        ),
        (_followed(**AT_ONCE), _stored(3), "applies within about 10 s"),
        (
            _followed(**AT_ONCE),
            _stored(3, REFUSED),
            "is not followed: UpgradePolicy careful is not valid: spec.bake",
        ),
        (
            _followed(UPGRADING, a_condition("RollbackInProgress"), **AT_ONCE),
            _stored(3),
            "applies to the next upgrade, for this one failed a gate, is aborted or rolls back",
        ),
    ],
)
def test_an_edit_of_the_policy_in_mid_upgrade_is_shown_with_when_it_applies(
    snapshot: Snapshot, stored: Stored, when: str
) -> None:
    found = findings.explain(snapshot, now=NOW, policy=stored)
    assert (
        found.policy_edit
        == f"UpgradePolicy careful was edited (generation 3, the upgrade follows 2): this {when}"
    )
    assert f"the upgrade follows 2): this {when}" in text_of(cli.draw(found), width=200)


def test_a_policy_that_is_as_it_was_or_another_one_of_its_name_is_no_edit() -> None:
    assert findings.explain(_followed(), now=NOW, policy=_stored(2)).policy_edit is None
    assert (
        findings.explain(_followed(), now=NOW, policy=_stored(3, uid="another")).policy_edit is None
    )
    assert findings.explain(in_steps(), now=NOW, policy=_stored(3)).policy_edit is None
