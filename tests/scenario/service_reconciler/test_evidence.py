"""Blue/green upgrades: evidence of an earlier Serve config counts no more, and a failure that pauses is not forgotten; ADR 40."""

from typing import Final

import pytest

from common import labels
from common.api.opaque import Json
from scenario.service_reconciler.harness import Harness
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

PAUSES: Final[Json] = {"onFailure": "Pause"}


def edit(harness: Harness, message: str = "v3") -> None:
    """Change the Serve config alone, so that the pending cluster gets it in place."""
    annotations = harness.service["metadata"]["annotations"]
    harness.apply(config=GREEN, serve=a_serve_config(message=message), annotations=annotations)


def is_paused(harness: Harness) -> bool:
    return harness.condition("UpgradePaused") == ("True", "GateFailed")


async def test_webhook_and_warm_up_count_for_the_config_that_they_were_about() -> None:
    harness, blue = await an_asking_upgrade(
        lambda _: replies("Pass"), autoPromote=False, warmUp={"requests": 4}
    )
    await harness.until(lambda: harness.condition("UpgradePaused") == ("True", "PausedByPolicy"))
    first = harness.servers.questions[-1]["id"]
    edit(harness)
    harness.servers.answer = lambda _: replies("Fail", "v3 is worse")
    await harness.until(
        lambda: harness.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=30
    )
    assert len(harness.serve.requests) == 8
    assert harness.servers.questions[-1]["id"] != first
    assert harness.selected() == blue


@pytest.mark.parametrize("form", ["{cluster}/100", "{cluster}/100@{generation}"])
async def test_an_approval_holds_for_the_config_that_it_was_given_for(form: str) -> None:
    harness, blue = await an_upgrade({"autoPromote": False})
    await harness.until(lambda: harness.condition("UpgradePaused") == ("True", "PausedByPolicy"))
    green = harness.pending
    held = harness.service["metadata"]["generation"]
    edit(harness)
    annotate(harness, **{labels.APPROVED_STEP: form.format(cluster=green, generation=held)})
    await harness.run(30)
    assert harness.selected() == blue
    annotate(harness, **{labels.APPROVED_STEP: f"{green}/100@{held + 1}"})
    await harness.until(lambda: harness.is_complete() and harness.active == green)


@pytest.mark.parametrize("restarts", [False, True])
async def test_requests_to_the_config_before_decide_no_gate(restarts: bool) -> None:
    harness, blue = await an_upgrade({"preview": {"service": True}, "gates": [ERRORS]})
    await harness.run(20)
    preview(harness, 39)
    await harness.run(10)
    edit(harness)
    await harness.run(20)
    if restarts:
        harness.restart()
        await harness.run(10)
    preview(harness, 39)
    await harness.run(20)
    assert harness.selected() == blue
    preview(harness, 1)
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=30)


async def test_one_good_value_does_not_end_a_pause_that_three_bad_ones_began() -> None:
    harness, blue = await an_asking_upgrade(lambda _: vector("0.6"), **QUERYING, **PAUSES)
    await harness.until(lambda: is_paused(harness), seconds=100)
    harness.servers.answer = lambda _: vector("0.1")
    await harness.run(60)
    assert is_paused(harness)
    assert harness.selected() == blue


@pytest.mark.parametrize("fails", ["webhook", "warm-up"])
async def test_a_restart_does_not_end_a_pause_that_a_failure_began(fails: str) -> None:
    if fails == "webhook":
        harness, blue = await an_asking_upgrade(lambda _: replies("Fail"), **PAUSES)
    else:
        harness, blue = await an_asking_upgrade(
            lambda _: replies("Pass"), warmUp={"requests": 4}, **PAUSES
        )
        harness.serve.refuses_after = 2
    await harness.until(lambda: is_paused(harness))
    text, asked = harness.message("UpgradePaused"), len(harness.servers.asked)
    sent = len(harness.serve.requests)
    harness.servers.answer = lambda _: replies("Pass")
    harness.serve.refuses_after = None
    harness.restart()
    await harness.run(60)
    assert is_paused(harness)
    assert harness.message("UpgradePaused") == text
    assert (len(harness.servers.asked), len(harness.serve.requests)) == (asked, sent)
    assert harness.selected() == blue


async def test_a_pause_of_the_user_does_not_hide_a_failure() -> None:
    harness, blue = await an_asking_upgrade(lambda _: replies("Fail"), **PAUSES)
    await harness.until(lambda: is_paused(harness))
    harness.servers.answer = lambda _: replies("Pass")
    annotate(harness, **{labels.PAUSE: "true"})
    harness.restart()
    await harness.run(5)
    annotate(harness, **{labels.PAUSE: "false"})
    harness.restart()
    await harness.run(30)
    assert is_paused(harness)
    assert harness.selected() == blue


@pytest.mark.parametrize("message", ["v3", "v1"])
async def test_a_new_spec_ends_a_pause_that_a_failure_began_also_with_the_same_config(
    message: str,
) -> None:
    harness, blue = await an_asking_upgrade(lambda _: replies("Fail"), **PAUSES)
    await harness.until(lambda: is_paused(harness))
    await harness.run(5)
    harness.servers.answer = lambda _: replies("Pass")
    harness.apply(
        config=GREEN,
        serve=a_serve_config(message=message),
        annotations=FOLLOWS,
        serviceUnhealthySecondThreshold=900,
    )
    await harness.until(lambda: harness.is_complete() and harness.active != blue)


async def test_promote_ends_a_pause_that_a_failure_began() -> None:
    harness, blue = await an_asking_upgrade(lambda _: replies("Fail"), **PAUSES)
    await harness.until(lambda: is_paused(harness))
    harness.restart()
    annotate(harness, **FOLLOWS, **{labels.PROMOTE: "true"})
    await harness.until(lambda: harness.is_complete() and harness.active != blue)


# --- applications outside of the config of the pending cluster ------------------------------------

STATES: Final = ("DEPLOYING", "UNHEALTHY", "DEPLOY_FAILED", "DELETING", "NOT_STARTED")
CODE: Final[Json] = {"deployments": {}, "deployed_app_config": None}


def add_stray(harness: Harness, status: str) -> None:
    """Let code on the pending cluster deploy an application that is not in the config."""
    harness.serve.head(f"{harness.pending}-head-svc").shows = {"mine": {"status": status, **CODE}}


@pytest.mark.parametrize("status", STATES)
async def test_gates_are_asked_beside_an_application_outside_of_the_config(status: str) -> None:
    harness, blue = await an_asking_upgrade(
        lambda _: replies("Pass"), gates=[*ASKING["gates"], ERRORS], warmUp={"requests": 50}
    )
    await harness.until(lambda: bool(harness.pending))
    add_stray(harness, status)
    await harness.until(lambda: harness.is_complete() and harness.active != blue)
    assert len(harness.servers.questions) == 1
    assert len(harness.serve.requests) == 50


@pytest.mark.parametrize("status", [*STATES, "RUNNING"])
async def test_an_application_outside_of_the_config_voids_no_evidence(status: str) -> None:
    harness, blue = await an_asking_upgrade(
        lambda _: replies("Pass"), autoPromote=False, warmUp={"requests": 4}
    )
    await harness.until(lambda: harness.condition("UpgradePaused") == ("True", "PausedByPolicy"))
    green = harness.pending
    add_stray(harness, status)
    await harness.run(30)
    assert len(harness.servers.questions) == 1
    assert len(harness.serve.requests) == 4
    annotate(harness, **{labels.APPROVED_STEP: f"{green}/100"})
    await harness.until(lambda: harness.is_complete() and harness.active == green)
    assert harness.active != blue
