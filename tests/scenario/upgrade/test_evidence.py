"""Upgrades in steps whose Serve config is edited while they last: evidence of the config before counts no more; ADR 40."""

from typing import Final

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import SECRET, UPGRADE_POLICY
from scenario.upgrade.harness import GREEN, Pair, a_running_pair
from scenario.upgrade.test_upgrade_policy import (
    FOLLOWS,
    GATED,
    WHOLE_SURGE,
    annotate,
    at_weight,
)
from scenario.upgrade.test_upgrade_policy import an_upgrade as a_measured_upgrade
from support.builders.ray_service import NAMESPACE, a_serve_config
from support.builders.upgrade_policy import a_policy, a_signing_key
from support.fakes.prometheus import vector
from support.fakes.webhook import replies

WEBHOOK: Final[Json] = {"webhook": {"url": "https://checks.example.com/a"}}
HELD: Final[Json] = {"steps": [{"weight": 10, "hold": "20s"}, {"weight": 100}]}
PAUSED: Final[Json] = {"steps": [{"weight": 10, "pause": {}}, {"weight": 100}]}


def edit(harness: Pair, message: str = "v3") -> None:
    """Change the Serve config alone, so that the pending cluster gets it in place."""
    annotations = harness.service["metadata"]["annotations"]
    harness.apply(
        config=GREEN,
        upgradeStrategy=WHOLE_SURGE,
        serve=a_serve_config(message=message),
        annotations=annotations,
    )


async def an_upgrade(spec: Json) -> Pair:
    """Return a service with an upgrade that follows a policy, and the key that its webhooks need."""
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    harness.kube.put(SECRET, a_signing_key(NAMESPACE))
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace=NAMESPACE))
    harness.apply(config=GREEN, upgradeStrategy=WHOLE_SURGE, annotations=FOLLOWS)
    return harness


def runs(harness: Pair, cluster: str, message: str = "v3") -> bool:
    """Return whether a cluster was given the config with a message, and has deployed it."""
    head = harness.serve.head(f"{cluster}-head-svc")
    apps = head.details()["applications"].values()
    return all(
        app["status"] == "RUNNING"
        and app["deployed_app_config"]["runtime_env"]["env_vars"]["MESSAGE"] == message
        for app in apps
    )


async def edited(harness: Pair) -> str:
    """Edit the Serve config, and return the pending cluster once it runs it."""
    green = harness.pending
    edit(harness)
    await harness.until(lambda: runs(harness, green))
    return green


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_hold_of_a_step_begins_anew_with_another_config(restarts: bool) -> None:
    harness = await an_upgrade(HELD)
    await at_weight(harness, 10)
    await harness.run(15)
    green = await edited(harness)
    began = harness.clock.monotonic()
    if restarts:
        harness.restart()
    await at_weight(harness, 100)
    assert harness.clock.monotonic() - began >= 20
    assert green in {harness.pending, harness.active}


async def test_the_traffic_that_has_moved_stays_when_the_config_is_edited() -> None:
    harness = await an_upgrade(HELD)
    await at_weight(harness, 10)
    harness.trace.clear()
    await edited(harness)
    await harness.run(5)
    assert {view.weights for _, view in harness.trace} <= {(90, 10)}


async def test_a_webhook_is_asked_again_about_another_config_with_another_id() -> None:
    harness = await an_upgrade({"steps": PAUSED["steps"], "gates": [WEBHOOK]})
    await at_weight(harness, 10)
    await harness.run(5)
    asked = len(harness.servers.questions)
    await edited(harness)
    await harness.run(5)
    first, second = harness.servers.questions[-2:]
    assert len(harness.servers.questions) == asked + 1
    assert (first["weight"], second["weight"]) == (10, 10)
    assert first["id"] != second["id"]


async def test_before_the_traffic_a_webhook_is_asked_again_about_another_config() -> None:
    harness = await an_upgrade(
        {"steps": PAUSED["steps"], "gates": [WEBHOOK], "warmUp": {"requests": 4}}
    )
    harness.servers.answer = lambda _: replies("Wait")
    await harness.until(lambda: bool(harness.servers.questions))
    warmed = len(harness.serve.requests)
    first = harness.servers.questions[-1]["id"]
    await edited(harness)
    await harness.until(lambda: harness.servers.questions[-1]["id"] != first, seconds=20)
    assert len(harness.serve.requests) == 2 * warmed == 8


async def test_an_approval_without_a_generation_holds_for_the_first_config_alone() -> None:
    harness = await an_upgrade(PAUSED)
    await at_weight(harness, 10)
    await edited(harness)
    annotate(harness, **{labels.APPROVED_STEP: f"{harness.pending}/10"})
    await harness.run(30)
    assert harness.weights[harness.pending] == 10
    assert harness.condition("UpgradePaused") == ("True", "PausedByPolicy")
    generation = harness.service["metadata"]["generation"]
    annotate(harness, **{labels.APPROVED_STEP: f"{harness.pending}/10@{generation}"})
    await harness.until(harness.is_complete)


