"""The Events of gates: the result of an earlier upgrade neither counts for this one nor hides an
Event of it.
"""

import pytest

from common.upgrade import policy as upgrade_policy
from common.upgrade.gate_record import Current, GateState
from common.upgrade.gates import GateOutcome, GateResult
from common.upgrade.traffic_record import RecordedUpgrade
from support.builders.upgrade import START, an_upgrade
from support.builders.upgrade_policy import a_policy
from traffic_manager import events
from traffic_manager.migration.progression import Judgement
from traffic_manager.observed import Observed

POLICY = upgrade_policy.read(
    "careful", a_policy(spec={"gates": [{"metric": "errorRate", "max": "1%"}]})["spec"]
)
GATE = POLICY.gates[0]
PASSED = GateResult(gate=GATE, outcome=GateOutcome.PASS, text="errorRate: 0 %")


def recorded(new: str) -> Observed:
    """Return an upgrade from blue to green, with the record of an upgrade from blue to another
    cluster in which one gate failed and one passed.
    """
    state = GateState(gate=GATE.title, outcome=GateOutcome.PASS, at=START, text="errorRate: 0 %")
    gates = Current(weight=50, since=START, written_at=START, gates=(state,))
    past = RecordedUpgrade(
        old="blue",
        new=new,
        began_at=START,
        max_capacity=100,
        min_capacity=100,
        failed="errorRate: 9 %",
        gates=gates,
    )
    given = an_upgrade(upgrade=past)
    return Observed(service=given.service, route=given.route)


@pytest.mark.parametrize(
    ("new", "reasons"),
    [
        pytest.param("green", [], id="of this upgrade, which reported both"),
        pytest.param("red", ["GateFailed", "GatePassed"], id="of an earlier upgrade"),
    ],
)
def test_only_what_this_upgrade_has_on_record_was_reported_already(
    new: str, reasons: list[str]
) -> None:
    judged = Judgement(failed="latencyP95: 3 s", results=(PASSED,))
    assert [each.reason for each in events.of_gates(recorded(new), judged)] == reasons
