"""Why a RayService is not ready: each cause with its remedy, in the order in which they are to be fixed."""

from typing import Any

import pytest

from raybus_cli.explaining import cli, findings
from raybus_cli.explaining.findings import Rank
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
    in_steps,
)
from support.golden import Golden
from support.terminal import text_of

NOT_READY = a_condition("Ready", "False", reason="Initializing", message="RayService is initializing")
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


def _waiting(reason: str, message: str = "") -> dict[str, Any]:
    return {"containerStatuses": [{"name": "ray", "state": {"waiting": {"reason": reason, "message": message}}}]}


def _starting(**pod: Any) -> Snapshot:
    """Return a first start with a worker that is not ready."""
    service = a_service(NOT_READY, pending=snapshots.a_side(BLUE), endpoints=0)
    service["status"]["pendingServiceStatus"]["applicationStatuses"] = {}
    return at_rest(service=service, pods=[a_pod(BLUE, "head"), a_pod(BLUE, "gpu", 1, ready=False, **pod)], serve={})


def _failed_application() -> Snapshot:
    service = a_service(NOT_READY, pending=snapshots.a_side(BLUE), endpoints=0)
    apps = service["status"]["pendingServiceStatus"]["applicationStatuses"]
    apps["app"] = {"status": "DEPLOY_FAILED", "message": "No module named\n'model'", "serveDeploymentStatuses": {}}
    return at_rest(service=service, serve={})


def _over_quota() -> Snapshot:
    failure = a_condition("ReplicaFailure", reason="FailedCreateWorkerPod", message="exceeded quota: gpus")
    cluster = snapshots.a_cluster(BLUE, snapshots.a_config())
    cluster["status"]["conditions"].append(failure)
    return at_rest(service=a_service(NOT_READY, pending=snapshots.a_side(BLUE)), clusters=[cluster])


def _ended(reason: str) -> dict[str, Any]:
    return {"containerStatuses": [{"name": "ray", "state": {"terminated": {"exitCode": 137, "reason": reason}}}]}


@pytest.mark.parametrize(
    ("snapshot", "rank", "what", "remedy"),
    [
        pytest.param(
            at_rest(service=snapshots.a_ready_service(upgradeStrategy={"type": "Soon"})),
            Rank.SPEC,
            "UpgradeStrategy.Type value Soon is invalid",
            "raybus lint",
            id="an invalid spec",
        ),
        pytest.param(_starting(**NO_NODE), Rank.CAPACITY, "cannot be placed on a node", "add nodes", id="no node"),
        pytest.param(
            _starting(**_waiting("ErrImagePull")), Rank.IMAGE, "cannot be pulled", "imagePullSecrets", id="no image"
        ),
        pytest.param(
            _starting(**_waiting("CrashLoopBackOff")),
            Rank.PODS,
            "keeps ending",
            "kubectl describe pod",
            id="it crashes",
        ),
        pytest.param(_starting(**_ended("OOMKilled")), Rank.PODS, "OOMKilled", "limits.memory", id="out of memory"),
        pytest.param(_over_quota(), Rank.QUOTA, "exceeded quota", "raybus plan", id="over quota"),
        pytest.param(
            _failed_application(),
            Rank.SERVE,
            "is DEPLOY_FAILED: No module named 'model'",
            "dashboard",
            id="an application",
        ),
        pytest.param(
            in_steps(a_condition("UpgradeInProgress", since=60)),
            Rank.GATEWAY,
            "Gateway default/demo-gateway does not exist (is the Gateway API installed?)",
            "gatewayClassName",
            id="no Gateway",
        ),
        pytest.param(
            in_steps(
                UPGRADING, a_condition("UpgradePaused", reason="PauseRequested", message="Paused by raybus.io/pause.")
            ),
            Rank.REQUESTED,
            "Paused by raybus.io/pause.",
            "raybus resume demo",
            id="a pause",
        ),
        pytest.param(
            a_snapshot(a_service(endpoints=0)),
            Rank.UNMANAGED,
            "no service of raybus",
            "raybus doctor",
            id="no operator",
        ),
    ],
)
def test_the_first_cause_is_named_with_its_remedy(snapshot: Snapshot, rank: Rank, what: str, remedy: str) -> None:
    first = findings.explain(snapshot, now=NOW).findings[0]
    assert first.rank is rank
    assert what in first.what
    assert remedy in first.remedy


def test_a_service_that_serves_has_no_findings() -> None:
    snapshot = at_rest(events=[an_event("Unhealthy", "probe failed", kind="Warning", about=("Pod", "x"))])
    assert findings.explain(snapshot, now=NOW).findings == []


