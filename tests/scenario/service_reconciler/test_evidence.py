"""Blue/green upgrades: evidence of an earlier Serve config counts no more, and a failure that pauses is not forgotten; ADR 40."""

from typing import Final

import pytest

from common import labels
from common.api.opaque import Json
from scenario.service_reconciler.test_upgrade_policy import (
    ASKING,
    ERRORS,
    FOLLOWS,
    GREEN,
    QUERYING,
    an_asking_upgrade,
    an_upgrade,
    annotate,
    preview,
)
from support.builders.ray_service import a_serve_config
from support.fakes.prometheus import vector
from support.fakes.webhook import replies
from support.simulator.simulator import Simulator

PAUSES: Final[Json] = {"onFailure": "Pause"}


def edit(sim: Simulator, message: str = "v3") -> None:
    """Change the Serve config alone, so that the pending cluster gets it in place."""
    annotations = sim.service["metadata"]["annotations"]
    sim.apply(config=GREEN, serve=a_serve_config(message=message), annotations=annotations)


def is_paused(sim: Simulator) -> bool:
    return sim.condition("UpgradePaused") == ("True", "GateFailed")


async def test_webhook_and_warm_up_count_for_the_config_that_they_were_about() -> None:
    sim, blue = await an_asking_upgrade(
        lambda _: replies("Pass"), autoPromote=False, warmUp={"requests": 4}
    )
    await sim.until(lambda: sim.condition("UpgradePaused") == ("True", "PausedByPolicy"))
    first = sim.servers.questions[-1]["id"]
    edit(sim)
    sim.servers.answer = lambda _: replies("Fail", "v3 is worse")
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=30)
    assert len(sim.serve.requests) == 8
    assert sim.servers.questions[-1]["id"] != first
    assert sim.selected() == blue


@pytest.mark.parametrize("form", ["{cluster}/100", "{cluster}/100@{generation}"])
async def test_an_approval_holds_for_the_config_that_it_was_given_for(form: str) -> None:
    sim, blue = await an_upgrade({"autoPromote": False})
    await sim.until(lambda: sim.condition("UpgradePaused") == ("True", "PausedByPolicy"))
    green = sim.pending
    held = sim.service["metadata"]["generation"]
    edit(sim)
    annotate(sim, **{labels.APPROVED_STEP: form.format(cluster=green, generation=held)})
    await sim.run(30)
    assert sim.selected() == blue
    annotate(sim, **{labels.APPROVED_STEP: f"{green}/100@{held + 1}"})
    await sim.until(lambda: sim.is_complete() and sim.active == green)


@pytest.mark.parametrize("restarts", [False, True])
async def test_requests_to_the_config_before_decide_no_gate(restarts: bool) -> None:
    sim, blue = await an_upgrade({"preview": {"service": True}, "gates": [ERRORS]})
    await sim.run(20)
    preview(sim, 39)
    await sim.run(10)
    edit(sim)
    await sim.run(20)
    if restarts:
        sim.restart()
        await sim.run(10)
    preview(sim, 39)
    await sim.run(20)
    assert sim.selected() == blue
    preview(sim, 1)
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=30)


async def test_one_good_value_does_not_end_a_pause_that_three_bad_ones_began() -> None:
    sim, blue = await an_asking_upgrade(lambda _: vector("0.6"), **QUERYING, **PAUSES)
    await sim.until(lambda: is_paused(sim), seconds=100)
    sim.servers.answer = lambda _: vector("0.1")
    await sim.run(60)
    assert is_paused(sim)
    assert sim.selected() == blue


