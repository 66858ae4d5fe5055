"""The kinds that the API server serves decide between Ingress and Route, and whether a gate can be
on (spec raycluster §17.5, §18.2).
"""

import pytest

from cluster_reconciler import settings
from cluster_reconciler.config import Config
from common.errors import InvalidSpec
from common.feature_gates import BETA, FeatureGate

GATED = Config(gates=BETA | {FeatureGate.KUBERNETES_WAS})


@pytest.mark.parametrize(
    ("group", "is_openshift"),
    [
        ("apps", False),
        ("route.openshift.io", True),
        ("security.openshift.io", True),
        ("config.openshift.io", True),
    ],
)
def test_openshift_is_detected_by_its_groups(group: str, is_openshift: bool) -> None:
    assert settings.adapt(Config(), frozenset({f"{group}/v1"})).is_openshift is is_openshift


def test_a_gate_needs_its_api() -> None:
    with pytest.raises(InvalidSpec, match=r"no served scheduling.k8s.io API version available"):
        settings.adapt(GATED, frozenset())
    assert settings.adapt(GATED, frozenset({"scheduling.k8s.io/v1alpha2"})) == GATED
