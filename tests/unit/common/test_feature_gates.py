"""Feature gates: KubeRay's names, defaults and groups (spec raycluster §3)."""

import pytest

from common import errors, feature_gates
from common.feature_gates import BETA, Gate, Gates


def test_by_default_beta_is_on_and_alpha_is_off() -> None:
    assert feature_gates.resolve({}) == BETA


@pytest.mark.parametrize(
    ("text", "gate", "is_on"),
    [
        pytest.param("RayClusterMTLS=true", "RayClusterMTLS", True, id="a gate named itself"),
        pytest.param("AllAlpha=true", "RayClusterMTLS", True, id="all alpha"),
        pytest.param(
            "AllAlpha=true", "RayJobDeletionPolicy", True, id="all alpha leaves beta as it is"
        ),
        pytest.param("AllBeta=false", "RayJobDeletionPolicy", False, id="all beta off"),
        pytest.param(
            "RayJobDeletionPolicy=true,AllBeta=false",
            "RayJobDeletionPolicy",
            True,
            id="a name beats its group",
        ),
        pytest.param(
            "RayCronJob=true,RayCronJob=false", "RayCronJob", False, id="the last one counts"
        ),
        pytest.param(" RayCronJob = TRUE , ", "RayCronJob", True, id="blanks and case"),
        pytest.param("RayCronJob=1", "RayCronJob", True, id="Go's 1"),
        pytest.param("RayCronJob=t", "RayCronJob", True, id="Go's t"),
        pytest.param("RayJobDeletionPolicy=F", "RayJobDeletionPolicy", False, id="Go's F"),
    ],
)
def test_a_gate_is_as_named_else_as_its_group(text: str, gate: str, is_on: bool) -> None:
    assert (Gate(gate) in feature_gates.resolve(feature_gates.parse(text))) is is_on


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        pytest.param("AllAlpha=true", frozenset(Gate), id="all"),
        pytest.param("AllBeta=false", frozenset[Gate](), id="none"),
        pytest.param("AsyncJobInfoQuery=true", BETA, id="a gate of older operators is passed over"),
    ],
)
def test_the_gates_that_are_on(text: str, gates: Gates) -> None:
    assert feature_gates.resolve(feature_gates.parse(text)) == gates


@pytest.mark.parametrize(
    "text",
    ["RayCronJob", "RayCronJob=", "RayCronJob=maybe", "RayCronJob=tRUE", "RayCronJob=yes", "=true"],
)
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidSpec):
        feature_gates.parse(text)


def test_an_unknown_gate_is_refused_with_the_message_of_kuberay() -> None:
    with pytest.raises(
        errors.InvalidSpec,
        match=r"^Unable to set flag gates for known features: .*'Typo'.* RayCronJob",
    ):
        feature_gates.parse("Typo=true")


@pytest.mark.parametrize("version", ["v1.35.0", "v1.35.0-rc.1", "v1.36.2-gke.1", "v2.0.0"])
def test_a_gate_is_accepted_from_its_version_of_kubernetes_on(version: str) -> None:
    feature_gates.check_kubernetes(frozenset(Gate), version)


@pytest.mark.parametrize("version", ["v1.34.4", "v1.9.0", "", "v1.x"])
def test_a_gate_is_refused_before_its_version_of_kubernetes(version: str) -> None:
    with pytest.raises(
        errors.InvalidSpec, match=r"SidecarSubmitterRestart requires Kubernetes 1\.35"
    ):
        feature_gates.check_kubernetes(frozenset(Gate), version)
    feature_gates.check_kubernetes(frozenset(Gate) - {Gate.SIDECAR_SUBMITTER_RESTART}, version)


def test_spelling_is_the_inverse_of_parsing() -> None:
    named = {"AllAlpha": True, "RayCronJob": False}
    assert feature_gates.parse(feature_gates.spell(named)) == named
