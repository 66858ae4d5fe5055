"""Blue/green upgrades that follow an UpgradePolicy: promotion by its user, and the bake of the replaced cluster; ADR 28."""

from collections.abc import Callable
from typing import Any

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import RAY_CLUSTER, RAY_SERVICE, SECRET, SERVICE, UPGRADE_POLICY
from common.upgrade.outbound import Request
from common.upgrade.webhook import Answer
from scenario.service_reconciler.harness import Harness, a_running_harness
from support.builders.ray_service import NAME, NAMESPACE, a_cluster_config
from support.builders.upgrade_policy import a_policy, a_signing_key
from support.fakes.prometheus import vector
from support.fakes.webhook import replies, silent

FOLLOWS: Json = {labels.UPGRADE_POLICY: "careful"}
BLUE = a_cluster_config(image="rayproject/ray:2.52.0")
GREEN = a_cluster_config(image="rayproject/ray:2.53.0")


async def an_upgrade(spec: Json, **annotations: str) -> tuple[Harness, str]:
    """Return a service just after a change of its spec, with its pending cluster, and the cluster that serves."""
    harness = await a_running_harness(config=BLUE)
    blue = harness.active
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace=NAMESPACE))
    harness.apply(config=GREEN, annotations={**FOLLOWS, **annotations})
    await harness.until(lambda: bool(harness.pending) or harness.active != blue, seconds=20)
    return harness, blue


def annotate(harness: Harness, **annotations: Any) -> None:
    meta = harness.service["metadata"]
    harness.kube.put(
        RAY_SERVICE,
        {
            **harness.service,
            "metadata": {**meta, "annotations": {**meta["annotations"], **annotations}},
        },
    )


ASKING: Json = {
    "gates": [{"webhook": {"url": "https://checks.example.com/a"}}],
    "preview": {"service": True},
}


async def an_asking_upgrade(
    answer: Callable[[Request], Answer], **fields: Any
) -> tuple[Harness, str]:
    """Return a service just after a change of its spec, with a policy that asks a webhook, and the cluster that serves."""
    harness = await a_running_harness(config=BLUE)
    blue = harness.active
    harness.kube.put(SECRET, a_signing_key(NAMESPACE))
    harness.servers.answer = answer
    harness.kube.put(UPGRADE_POLICY, a_policy(spec={**ASKING, **fields}, namespace=NAMESPACE))
    harness.apply(config=GREEN, annotations=FOLLOWS)
    return harness, blue


async def test_a_webhook_is_asked_once_before_all_traffic_moves() -> None:
    harness, blue = await an_asking_upgrade(lambda _: replies("Pass"))
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    (question,) = harness.servers.questions
    assert (question["strategy"], question["weight"], question["activeCluster"]) == (
        "BlueGreen",
        0,
        blue,
    )
    assert question["addresses"]["pending"] == f"{harness.active}-head-svc.{NAMESPACE}.svc:8000"


@pytest.mark.parametrize("is_theirs", [True, False])
async def test_a_webhook_gets_the_address_of_a_preview_service_of_ours_alone(
    *, is_theirs: bool
) -> None:
    harness = await a_running_harness(config=BLUE)
    blue, name = harness.active, f"{NAME}-preview-svc"
    if is_theirs:
        job = {"kind": "Job", "name": "other", "uid": "u", "controller": True}
        spec: Json = {"selector": {"app": "elsewhere"}, "ports": [{"name": "serve", "port": 8000}]}
        meta: Json = {"name": name, "ownerReferences": [job]}
        harness.kube.put(SERVICE, {"metadata": meta, "spec": spec})
    harness.kube.put(SECRET, a_signing_key(NAMESPACE))
    harness.servers.answer = lambda _: replies("Pass")
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=ASKING, namespace=NAMESPACE))
    harness.apply(config=GREEN, annotations=FOLLOWS)
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    ours = {} if is_theirs else {"preview": f"{name}.{NAMESPACE}.svc:8000"}
    for question in harness.servers.questions:
        assert {k: v for k, v in question["addresses"].items() if k == "preview"} == ours


def waits(_request: Request) -> Answer:
    return replies("Wait", "tests run")


@pytest.mark.parametrize("answer", [waits, silent])
async def test_the_traffic_stays_without_a_decision_and_a_restart_asks_again(
    answer: Callable[[Request], Answer],
) -> None:
    harness, blue = await an_asking_upgrade(answer)
    await harness.run(60)
    assert (harness.selected(), harness.active) == (blue, blue)
    harness.restart()
    await harness.run(10)
    assert harness.selected() == blue
    assert len({each["id"] for each in harness.servers.questions}) == 1
    harness.servers.answer = lambda _: replies("Pass")
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)


async def test_a_webhook_that_fails_ends_the_upgrade_and_the_service_stays_also_after_a_restart() -> (
    None
):
    harness, blue = await an_asking_upgrade(lambda _: replies("Fail", "wrong answers"))
    await harness.until(lambda: harness.condition("UpgradeAborted") == ("True", "GateFailed"))
    assert "webhook: checks.example.com answered Fail: wrong answers" in harness.message(
        "UpgradeAborted"
    )
    harness.restart()
    await harness.run(60)
    assert (harness.active, harness.pending, harness.selected()) == (blue, "", blue)
    assert len(harness.servers.asked) == 1


