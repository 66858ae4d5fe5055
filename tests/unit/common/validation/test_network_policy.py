"""Rules on network policies, S43-S44 and §4.2.3."""

import pytest

from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_group, a_ray_cluster
from support.tables import cases

ON = BETA | {FeatureGate.NETWORK_POLICY}
INGRESS: Json = {"ingressRules": [{}]}
EGRESS: Json = {"egressRules": [{}]}


def open_in(where: str, direction: str, mode: str) -> str:
    return f'networkPolicy.{where}.{direction}Rules cannot be set when mode is "{mode}" ({direction} is not restricted)'


def test_the_gate_must_be_on() -> None:
    assert cluster_rules.spec(a_ray_cluster(network_policy={}), BETA) == (
        "spec.networkPolicy requires the RayClusterNetworkPolicy feature gate to be enabled"
    )


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        pytest.param({}, None, id="nothing but the default is fine"),
        pytest.param({"head": {**INGRESS, **EGRESS}}, None, id="the default mode restricts both"),
        *(
            pytest.param(
                {"mode": mode, place: rules},
                open_in(place, direction, mode),
                id=f"{direction} of the {place} is open",
            )
            for place in ("head", "worker")
            for mode, rules, direction in (
                ("DenyAllEgress", INGRESS, "ingress"),
                ("DenyAllIngress", EGRESS, "egress"),
            )
        ),
        pytest.param(
            {"mode": "DenyAllEgress", "workerGroups": [{"groupName": "g", **INGRESS}]},
            open_in('workerGroups["g"]', "ingress", "DenyAllEgress"),
            id="ingress of a group is open",
        ),
        pytest.param(
            {"mode": "DenyAllIngress", "workerGroups": [{"groupName": "g", **EGRESS}]},
            open_in('workerGroups["g"]', "egress", "DenyAllIngress"),
            id="egress of a group is open",
        ),
        pytest.param(
            {"workerGroups": [{"groupName": "g"}, {"groupName": "x"}]},
            'networkPolicy.workerGroups["x"] does not match any group name in workerGroupSpecs',
            id="an entry without its group",
        ),
    ],
)
def test_rules(policy: Json, message: str | None) -> None:
    assert cluster_rules.spec(a_ray_cluster(network_policy=policy), ON) == message


@cases(
    ("group", "problem"),
    {
        "a capital letter": (
            "Big",
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and "
            "end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
            "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')",
        ),
        "a dot": ("a.b", "must not contain dots"),
        "too long": ("a" * 64, "must be no more than 63 bytes"),
    },
)
def test_group_names(group: str, problem: str) -> None:
    assert cluster_rules.spec(a_ray_cluster(groups=[a_group(group)], network_policy={}), ON) == (
        f'worker group name "{group}" must be a valid DNS1123 label when networkPolicy is enabled '
        f"(it is embedded in the NetworkPolicy name): [{problem}]"
    )
