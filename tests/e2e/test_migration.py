"""A RayService under load is handed over from KubeRay's own operator to raybus in mid-upgrade, and back again: nothing fails.

Only where another operator is at hand: `PEER` is the command that starts it on the cluster of `KUBECONFIG`, with
`--use-kubernetes-proxy`; `PEER_CRDS` is the folder of its definitions.
"""

import os
import time
from pathlib import Path

import msgspec
import pytest

from common.api.opaque import Body
from common.kube.resources import POD
from integration.migration import peer
from localcluster.demo.cluster_state import NAMESPACE, DemoState

from . import raybus
from .conftest import Rig
from .greeter import Greeter, Options, expect_no_failure, settle, show

COMMAND = os.environ.get("PEER", "")
DEFINITIONS = os.environ.get("PEER_CRDS", "")
pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.soak,
    pytest.mark.skipif(
        not COMMAND or not DEFINITIONS, reason="PEER and PEER_CRDS name no other operator"
    ),
]
OPTIONS = Options(interval=8)
THINK = "1-4"
"""Range of the seconds of long requests.

KubeRay writes the whole route, and with it the gateway's own limit of 15 s."""


async def test_handed_over_in_mid_upgrade_and_back(rig: Rig, tmp_path: Path) -> None:
    rig.need_gateway()
    kubeconfig, log = rig.kubectl.kubeconfig, tmp_path / "peer.log"
    greeter = Greeter(rig, OPTIONS)
    for each in ("ray.io_rayjobs.yaml", "ray.io_raycronjobs.yaml"):
        await rig.kubectl.run("apply", "--server-side", "-f", str(Path(DEFINITIONS) / each))
    try:
        await _scale(rig, 0)
        async with peer.running(COMMAND, kubeconfig, log):
            await greeter.start()
            # KubeRay calls a service ready before its route leads anywhere.
            await greeter.wait("all traffic on version 1", _is_routed)
        async with greeter.followed() as history, greeter.under_load(think=THINK) as answers:
            async with peer.running(COMMAND, kubeconfig, log):
                await settle(answers)
                old = await greeter.upgrade(OPTIONS)
                await greeter.wait_for_share(25)
            ended, standing = time.time(), await _restarts(rig)  # noqa: TID251  (the history's wall clock)
            await _scale(rig, 1)
            new = await greeter.wait_for_promotion(old)
            await settle(answers)
            served = await _restarts(rig)
            await _scale(rig, 0)
            async with peer.running(COMMAND, kubeconfig, log):
                await settle(answers, more=1500)
                after = await _restarts(rig)
        figures = expect_no_failure(greeter, answers, at_least=3000)
        shares = [
            moment.weights[1]
            for moment in history
            if moment.pending == new and moment.weights[1] is not None
        ]
        assert shares == sorted(shares), "the traffic went back"
        mine = {pod: count for pod, count in standing.items() if pod.startswith(new)}
        assert mine.items() <= served.items(), "a pod of the new cluster was replaced or restarted"
        assert after == served, "KubeRay replaced or restarted a pod"
        went_on = next(moment.at for moment in history if moment.at > ended)
        show("", f"first step {went_on - ended:.1f} s after KubeRay's end", figures, *history)
    finally:
        await _scale(rig, 1)
        await greeter.stop()


def _is_routed(state: DemoState) -> bool:
    return (
        state.service is not None
        and state.service.status.active_service_status.traffic_routed_percent == 100
    )


async def _scale(rig: Rig, replicas: int) -> None:
    """Give every service of raybus so many pods, and wait until they are ready, or gone."""
    where = ("-n", raybus.NAMESPACE)
    await rig.kubectl.run("scale", *where, "deployment", "--all", "--replicas", str(replicas))
    if replicas:
        await rig.kubectl.run(
            "wait", *where, "deployment", "--all", "--for=condition=Available", "--timeout=180s"
        )
        return
    for name in raybus.SERVICES:
        await rig.kubectl.run(
            "wait",
            *where,
            "pod",
            "-l",
            f"app.kubernetes.io/name={name}",
            "--for=delete",
            "--timeout=120s",
        )


async def _restarts(rig: Rig) -> dict[str, int]:
    """Return how often the containers of each Ray pod were restarted, by name and uid."""
    listed = msgspec.json.decode(
        await rig.kube.list(POD, NAMESPACE, label_selector="ray.io/cluster")
    )
    items: list[Body] = listed["items"]
    return {
        f"{each['metadata']['name']} {each['metadata']['uid']}": sum(
            one["restartCount"] for one in each["status"].get("containerStatuses", [])
        )
        for each in items
    }