async def test_the_next_spec_is_asked_about_after_a_failure() -> None:
    harness, blue = await an_asking_upgrade(lambda _: replies("Fail"))
    await harness.until(lambda: harness.condition("UpgradeAborted") == ("True", "GateFailed"))
    harness.servers.answer = lambda _: replies("Pass")
    harness.apply(config=a_cluster_config(image="rayproject/ray:2.54.0"), annotations=FOLLOWS)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)
    assert len(harness.servers.asked) == 2


async def test_a_webhook_that_fails_pauses_the_upgrade_where_the_policy_asks_for_it() -> None:
    harness, blue = await an_asking_upgrade(lambda _: replies("Fail"), onFailure="Pause")
    await harness.until(lambda: harness.condition("UpgradePaused") == ("True", "GateFailed"))
    await harness.run(30)
    assert harness.selected() == blue
    annotate(harness, **{labels.PROMOTE: "true"})
    await harness.until(lambda: harness.is_complete() and harness.active != blue)


QUERYING: Json = {
    "gates": [
        {
            "prometheus": {"address": "http://prom.example.com", "query": "a{b='$pendingCluster'}"},
            "max": "0.5",
        }
    ]
}


async def test_a_query_is_put_before_all_traffic_moves() -> None:
    harness, blue = await an_asking_upgrade(lambda _: vector(), **QUERYING)
    await harness.run(60)
    assert (harness.selected(), harness.active) == (blue, blue)
    assert 3 <= len(harness.servers.asked) <= 5
    assert f"a%7Bb%3D%27{harness.pending}%27%7D" in harness.servers.asked[-1].url
    harness.servers.answer = lambda _: vector("0.5")
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=100)


async def test_a_query_beyond_its_limit_ends_the_upgrade_by_three_values() -> None:
    harness, blue = await an_asking_upgrade(lambda _: vector("0.6"), **QUERYING)
    await harness.until(
        lambda: harness.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=100
    )
    assert len(harness.servers.asked) == 3
    assert "prometheus: 0.6, at most 0.5 allowed, 3 times one after another" in harness.message(
        "UpgradeAborted"
    )
    await harness.run(60)
    assert (harness.active, harness.selected(), len(harness.servers.asked)) == (blue, blue, 3)


async def test_without_automatic_promotion_a_ready_cluster_waits_for_its_user() -> None:
    harness, blue = await an_upgrade({"autoPromote": False}, **{labels.PROGRESS_DEADLINE: "15s"})
    await harness.until(lambda: harness.condition("UpgradePaused") == ("True", "PausedByPolicy"))
    harness.restart()
    await harness.run(30)
    assert harness.selected() == blue
    assert harness.condition("UpgradeStalled")[0] != "True"
    green = harness.pending
    annotate(harness, **{labels.APPROVED_STEP: f"{green}/100"})
    await harness.until(lambda: harness.is_complete() and harness.active == green)


async def test_promote_needs_no_approval() -> None:
    harness, _ = await an_upgrade({"autoPromote": False})
    await harness.until(lambda: harness.condition("UpgradePaused") == ("True", "PausedByPolicy"))
    green = harness.pending
    annotate(harness, **{labels.PROMOTE: "true"})
    await harness.until(lambda: harness.is_complete() and harness.active == green)


async def test_the_replaced_cluster_stays_whole_for_the_bake_and_is_deleted_after_it() -> None:
    harness, blue = await an_upgrade({"bake": "5m"})
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    await harness.run(280)
    assert blue in harness.clusters
    annotations = harness.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, blue)]["metadata"][
        "annotations"
    ]
    assert labels.DELETE_AFTER not in annotations
    await harness.until(lambda: blue not in harness.clusters, seconds=200)


async def test_a_revert_during_the_bake_rolls_back_to_the_replaced_cluster() -> None:
    harness, blue = await an_upgrade({"bake": "5m"})
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    green = harness.active
    await harness.run(30)
    began = harness.clock.monotonic()
    harness.apply(config=BLUE, annotations=FOLLOWS)
    await harness.until(lambda: harness.is_complete() and harness.active == blue, seconds=20)
    assert harness.clock.monotonic() - began < 5
    assert set(harness.clusters) <= {blue, green}
    creations = [
        each for each in harness.kube.requests if str(each).startswith("create RayCluster")
    ]
    assert len(creations) == 2
    await harness.until(lambda: green not in harness.clusters, seconds=400)


async def test_a_revert_after_the_replaced_cluster_is_deleted_builds_a_new_cluster() -> None:
    harness, blue = await an_upgrade({"bake": "10s"})
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    await harness.until(lambda: blue not in harness.clusters, seconds=100)
    harness.apply(config=BLUE, annotations=FOLLOWS)
    await harness.run(1)
    await harness.until(harness.is_complete)
    assert harness.active != blue