def test_every_pod_is_asked_and_warnings_add_what_is_new(golden: Golden) -> None:
    pods = [
        a_pod(GREEN, "gpu", 1, ready=False, age=150, **NO_NODE),
        a_pod(GREEN, "gpu", 2, ready=False, age=150, **_waiting("ImagePullBackOff")),
    ]
    events = [
        an_event(
            "FailedMount", "secret hf-token not found", kind="Warning", about=("Pod", pods[0]["metadata"]["name"])
        ),
        an_event("BackOff", "too old", kind="Warning", at=4000),
    ]
    stalled = a_condition(
        "UpgradeStalled", reason="InsufficientCapacity", message="No progress for 10m0s: something else"
    )
    found = findings.explain(in_steps(UPGRADING, stalled, pods=pods, events=events, serve={}), now=NOW)
    assert [each.rank for each in found.findings] == [Rank.IMAGE, Rank.CAPACITY, Rank.GATEWAY, Rank.OTHER, Rank.EVENT]
    golden.check("cli/explain.txt", text_of(cli.draw(found), width=150))


def test_what_was_before_the_upgrade_and_what_a_ready_pod_went_through_explain_nothing() -> None:
    events = [
        an_event("GatewayNotReady", "not yet\nprogrammed", kind="Warning", at=400),
        an_event("Unhealthy", "probe failed", kind="Warning", about=("Pod", f"{GREEN}-gpu-worker-00001"), at=20),
    ]
    assert _of_events(in_steps(events=events)) == []
    later = an_event("GatewayNotReady", "not yet\nprogrammed", kind="Warning", at=20)
    assert _of_events(in_steps(events=[later])) == ["RayService demo: GatewayNotReady: not yet programmed"]


def test_what_an_upgrade_that_is_over_went_through_explains_nothing() -> None:
    aborted = a_condition("UpgradeAborted", reason="AbortRequested", message="Generation 4 is aborted.")
    over = a_condition("UpgradeInProgress", "False", reason="NoPendingCluster", since=60)
    before = an_event("GatewayNotReady", "not yet programmed", kind="Warning", at=90)
    later = an_event("ServiceNotOwned", "somebody has it", kind="Warning", at=30)
    draining = an_event("Unhealthy", "probe failed", kind="Warning", about=("Pod", f"{GREEN}-head-aaaaa"), at=30)
    pods = [a_pod(BLUE, "head"), a_pod(GREEN, "head", ready=False)]
    service = a_service(READY, aborted, over, active=snapshots.a_side(BLUE))
    snapshot = at_rest(service=service, pods=pods, events=[before, draining, later])
    assert _of_events(snapshot) == ["RayService demo: ServiceNotOwned: somebody has it"]


def _of_events(snapshot: Snapshot) -> list[str]:
    found = findings.explain(snapshot, now=NOW).findings
    return [each.what for each in found if each.rank is Rank.EVENT]


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
    (named,) = [each for each in found.findings if "DEPLOY_FAILED" in each.what]
    assert (
        named.what
        == f"application app on RayCluster {BLUE} is DEPLOY_FAILED: ModuleNotFoundError: No module named 'model'"
    )
    assert "import_attr(path)" not in text_of(cli.draw(found))
    assert "import_attr(path)" in text_of(cli.draw(found, wide=True))


def test_an_application_that_the_dashboard_reports_is_named_once() -> None:
    service = a_service(NOT_READY, pending=snapshots.a_side(BLUE), endpoints=0)
    apps = service["status"]["pendingServiceStatus"]["applicationStatuses"]
    apps["app"] = {"status": "DEPLOY_FAILED", "message": "no such model", "serveDeploymentStatuses": {}}
    failed = snapshots.serving(target=2, running=0)
    failed["applications"]["app"] |= {"status": "DEPLOY_FAILED", "message": "no such model"}
    found = findings.explain(at_rest(service=service, serve={BLUE: failed}), now=NOW)
    assert [each.what.count("no such model") for each in found.findings if "DEPLOY_FAILED" in each.what] == [1]


def test_an_application_that_fails_on_both_clusters_is_named_for_each_with_all_of_its_message() -> None:
    service = a_service(UPGRADING, active=snapshots.a_side(BLUE), pending=snapshots.a_side(GREEN))
    for side in ("activeServiceStatus", "pendingServiceStatus"):
        app: dict[str, Any] = {"status": "DEPLOY_FAILED", "message": TRACEBACK, "serveDeploymentStatuses": {}}
        service["status"][side]["applicationStatuses"] = {"app": app}
    failed = snapshots.serving(target=2, running=0)
    failed["applications"]["app"] |= {"status": "DEPLOY_FAILED", "message": TRACEBACK}
    clusters = [snapshots.a_cluster(name, snapshots.a_config()) for name in (BLUE, GREEN)]
    snapshot = at_rest(service=service, clusters=clusters, serve={BLUE: failed, GREEN: failed})
    found = findings.explain(snapshot, now=NOW)
    named = [each for each in found.findings if "DEPLOY_FAILED" in each.what]
    assert [each.what.split(" is ")[0] for each in named] == [
        f"application app on RayCluster {each}" for each in (BLUE, GREEN)
    ]
    assert all(each.detail == TRACEBACK for each in named)
