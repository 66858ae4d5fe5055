"""Upgrades with an UpgradePolicy that puts a query to Prometheus at each step, and what the values do."""

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, urlsplit

from common.api.opaque import Json
from common.kube.resources import UPGRADE_POLICY
from common.targets import Targets
from common.upgrade.outbound import OutboundRequest
from common.upgrade.webhook import Answer
from scenario.upgrade.test_upgrade_policy import WHOLE_SURGE, apply, at_weight, moves
from support.builders.ray_service import NAMESPACE
from support.builders.upgrade_policy import a_policy
from support.fakes.prometheus import vector
from support.fakes.webhook import silent
from support.simulator.simulator import GREEN, Simulator, a_running_pair

QUERY: Final[Json] = {
    "prometheus": {
        "address": "http://prom.example.com:9090",
        "query": 'errors{cluster="$pendingCluster"}',
    },
    "max": "0.5",
}
ASKING: Final[Json] = {
    "steps": [{"weight": 10, "hold": "1m"}, {"weight": 50}, {"weight": 100}],
    "gates": [QUERY],
}


async def an_upgrade(spec: Json = ASKING, value: str = "0.1") -> Simulator:
    """Return a service just after a change of its spec, with a policy that asks Prometheus."""
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    sim.servers.answer = lambda _: vector(value)
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace=NAMESPACE))
    apply(sim, config=GREEN)
    return sim


def always(answer: Answer) -> Callable[[OutboundRequest], Answer]:
    return lambda _: answer


async def test_a_query_is_put_at_each_step_and_not_before_the_first_traffic() -> None:
    sim = await an_upgrade()
    blue = sim.active
    await at_weight(sim, 10)
    pending = sim.pending
    await sim.until(lambda: sim.is_complete() and sim.active != blue, seconds=150)
    asked = {parse_qs(urlsplit(each.url).query)["query"][0] for each in sim.servers.asked}
    assert asked == {f'errors{{cluster="{pending}"}}'}
    assert (
        6 <= len(sim.servers.asked) <= 8
    )  # at 0, 15, 30, 45 and 60 s of the first step, and at the two others
    assert {each for each in moves(sim) if each} >= {10, 50, 100}


async def test_one_value_beyond_the_limit_rolls_nothing_back_and_three_do() -> None:
    sim = await an_upgrade()
    blue = sim.active
    await at_weight(sim, 10)
    await sim.run(2)
    sim.servers.answer = lambda _: vector("0.7")
    await sim.run(20)
    assert sim.weights[blue] == 90
    sim.servers.answer = lambda _: vector("0.1")
    await sim.run(15)
    assert sim.weights[blue] == 90
    sim.servers.answer = lambda _: vector("0.7")
    await sim.run(25)
    assert sim.weights[blue] == 90
    await sim.until(lambda: sim.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=40)
    assert "prometheus: 0.7, at most 0.5 allowed, 3 times one after another" in sim.message(
        "UpgradeAborted"
    )
    assert sim.weights[blue] == 100
    assert [each for each in moves(sim) if each] == [10]


async def test_a_value_within_the_limit_early_in_the_step_passes_nothing_at_its_end() -> None:
    sim = await an_upgrade()
    await at_weight(sim, 10)
    await sim.run(40)
    sim.servers.answer = lambda _: vector("0.7")
    await sim.run(28)
    assert sim.weights[sim.pending] == 10
    sim.servers.answer = lambda _: vector("0.1")
    await at_weight(sim, 50, seconds=20)


async def test_a_step_waits_for_a_value_and_a_restart_begins_the_evidence_anew() -> None:
    sim = await an_upgrade()
    await at_weight(sim, 10)
    for values in (None, (), ("NaN",), ("0.1", "0.2")):
        sim.servers.answer = silent if values is None else always(vector(*values))
        await sim.run(100)
        assert sim.weights[sim.pending] == 10
        assert sim.condition("UpgradeAborted")[0] != "True"
    for _ in range(4):
        sim.servers.answer = lambda _: vector("0.9")
        await sim.run(20)
        sim.restart()
    assert sim.condition("UpgradeAborted")[0] != "True"
    sim.servers.answer = lambda _: vector("0.1")
    await at_weight(sim, 50, seconds=40)


async def test_an_upgrade_does_not_begin_with_a_prometheus_that_may_not_be_asked() -> None:
    sim = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    blue = sim.active
    sim.servers.allowed = Targets()
    sim.kube.put(UPGRADE_POLICY, a_policy(spec=ASKING, namespace=NAMESPACE))
    apply(sim, config=GREEN)
    await sim.run(10)
    assert sim.clusters == [blue]
    assert (
        "spec.gates[0].prometheus.address: http://prom.example.com:9090 is not a server"
        in sim.message("UpgradePaused")
    )
