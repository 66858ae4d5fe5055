"""The queries of a policy, each put once to its Prometheus from this machine, which may not reach it."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from common import errors
from common.targets import Targets
from common.upgrade import gates, prometheus
from common.upgrade.gate_types import PrometheusGate
from common.upgrade.gates import Result
from common.upgrade.inquiries import request_of
from common.upgrade.outbound import reached_within
from common.upgrade.policy import UpgradePolicy
from common.upgrade.prometheus import Readings
from common.upgrade.webhook import Step


async def results(policy: UpgradePolicy, step: Step) -> Mapping[PrometheusGate, Result]:
    """Return the outcome of each query."""
    return {each: await _result(each, step) for each in policy.gates if isinstance(each, PrometheusGate)}


async def _result(gate: PrometheusGate, step: Step) -> Result:
    try:
        async with reached_within(Targets.of(urlsplit(gate.url))) as server:
            answer = await server.send(request_of(step, gate))
    except errors.Unavailable as problem:
        return gates.unanswered(gate, f"{problem}; that is from this machine, raybus asks from its pods")
    try:
        readings = prometheus.after(Readings(), gate, prometheus.read(answer), now=0)
    except errors.Unavailable as problem:
        return gates.unanswered(gate, str(problem))
    return prometheus.result(gate, readings, None, now=0)
