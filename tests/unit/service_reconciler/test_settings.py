"""The operator's switches of service-reconciler, by the names of their variables."""

import pytest

from common.feature_gates import BETA
from service_reconciler.settings import Config, config_of

SWITCHES = {
    "zero_downtime": "ENABLE_ZERO_DOWNTIME",
    "head_service_has_cluster_ip": "ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE",
    "writes_zero_values": "RAYBUS_WRITE_ZERO_VALUES",
}


def test_without_variables_the_defaults_of_kuberay_hold() -> None:
    assert config_of(BETA, {}) == Config(
        gates=BETA, zero_downtime=True, head_service_has_cluster_ip=False, writes_zero_values=False
    )


@pytest.mark.parametrize(("field", "variable"), SWITCHES.items())
@pytest.mark.parametrize("is_on", [True, False])
def test_a_variable_sets_its_switch_and_no_other(field: str, variable: str, is_on: bool) -> None:
    default, found = config_of(BETA, {}), config_of(BETA, {variable: str(is_on).lower()})
    assert getattr(found, field) is is_on
    others = SWITCHES.keys() - {field}
    assert [getattr(found, each) for each in others] == [getattr(default, each) for each in others]
