"""Upgrades in steps whose Serve config is edited while they last: evidence of the config before counts no more; ADR 40."""

from typing import Final

import pytest

from common import labels
from common.api.opaque import Json
from common.kube.resources import SECRET, UPGRADE_POLICY
from scenario.upgrade.test_upgrade_policy import FOLLOWS, GATED, WHOLE_SURGE, annotate, at_weight
from scenario.upgrade.test_upgrade_policy import an_upgrade as a_measured_upgrade
from support.builders.ray_service import NAMESPACE, a_serve_config
from support.builders.upgrade_policy import a_policy, a_signing_key
from support.fakes.prometheus import vector
from support.fakes.webhook import replies
from support.simulator.simulator import GREEN, Simulator, a_running_pair

WEBHOOK: Final[Json] = {"webhook": {"url": "https://checks.example.com/a"}}
HELD: Final[Json] = {"steps": [{"weight": 10, "hold": "20s"}, {"weight": 100}]}
PAUSED: Final[Json] = {"steps": [{"weight": 10, "pause": {}}, {"weight": 100}]}


def edit(sim: Simulator, message: str = "v3") -> None:
    """Change the Serve config alone, so that the pending cluster gets it in place."""
    annotations = sim.service["metadata"]["annotations"]
    sim.apply(
        config=GREEN,
        upgradeStrategy=WHOLE_SURGE,
        serve=a_serve_config(message=message),
        annotations=annotations,
    )


async def an_upgrade(spec: Json) -> Simulator:
    """Return a service with an upgrade that follows a policy, and the key that its webhooks need."""
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    sim.kube.put(SECRET, a_signing_key(NAMESPACE))
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace=NAMESPACE))
    sim.apply(config=GREEN, upgradeStrategy=WHOLE_SURGE, annotations=FOLLOWS)
    return sim


def runs(sim: Simulator, cluster: str, message: str = "v3") -> bool:
    """Return whether a cluster was given the config with a message, and has deployed it."""
    head = sim.serve.head(f"{cluster}-head-svc")
    apps = head.details()["applications"].values()
    return all(
        app["status"] == "RUNNING"
        and app["deployed_app_config"]["runtime_env"]["env_vars"]["MESSAGE"] == message
        for app in apps
    )


async def edited(sim: Simulator) -> str:
    """Edit the Serve config, and return the pending cluster once it runs it."""
    green = sim.pending
    edit(sim)
    await sim.until(lambda: runs(sim, green))
    return green


@pytest.mark.parametrize("restarts", [False, True])
async def test_the_hold_of_a_step_begins_anew_with_another_config(restarts: bool) -> None:
    sim = await an_upgrade(HELD)
    await at_weight(sim, 10)
    await sim.run(15)
    green = await edited(sim)
    began = sim.clock.monotonic()
    if restarts:
        sim.restart()
    await at_weight(sim, 100)
    assert sim.clock.monotonic() - began >= 20
    assert green in {sim.pending, sim.active}


async def test_the_traffic_that_has_moved_stays_when_the_config_is_edited() -> None:
    sim = await an_upgrade(HELD)
    await at_weight(sim, 10)
    sim.observer.trace.clear()
    await edited(sim)
    await sim.run(5)
    assert {view.weights for _, view in sim.observer.trace} <= {(90, 10)}


async def test_a_webhook_is_asked_again_about_another_config_with_another_id() -> None:
    sim = await an_upgrade({"steps": PAUSED["steps"], "gates": [WEBHOOK]})
    await at_weight(sim, 10)
    await sim.run(5)
    asked = len(sim.servers.questions)
    await edited(sim)
    await sim.run(5)
    first, second = sim.servers.questions[-2:]
    assert len(sim.servers.questions) == asked + 1
    assert (first["weight"], second["weight"]) == (10, 10)
    assert first["id"] != second["id"]


async def test_before_the_traffic_a_webhook_is_asked_again_about_another_config() -> None:
    sim = await an_upgrade(
        {"steps": PAUSED["steps"], "gates": [WEBHOOK], "warmUp": {"requests": 4}}
    )
    sim.servers.answer = lambda _: replies("Wait")
    await sim.until(lambda: bool(sim.servers.questions))
    warmed = len(sim.serve.requests)
    first = sim.servers.questions[-1]["id"]
    await edited(sim)
    await sim.until(lambda: sim.servers.questions[-1]["id"] != first, seconds=20)
    assert len(sim.serve.requests) == 2 * warmed == 8


async def test_an_approval_without_a_generation_holds_for_the_first_config_alone() -> None:
    sim = await an_upgrade(PAUSED)
    await at_weight(sim, 10)
    await edited(sim)
    annotate(sim, **{labels.APPROVED_STEP: f"{sim.pending}/10"})
    await sim.run(30)
    assert sim.weights[sim.pending] == 10
    assert sim.condition("UpgradePaused") == ("True", "PausedByPolicy")
    generation = sim.service["metadata"]["generation"]
    annotate(sim, **{labels.APPROVED_STEP: f"{sim.pending}/10@{generation}"})
    await sim.until(sim.is_complete)


