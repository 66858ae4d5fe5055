"""Upgrades with an UpgradePolicy that puts a query to Prometheus at each step, and what the values do."""

from collections.abc import Callable
from typing import Final
from urllib.parse import parse_qs, urlsplit

from common.api.opaque import Json
from common.kube.resources import UPGRADE_POLICY
from common.targets import Targets
from common.upgrade.outbound import Request
from common.upgrade.webhook import Answer
from scenario.upgrade.harness import GREEN, Pair, a_running_pair
from scenario.upgrade.test_upgrade_policy import WHOLE_SURGE, apply, at_weight, moves
from support.builders.ray_service import NAMESPACE
from support.builders.upgrade_policy import a_policy
from support.fakes.prometheus import vector
from support.fakes.webhook import silent

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


async def an_upgrade(spec: Json = ASKING, value: str = "0.1") -> Pair:
    """Return a service just after a change of its spec, with a policy that asks Prometheus."""
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    harness.servers.answer = lambda _: vector(value)
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=spec, namespace=NAMESPACE))
    apply(harness, config=GREEN)
    return harness


def always(answer: Answer) -> Callable[[Request], Answer]:
    return lambda _: answer


async def test_a_query_is_put_at_each_step_and_not_before_the_first_traffic() -> None:
    harness = await an_upgrade()
    blue = harness.active
    await at_weight(harness, 10)
    pending = harness.pending
    await harness.until(lambda: harness.is_complete() and harness.active != blue, seconds=150)
    asked = {parse_qs(urlsplit(each.url).query)["query"][0] for each in harness.servers.asked}
    assert asked == {f'errors{{cluster="{pending}"}}'}
    assert (
        6 <= len(harness.servers.asked) <= 8
    )  # at 0, 15, 30, 45 and 60 s of the first step, and at the two others
    assert {each for each in moves(harness) if each} >= {10, 50, 100}


async def test_one_value_beyond_the_limit_rolls_nothing_back_and_three_do() -> None:
    harness = await an_upgrade()
    blue = harness.active
    await at_weight(harness, 10)
    await harness.run(2)
    harness.servers.answer = lambda _: vector("0.7")
    await harness.run(20)
    assert harness.weights[blue] == 90
    harness.servers.answer = lambda _: vector("0.1")
    await harness.run(15)
    assert harness.weights[blue] == 90
    harness.servers.answer = lambda _: vector("0.7")
    await harness.run(25)
    assert harness.weights[blue] == 90
    await harness.until(
        lambda: harness.condition("UpgradeAborted") == ("True", "GateFailed"), seconds=40
    )
    assert "prometheus: 0.7, at most 0.5 allowed, 3 times one after another" in harness.message(
        "UpgradeAborted"
    )
    assert harness.weights[blue] == 100
    assert [each for each in moves(harness) if each] == [10]


async def test_a_value_within_the_limit_early_in_the_step_passes_nothing_at_its_end() -> None:
    harness = await an_upgrade()
    await at_weight(harness, 10)
    await harness.run(40)
    harness.servers.answer = lambda _: vector("0.7")
    await harness.run(28)
    assert harness.weights[harness.pending] == 10
    harness.servers.answer = lambda _: vector("0.1")
    await at_weight(harness, 50, seconds=20)


async def test_a_step_waits_for_a_value_and_a_restart_begins_the_evidence_anew() -> None:
    harness = await an_upgrade()
    await at_weight(harness, 10)
    for values in (None, (), ("NaN",), ("0.1", "0.2")):
        harness.servers.answer = silent if values is None else always(vector(*values))
        await harness.run(100)
        assert harness.weights[harness.pending] == 10
        assert harness.condition("UpgradeAborted")[0] != "True"
    for _ in range(4):
        harness.servers.answer = lambda _: vector("0.9")
        await harness.run(20)
        harness.restart()
    assert harness.condition("UpgradeAborted")[0] != "True"
    harness.servers.answer = lambda _: vector("0.1")
    await at_weight(harness, 50, seconds=40)


async def test_an_upgrade_does_not_begin_with_a_prometheus_that_may_not_be_asked() -> None:
    harness = await a_running_pair(upgradeStrategy=WHOLE_SURGE)
    blue = harness.active
    harness.servers.allowed = Targets()
    harness.kube.put(UPGRADE_POLICY, a_policy(spec=ASKING, namespace=NAMESPACE))
    apply(harness, config=GREEN)
    await harness.run(10)
    assert harness.clusters == [blue]
    assert (
        "spec.gates[0].prometheus.address: http://prom.example.com:9090 is not a server"
        in harness.message("UpgradePaused")
    )
