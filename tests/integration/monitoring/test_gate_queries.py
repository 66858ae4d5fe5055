"""Gates of an UpgradePolicy that query a real Prometheus."""

import json
from pathlib import Path

import httpx
import pytest

from common import targets
from common.runtime.background import Background
from common.targets import Address, Targets
from common.upgrade.candidate import Candidate
from common.upgrade.gate_types import PrometheusGate
from common.upgrade.gates import GateOutcome
from common.upgrade.inquiries import Inquiries
from common.upgrade.outbound import HttpOutbound
from common.upgrade.webhook import Checkpoint
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube
from support.servers import prometheus
from support.servers.loopback import ToLoopback

pytestmark = [pytest.mark.integration]
STEP = Checkpoint(
    namespace="team",
    service="demo",
    policy="p",
    candidate=Candidate(cluster_uid="u", config="c"),
    old="demo-a",
    new="demo-b",
    weight=10,
)
CASES = {
    "scalar(vector(0.4))": (GateOutcome.PASS, "0.4, at most 0.5 allowed"),
    "vector(0.6)": (GateOutcome.INCONCLUSIVE, "0.6, at most 0.5 allowed, 1 of the 3 times"),
    'count(up{job="$service"} or vector(0)) - 1': (GateOutcome.PASS, "0, at most 0.5 allowed"),
    'absent(up{job="$pendingCluster"}) - 1': (GateOutcome.PASS, "0, at most 0.5 allowed"),
    'up{job="$pendingCluster"}': (GateOutcome.INCONCLUSIVE, "answered no value"),
    "vector(0) / 0": (GateOutcome.INCONCLUSIVE, "answered NaN"),
    "vector(1) / 0": (GateOutcome.INCONCLUSIVE, "inf, at most 0.5 allowed, 1 of the 3 times"),
    'vector(1) or label_replace(vector(2), "a", "b", "", "")': (
        GateOutcome.INCONCLUSIVE,
        "more than one value",
    ),
    "up[1m]": (GateOutcome.INCONCLUSIVE, "answered a 'matrix'"),
    "sum(": (GateOutcome.INCONCLUSIVE, "answered status 400: "),
}


async def test_each_answer_of_prometheus_has_its_outcome(tmp_path: Path) -> None:
    async def resolve(_host: str, _port: int) -> tuple[Address, ...]:
        found = targets.as_address("10.1.2.3")
        assert found is not None
        return (found,)

    rules = tmp_path / "rules.yaml"
    rules.write_text(json.dumps({"groups": []}))
    gates = [
        PrometheusGate(title=query, url="http://prom.example.com", query=query, max=0.5)
        for query in CASES
    ]
    async with (
        prometheus.started(tmp_path, jobs=[], rules=rules) as server,
        httpx.AsyncClient(transport=ToLoopback(server.port), trust_env=False) as http,
    ):
        outbound = HttpOutbound(
            Targets(origins=targets.read("http://prom.example.com")), http, resolve
        )
        found = await Inquiries(FakeKube(), outbound, Background(), FakeClock()).ask(STEP, gates)
    for gate in gates:
        outcome, text = CASES[gate.query]
        assert (found[gate].outcome, text in found[gate].text) == (outcome, True), found[gate].text
