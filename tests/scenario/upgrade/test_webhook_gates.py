"""Upgrades with an UpgradePolicy that asks a webhook: before the first traffic and at each step, and what each answer does."""

from collections.abc import Callable
from typing import Final

from common.api.opaque import Json
from common.kube.resources import SECRET, UPGRADE_POLICY
from common.targets import Targets
from common.upgrade.outbound import OutboundRequest
from common.upgrade.webhook import Answer
from scenario.upgrade.test_upgrade_policy import FOLLOWS, WHOLE_SURGE, apply, at_weight, moves
from support.builders.ray_service import NAME, NAMESPACE
from support.builders.upgrade_policy import a_policy, a_signing_key
from support.fakes.webhook import replies, silent
from support.simulator.simulator import GREEN, Simulator, a_running_pair

ASKING: Final[Json] = {
    "steps": [{"weight": 10}, {"weight": 50}, {"weight": 100}],
    "gates": [{"webhook": {"url": "https://checks.example.com/a"}}],
}


async def an_upgrade(spec: Json = ASKING) -> Simulator:
    """Return a service just after a change of its spec, with a policy that asks a webhook, and a key."""
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    sim.kube.put(SECRET, a_signing_key(NAMESPACE))
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace=NAMESPACE))
    apply(sim, config=GREEN)
    return sim


def weights(sim: Simulator) -> list[int]:
    """Return the weights at which the webhook was asked, each once in a row."""
    asked = [each["weight"] for each in sim.servers.questions]
    return [each for index, each in enumerate(asked) if index == 0 or each != asked[index - 1]]


def at(weight: int, answer: Answer) -> Callable[[OutboundRequest], Answer]:
    """Return a webhook that answers so at a weight, and else Pass."""

    def answered(request: OutboundRequest) -> Answer:
        return (
            answer if f'"weight":{weight},' in (request.body or b"").decode() else replies("Pass")
        )

    return answered


async def test_a_webhook_that_passes_is_asked_once_before_the_traffic_and_once_at_each_step() -> (
    None
):
    sim = await an_upgrade()
    blue = sim.active
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=100)
    assert [each["weight"] for each in sim.servers.questions] == [0, 10, 50, 100]
    first = sim.servers.questions[0]
    assert (first["service"], first["activeCluster"], first["pendingCluster"]) == (
        NAME,
        blue,
        sim.active,
    )


async def test_no_traffic_moves_before_the_webhook_has_answered() -> None:
    sim = await an_upgrade()
    sim.servers.answer = silent
    await sim.run(120)
    assert set(moves(sim)) <= {None, 0}
    assert len(sim.servers.asked) < 12
    assert sim.condition("UpgradeInProgress")[0] == "True"
    sim.servers.answer = lambda _: replies("Pass")
    await at_weight(sim, 10, seconds=70)


async def test_a_webhook_that_fails_before_the_traffic_ends_the_upgrade_without_a_request() -> None:
    sim = await an_upgrade()
    blue = sim.active
    sim.servers.answer = lambda _: replies("Fail", "the model refuses the smoke test")
    await sim.until(lambda: sim.condition("UpgradeAborted")[0] == "True", seconds=60)
    assert "checks.example.com answered Fail: the model refuses the smoke test" in sim.message(
        "UpgradeAborted"
    )
    assert sim.active == blue
    assert set(moves(sim)) <= {None, 0}


async def test_a_webhook_that_fails_at_a_step_has_all_traffic_back_in_one_write() -> None:
    sim = await an_upgrade()
    blue = sim.active
    sim.servers.answer = at(50, replies("Fail", "p99 is worse"))
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=60)
    assert [each for each in moves(sim) if each] == [10, 50]
    assert sim.weights[blue] == 100


async def test_a_step_lasts_while_the_webhook_answers_wait() -> None:
    sim = await an_upgrade()
    sim.servers.answer = at(10, replies("Wait", "tests run"))
    await at_weight(sim, 10)
    await sim.run(120)
    assert sim.weights[sim.pending] == 10
    sim.servers.answer = lambda _: replies("Pass")
    await at_weight(sim, 50, seconds=40)


async def test_a_restart_asks_again_with_the_same_id() -> None:
    sim = await an_upgrade()
    sim.servers.answer = at(10, replies("Wait"))
    await at_weight(sim, 10)
    await sim.run(5)
    before = [each["id"] for each in sim.servers.questions if each["weight"] == 10]
    sim.restart()
    await sim.run(5)
    after = [each["id"] for each in sim.servers.questions if each["weight"] == 10]
    assert len(after) == len(before) + 1
    assert len(set(after)) == 1


async def test_an_upgrade_does_not_begin_with_a_server_that_may_not_be_asked() -> None:
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    blue = sim.active
    sim.servers.allowed = Targets()
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=ASKING, namespace=NAMESPACE))
    apply(sim, config=GREEN)
    await sim.run(10)
    assert sim.clusters == [blue]
    assert sim.condition("UpgradePaused") == ("True", "InvalidUpgradePolicy")
    assert (
        "spec.gates[0].webhook.url: https://checks.example.com:443 is not a server"
        in sim.message("UpgradePaused")
    )
    sim.servers.allowed = None
    await sim.until(lambda: len(sim.clusters) == 2, seconds=60)


async def test_promote_asks_nobody_and_an_aborted_upgrade_neither() -> None:
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=ASKING, namespace=NAMESPACE))
    sim.servers.answer = silent
    sim.apply(
        config=GREEN,
        upgradeStrategy=WHOLE_SURGE,
        annotations={**FOLLOWS, "raybus.io/promote": "true"},
    )
    await sim.until(sim.is_complete, seconds=100)
    assert sim.servers.asked == []
