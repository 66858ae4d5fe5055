"""Feature gates: KubeRay's names, defaults and groups (spec raycluster §3)."""

import pytest

from common import errors, feature_gates
from common.feature_gates import BETA, FeatureGate, Gates
from support.tables import cases


def test_by_default_beta_is_on_and_alpha_is_off() -> None:
    assert feature_gates.resolve({}) == BETA


@cases(
    ("text", "gate", "is_on"),
    {
        "a gate named itself": ("RayClusterMTLS=true", "RayClusterMTLS", True),
        "all alpha": ("AllAlpha=true", "RayClusterMTLS", True),
        "all alpha leaves beta as it is": ("AllAlpha=true", "RayJobDeletionPolicy", True),
        "all beta off": ("AllBeta=false", "RayJobDeletionPolicy", False),
        "a name beats its group": (
            "RayJobDeletionPolicy=true,AllBeta=false",
            "RayJobDeletionPolicy",
            True,
        ),
        "the last one counts": ("RayCronJob=true,RayCronJob=false", "RayCronJob", False),
        "blanks and case": (" RayCronJob = TRUE , ", "RayCronJob", True),
        "Go's 1": ("RayCronJob=1", "RayCronJob", True),
        "Go's t": ("RayCronJob=t", "RayCronJob", True),
        "Go's F": ("RayJobDeletionPolicy=F", "RayJobDeletionPolicy", False),
    },
)
def test_a_gate_is_as_named_else_as_its_group(text: str, gate: str, is_on: bool) -> None:
    assert (FeatureGate(gate) in feature_gates.resolve(feature_gates.parse(text))) is is_on


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        pytest.param("AllAlpha=true", frozenset(FeatureGate), id="all"),
        pytest.param("AllBeta=false", frozenset[FeatureGate](), id="none"),
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
    feature_gates.check_kubernetes(frozenset(FeatureGate), version)


@pytest.mark.parametrize("version", ["v1.34.4", "v1.9.0", "", "v1.x"])
def test_a_gate_is_refused_before_its_version_of_kubernetes(version: str) -> None:
    with pytest.raises(
        errors.InvalidSpec, match=r"SidecarSubmitterRestart requires Kubernetes 1\.35"
    ):
        feature_gates.check_kubernetes(frozenset(FeatureGate), version)
    feature_gates.check_kubernetes(
        frozenset(FeatureGate) - {FeatureGate.SIDECAR_SUBMITTER_RESTART}, version
    )


def test_spelling_is_the_inverse_of_parsing() -> None:
    named = {"AllAlpha": True, "RayCronJob": False}
    assert feature_gates.parse(feature_gates.spell(named)) == named