async def test_requests_to_the_config_before_do_not_pass_a_gate() -> None:
    sim, traffic = await a_measured_upgrade(GATED)
    traffic.rate = 100
    await at_weight(sim, 10)
    await sim.run(15)
    traffic.rate = 0
    await edited(sim)
    await sim.run(60)
    assert sim.weights[sim.pending] == 10
    traffic.rate = 50
    await at_weight(sim, 50, seconds=100)


async def test_requests_that_the_config_before_failed_do_not_end_the_upgrade() -> None:
    sim, traffic = await a_measured_upgrade(GATED)
    traffic.rate = 0
    await at_weight(sim, 10)
    await sim.run(10)
    head = sim.serve.head(f"{sim.pending}-head-svc")
    green = await edited(sim)
    head.answered += 500
    head.failed += 500
    await sim.run(0.5)
    await sim.run(30)
    assert sim.condition("UpgradeAborted")[0] != "True"
    assert sim.pending == green


async def test_a_recorded_failure_pauses_no_other_config() -> None:
    sim = await an_upgrade({"steps": HELD["steps"], "gates": [WEBHOOK], "onFailure": "Pause"})
    sim.servers.answer = lambda request: replies(
        "Fail" if b'"weight":10,' in (request.body or b"") else "Pass"
    )
    await sim.until(lambda: sim.condition("UpgradePaused") == ("True", "GateFailed"))
    sim.restart()
    await sim.run(10)
    assert sim.condition("UpgradePaused") == ("True", "GateFailed")
    sim.servers.answer = lambda _: replies("Pass")
    await edited(sim)
    await sim.until(sim.is_complete, seconds=100)


async def test_bad_values_before_an_edit_do_not_count_for_the_config_after_it() -> None:
    gate: Json = {"prometheus": {"address": "http://prom.example.com", "query": "a"}, "max": "0.5"}
    sim = await an_upgrade({"steps": HELD["steps"], "gates": [gate]})
    await at_weight(sim, 10)
    sim.servers.answer = lambda _: vector("0.6")
    before = len(sim.servers.asked)
    await sim.until(lambda: len(sim.servers.asked) == before + 2)
    await edited(sim)
    asked = len(sim.servers.asked)
    await sim.until(lambda: len(sim.servers.asked) == asked + 1)
    assert sim.condition("UpgradeAborted")[0] != "True"


@pytest.mark.parametrize("silent_for", [0.0, 5.0])
async def test_a_failure_is_not_held_against_a_spec_that_came_after_it(silent_for: float) -> None:
    sim = await an_upgrade({"steps": HELD["steps"], "gates": [WEBHOOK]})
    await at_weight(sim, 10)
    blue, green = sim.active, sim.pending
    sim.services["service"].is_down = silent_for > 0
    sim.servers.answer = lambda request: replies(
        "Fail" if green.encode() in (request.body or b"") else "Pass"
    )
    sim.restart("traffic")
    await sim.run(silent_for)
    edit(sim)
    sim.services["service"].is_down = False
    await sim.until(lambda: sim.is_complete() and sim.active not in {blue, green}, seconds=200)


# --- applications outside of the config of the pending cluster ------------------------------------

STATES: Final = ("DEPLOYING", "UNHEALTHY", "DEPLOY_FAILED", "DELETING", "NOT_STARTED")
CODE: Final[Json] = {"deployments": {}, "deployed_app_config": None}


def add_stray(sim: Simulator, status: str) -> None:
    """Let code on the pending cluster deploy an application that is not in the config."""
    sim.serve.head(f"{sim.pending}-head-svc").shows = {"mine": {"status": status, **CODE}}


@pytest.mark.parametrize("status", STATES)
@pytest.mark.parametrize("gates", [{}, {"gates": [WEBHOOK]}], ids=["no gate", "webhook"])
async def test_no_application_outside_of_the_config_skips_a_warm_up_or_holds_an_upgrade(
    status: str, gates: Json
) -> None:
    sim = await an_upgrade({**HELD, **gates, "warmUp": {"requests": 4}})
    await sim.until(lambda: bool(sim.pending))
    add_stray(sim, status)
    await at_weight(sim, 10)
    assert len(sim.serve.requests) == 4
    await sim.until(sim.is_complete, seconds=100)


@pytest.mark.parametrize("status", [*STATES, "RUNNING"])
async def test_an_application_outside_of_the_config_begins_no_step_anew(status: str) -> None:
    sim = await an_upgrade({**HELD, "gates": [WEBHOOK]})
    began = await at_weight(sim, 10)
    green = sim.pending
    await sim.run(10)
    add_stray(sim, status)
    await sim.until(lambda: sim.weights.get(green) == 100)
    assert sim.clock.monotonic() - began < 25
    await sim.until(sim.is_complete)
    assert [each["weight"] for each in sim.servers.questions] == [0, 10, 100]


async def test_requests_count_on_beside_an_application_outside_of_the_config() -> None:
    sim, traffic = await a_measured_upgrade(GATED)
    traffic.rate = 100
    await at_weight(sim, 10)
    await sim.run(15)
    add_stray(sim, "DEPLOYING")
    traffic.rate = 0
    await at_weight(sim, 50, seconds=30)