@pytest.mark.parametrize("fails", ["webhook", "warm-up"])
async def test_a_restart_does_not_end_a_pause_that_a_failure_began(fails: str) -> None:
    if fails == "webhook":
        sim, blue = await an_asking_upgrade(lambda _: replies("Fail"), **PAUSES)
    else:
        sim, blue = await an_asking_upgrade(
            lambda _: replies("Pass"), warmUp={"requests": 4}, **PAUSES
        )
        sim.serve.refuses_after = 2
    await sim.until(lambda: is_paused(sim))
    text, asked = sim.message("UpgradePaused"), len(sim.servers.asked)
    sent = len(sim.serve.requests)
    sim.servers.answer = lambda _: replies("Pass")
    sim.serve.refuses_after = None
    sim.restart()
    await sim.run(60)
    assert is_paused(sim)
    assert sim.message("UpgradePaused") == text
    assert (len(sim.servers.asked), len(sim.serve.requests)) == (asked, sent)
    assert sim.selected() == blue


async def test_a_pause_of_the_user_does_not_hide_a_failure() -> None:
    sim, blue = await an_asking_upgrade(lambda _: replies("Fail"), **PAUSES)
    await sim.until(lambda: is_paused(sim))
    sim.servers.answer = lambda _: replies("Pass")
    annotate(sim, **{labels.PAUSE: "true"})
    sim.restart()
    await sim.run(5)
    annotate(sim, **{labels.PAUSE: "false"})
    sim.restart()
    await sim.run(30)
    assert is_paused(sim)
    assert sim.selected() == blue


@pytest.mark.parametrize("message", ["v3", "v1"])
async def test_a_new_spec_ends_a_pause_that_a_failure_began_also_with_the_same_config(
    message: str,
) -> None:
    sim, blue = await an_asking_upgrade(lambda _: replies("Fail"), **PAUSES)
    await sim.until(lambda: is_paused(sim))
    await sim.run(5)
    sim.servers.answer = lambda _: replies("Pass")
    sim.apply(
        config=GREEN,
        serve=a_serve_config(message=message),
        annotations=FOLLOWS,
        serviceUnhealthySecondThreshold=900,
    )
    await sim.until(lambda: sim.is_complete() and sim.active != blue)


async def test_promote_ends_a_pause_that_a_failure_began() -> None:
    sim, blue = await an_asking_upgrade(lambda _: replies("Fail"), **PAUSES)
    await sim.until(lambda: is_paused(sim))
    sim.restart()
    annotate(sim, **FOLLOWS, **{labels.PROMOTE: "true"})
    await sim.until(lambda: sim.is_complete() and sim.active != blue)


# --- applications outside of the config of the pending cluster ------------------------------------

STATES: Final = ("DEPLOYING", "UNHEALTHY", "DEPLOY_FAILED", "DELETING", "NOT_STARTED")
CODE: Final[Json] = {"deployments": {}, "deployed_app_config": None}


def add_stray(sim: Simulator, status: str) -> None:
    """Let code on the pending cluster deploy an application that is not in the config."""
    sim.serve.head(f"{sim.pending}-head-svc").shows = {"mine": {"status": status, **CODE}}


@pytest.mark.parametrize("status", STATES)
async def test_gates_are_asked_beside_an_application_outside_of_the_config(status: str) -> None:
    sim, blue = await an_asking_upgrade(
        lambda _: replies("Pass"), gates=[*ASKING["gates"], ERRORS], warmUp={"requests": 50}
    )
    await sim.until(lambda: bool(sim.pending))
    add_stray(sim, status)
    await sim.until(lambda: sim.is_complete() and sim.active != blue)
    assert len(sim.servers.questions) == 1
    assert len(sim.serve.requests) == 50


@pytest.mark.parametrize("status", [*STATES, "RUNNING"])
async def test_an_application_outside_of_the_config_voids_no_evidence(status: str) -> None:
    sim, blue = await an_asking_upgrade(
        lambda _: replies("Pass"), autoPromote=False, warmUp={"requests": 4}
    )
    await sim.until(lambda: sim.condition("UpgradePaused") == ("True", "PausedByPolicy"))
    green = sim.pending
    add_stray(sim, status)
    await sim.run(30)
    assert len(sim.servers.questions) == 1
    assert len(sim.serve.requests) == 4
    annotate(sim, **{labels.APPROVED_STEP: f"{green}/100"})
    await sim.until(lambda: sim.is_complete() and sim.active == green)
    assert sim.active != blue
