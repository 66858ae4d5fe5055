"""What users do to an upgrade by annotation, on a real API server: its defaults, its conflicts, its schema of conditions."""

import pytest

from common.kube.client import PatchRequest
from common.kube.resources import RAY_SERVICE
from integration.service_reconciler.conftest import TIMEOUT, Live
from integration.service_reconciler.test_life import active, condition, is_complete, pending
from integration.traffic_manager.test_steps import STEPS, config, percent, weights
from support.builders.ray_service import a_serve_config
from support.waiting import eventually_true

pytestmark = [pytest.mark.integration]


async def annotate(live: Live, **values: str | None) -> None:
    """Set or, with None, remove annotations of ours."""
    held = {f"raybus.io/{name.replace('_', '-')}": value for name, value in values.items()}
    await live.kube.patch(
        RAY_SERVICE, live.namespace, "demo", PatchRequest(body={"metadata": {"annotations": held}})
    )


async def test_paused_aborted_timed_out_and_promoted(stepping: Live) -> None:
    live = stepping
    await live.apply(
        config=config("rayproject/ray:2.52.0"),
        upgradeStrategy=STEPS,
        rayClusterDeletionDelaySeconds=0,
    )
    blue = active(await live.until(is_complete, "it serves"))
    await live.patch(
        rayClusterConfig=config("rayproject/ray:2.53.0"), serveConfigV2=a_serve_config(message="v2")
    )
    await live.until(lambda s: percent(s) == 25, "a quarter of the traffic has moved")

    await annotate(live, pause="true")
    await live.until(lambda s: condition(s, "UpgradePaused")[0] == "True", "it is paused")
    await annotate(live, pause=None, abort="true")
    back = await live.until(is_complete, "all is back")
    assert (active(back), pending(back)) == (blue, "")

    async def is_alone() -> bool:
        return await weights(live) == {blue: 100}

    await eventually_true(
        is_alone, within=TIMEOUT, what="the route has forgotten the other cluster"
    )
    assert condition(back, "UpgradeAborted") == ("True", "AbortRequested")

    await live.patch(serveConfigV2=a_serve_config(import_path="missing:app", message="v2"))
    await annotate(live, abort=None, progress_deadline="5", on_deadline="Rollback")
    await live.until(
        lambda s: condition(s, "UpgradeAborted") == ("True", "ProgressDeadlineExceeded"),
        "it times out",
    )
    await live.until(is_complete, "all is back again")

    async def is_reported() -> bool:  # Events are written after the actions that they report
        return "UpgradeStalled" in await live.reasons()

    await eventually_true(is_reported, within=TIMEOUT, what="the Event UpgradeStalled is there")

    await annotate(live, promote="true")
    await live.patch(serveConfigV2=a_serve_config(message="v2"))
    done = await live.until(
        lambda s: is_complete(s) and active(s) != blue, "the new cluster serves"
    )
    assert condition(done, "UpgradeAborted") == ("", "")