async def test_without_a_bake_the_replaced_cluster_gets_its_deadline_at_once() -> None:
    harness, blue = await an_upgrade({})
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    await harness.run(2)
    annotations = harness.kube.objects[(RAY_CLUSTER.kind, NAMESPACE, blue)]["metadata"][
        "annotations"
    ]
    assert labels.DELETE_AFTER in annotations


async def test_all_traffic_moves_after_the_warm_up() -> None:
    harness, blue = await an_upgrade({"warmUp": {"requests": 12, "path": "/warm"}})
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    assert {path for _, path in harness.serve.requests} == {"/warm"}
    assert len(harness.serve.requests) == 12
    assert not any(pod.startswith(blue) for pod, _ in harness.serve.requests)


async def test_a_failed_warm_up_ends_the_upgrade_and_it_is_not_tried_again() -> None:
    harness = await a_running_harness(config=BLUE)
    blue = harness.active
    harness.serve.refuses_after = 3
    harness.kube.put(
        UPGRADE_POLICY, a_policy(spec={"warmUp": {"requests": 12}}, namespace=NAMESPACE)
    )
    harness.apply(config=GREEN, annotations=FOLLOWS)
    await harness.until(lambda: harness.condition("UpgradeAborted") == ("True", "GateFailed"))
    sent = len(harness.serve.requests)
    harness.restart()
    await harness.run(60)
    assert (harness.active, harness.pending) == (blue, "")
    assert len(harness.serve.requests) == sent == 4
    assert "request 4 of the warm-up was not answered" in harness.message("UpgradeAborted")


# --- gates by requests --------------------------------------------------------------------------------------------------

ERRORS: Json = {"metric": "errorRate", "max": "1%", "minRequests": 40}
WARMED: Json = {"warmUp": {"requests": 40}, "gates": [ERRORS]}
PREVIEWED: Json = {"preview": {"service": True}, "gates": [ERRORS]}


def preview(harness: Harness, requests: int, *, failed: int = 0) -> None:
    """Let users of the preview Service send requests."""
    head = harness.serve.head(f"{harness.pending}-head-svc")
    head.answered += requests
    head.failed += failed


async def test_the_requests_of_the_warm_up_decide_a_gate_before_all_traffic_moves() -> None:
    harness, blue = await an_upgrade(WARMED)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=60)
    assert len(harness.serve.requests) == 40


async def test_without_enough_requests_no_traffic_moves_and_the_cause_is_reported_until_users_of_the_preview_come() -> (
    None
):
    harness, blue = await an_upgrade(PREVIEWED)
    await harness.run(60)
    assert (harness.active, harness.selected()) == (blue, blue)
    assert (
        "the gates errorRate are not decided yet; no traffic moves until they are"
        in harness.message("UpgradeInProgress")
    )
    assert harness.condition("UpgradeAborted")[0] != "True"
    preview(harness, 39)
    await harness.run(20)
    assert harness.selected() == blue
    harness.restart()
    preview(harness, 1)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=30)


async def test_requests_that_fail_end_the_upgrade_before_any_user_of_the_service_has_one() -> None:
    harness, blue = await an_upgrade(PREVIEWED)
    await harness.run(20)
    preview(harness, 100, failed=30)
    await harness.until(
        lambda: harness.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=30
    )
    assert "errorRate: 30 of 100 requests failed (30%), at most 1% allowed" in harness.message(
        "UpgradeAborted"
    )
    await harness.run(60)
    assert (harness.active, harness.pending, harness.selected()) == (blue, "", blue)


async def test_a_gate_that_compares_needs_requests_of_the_active_cluster_in_the_same_time() -> None:
    compared: Json = {
        **WARMED,
        "gates": [{"metric": "errorRate", "maxIncrease": "50%", "minRequests": 40}],
    }
    harness = await a_running_harness(config=BLUE)
    blue = harness.active
    old = harness.serve.head(f"{blue}-head-svc")
    old.answered = 1000
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=compared, namespace=NAMESPACE))
    harness.apply(config=GREEN, annotations=FOLLOWS)
    await harness.run(60)
    assert harness.selected() == blue
    old.answered += 40
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=30)


async def test_the_deadline_ends_an_upgrade_without_requests() -> None:
    deadline = {labels.PROGRESS_DEADLINE: "60s", labels.ON_DEADLINE: "Rollback"}
    harness, blue = await an_upgrade(PREVIEWED, **deadline)
    await harness.until(
        lambda: harness.condition("UpgradeAborted") == ("True", "ProgressDeadlineExceeded"),
        seconds=150,
    )
    assert "the gates errorRate are not decided yet" in harness.message("UpgradeAborted")
    assert harness.selected() == blue


async def test_a_metric_of_a_cluster_that_gets_no_request_before_the_switch_decides_nothing() -> (
    None
):
    harness, blue = await an_upgrade({"gates": [ERRORS]})
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=60)


async def test_promote_needs_no_requests() -> None:
    harness, _ = await an_upgrade(PREVIEWED)
    await harness.run(20)
    green = harness.pending
    annotate(harness, **{labels.PROMOTE: "true"})
    await harness.until(lambda: harness.is_complete() and harness.active == green, seconds=30)