async def test_requests_to_the_config_before_do_not_pass_a_gate() -> None:
    harness, traffic = await a_measured_upgrade(GATED)
    traffic.rate = 100
    await at_weight(harness, 10)
    await harness.run(15)
    traffic.rate = 0
    await edited(harness)
    await harness.run(60)
    assert harness.weights[harness.pending] == 10
    traffic.rate = 50
    await at_weight(harness, 50, seconds=100)


async def test_requests_that_the_config_before_failed_do_not_end_the_upgrade() -> None:
    harness, traffic = await a_measured_upgrade(GATED)
    traffic.rate = 0
    await at_weight(harness, 10)
    await harness.run(10)
    head = harness.serve.head(f"{harness.pending}-head-svc")
    green = await edited(harness)
    head.answered += 500
    head.failed += 500
    await harness.run(0.5)
    await harness.run(30)
    assert harness.condition("UpgradeAborted")[0] != "True"
    assert harness.pending == green


async def test_a_recorded_failure_pauses_no_other_config() -> None:
    harness = await an_upgrade({"steps": HELD["steps"], "gates": [WEBHOOK], "onFailure": "Pause"})
    harness.servers.answer = lambda request: replies(
        "Fail" if b'"weight":10,' in (request.body or b"") else "Pass"
    )
    await harness.until(lambda: harness.condition("UpgradePaused") == ("True", "GateFailed"))
    harness.restart()
    await harness.run(10)
    assert harness.condition("UpgradePaused") == ("True", "GateFailed")
    harness.servers.answer = lambda _: replies("Pass")
    await edited(harness)
    await harness.until(harness.is_complete, seconds=100)


async def test_bad_values_before_an_edit_do_not_count_for_the_config_after_it() -> None:
    gate: Json = {
        "prometheus": {"address": "http://prom.example.com", "query": "a"},
        "max": "0.5",
    }
    harness = await an_upgrade({"steps": HELD["steps"], "gates": [gate]})
    await at_weight(harness, 10)
    harness.servers.answer = lambda _: vector("0.6")
    before = len(harness.servers.asked)
    await harness.until(lambda: len(harness.servers.asked) == before + 2)
    await edited(harness)
    asked = len(harness.servers.asked)
    await harness.until(lambda: len(harness.servers.asked) == asked + 1)
    assert harness.condition("UpgradeAborted")[0] != "True"


@pytest.mark.parametrize("silent_for", [0.0, 5.0])
async def test_a_failure_is_not_held_against_a_spec_that_came_after_it(silent_for: float) -> None:
    harness = await an_upgrade({"steps": HELD["steps"], "gates": [WEBHOOK]})
    await at_weight(harness, 10)
    blue, green = harness.active, harness.pending
    harness.is_service_down = silent_for > 0
    harness.servers.answer = lambda request: replies(
        "Fail" if green.encode() in (request.body or b"") else "Pass"
    )
    harness.restart_traffic()
    await harness.run(silent_for)
    edit(harness)
    harness.is_service_down = False
    await harness.until(
        lambda: harness.is_complete() and harness.active not in {blue, green}, seconds=200
    )


# --- applications outside of the config of the pending cluster ------------------------------------

STATES: Final = ("DEPLOYING", "UNHEALTHY", "DEPLOY_FAILED", "DELETING", "NOT_STARTED")
CODE: Final[Json] = {"deployments": {}, "deployed_app_config": None}


def add_stray(harness: Pair, status: str) -> None:
    """Let code on the pending cluster deploy an application that is not in the config."""
    harness.serve.head(f"{harness.pending}-head-svc").shows = {"mine": {"status": status, **CODE}}


@pytest.mark.parametrize("status", STATES)
@pytest.mark.parametrize("gates", [{}, {"gates": [WEBHOOK]}], ids=["no gate", "webhook"])
async def test_no_application_outside_of_the_config_skips_a_warm_up_or_holds_an_upgrade(
    status: str, gates: Json
) -> None:
    harness = await an_upgrade({**HELD, **gates, "warmUp": {"requests": 4}})
    await harness.until(lambda: bool(harness.pending))
    add_stray(harness, status)
    await at_weight(harness, 10)
    assert len(harness.serve.requests) == 4
    await harness.until(harness.is_complete, seconds=100)


@pytest.mark.parametrize("status", [*STATES, "RUNNING"])
async def test_an_application_outside_of_the_config_begins_no_step_anew(status: str) -> None:
    harness = await an_upgrade({**HELD, "gates": [WEBHOOK]})
    began = await at_weight(harness, 10)
    green = harness.pending
    await harness.run(10)
    add_stray(harness, status)
    await harness.until(lambda: harness.weights.get(green) == 100)
    assert harness.clock.monotonic() - began < 25
    await harness.until(harness.is_complete)
    assert [each["weight"] for each in harness.servers.questions] == [0, 10, 100]


async def test_requests_count_on_beside_an_application_outside_of_the_config() -> None:
    harness, traffic = await a_measured_upgrade(GATED)
    traffic.rate = 100
    await at_weight(harness, 10)
    await harness.run(15)
    add_stray(harness, "DEPLOYING")
    traffic.rate = 0
    await at_weight(harness, 50, seconds=30)
