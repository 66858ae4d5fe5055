"""Rules on mutual TLS, S45-S46 and §4.2.4."""

import pytest

from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template

ON = BETA | {FeatureGate.MTLS}
MANAGED = "when tlsOptions is set - the operator manages TLS configuration"
NAMED = [{"name": "ray-tls", "mountPath": "/x"}]
PLACED = [{"name": "x", "mountPath": "/etc/ray/tls"}]


def with_env(name: str) -> Json:
    return a_template(a_container(env=[{"name": name, "value": "x"}]))


def with_mounts(mounts: list[dict[str, str]]) -> Json:
    return a_template(a_container(volume_mounts=mounts))


@pytest.mark.parametrize("options", [{}, {"enabled": False}, {"enabled": True}])
def test_the_gate_must_be_on_even_to_switch_off(options: Json) -> None:
    assert cluster_rules.spec(a_ray_cluster(tls_options=options), BETA) == (
        "spec.tlsOptions requires the RayClusterMTLS feature gate to be enabled"
    )


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param({}, None, id="nothing in the way"),
        *(
            pytest.param(
                {"head": a_head(template=with_env(name))},
                f"cannot set {name} environment variable in head Pod {MANAGED} automatically",
                id=f"{name} on the head",
            )
            for name in (
                "RAY_USE_TLS",
                "RAY_TLS_SERVER_CERT",
                "RAY_TLS_SERVER_KEY",
                "RAY_TLS_CA_CERT",
            )
        ),
        pytest.param(
            {"head": a_head(template=with_mounts(NAMED))},
            f'cannot use volume mount named "ray-tls" in head Pod {MANAGED} automatically',
            id="our mount's name on the head",
        ),
        pytest.param(
            {"head": a_head(template=with_mounts(PLACED))},
            f'cannot use volume mount at path "/etc/ray/tls" in head Pod {MANAGED} automatically',
            id="our mount's path on the head",
        ),
        pytest.param(
            {"groups": [a_group(template=with_env("RAY_USE_TLS"))]},
            f'cannot set RAY_USE_TLS environment variable in worker group "g" {MANAGED} automatically',
            id="a variable on a group",
        ),
        pytest.param(
            {"groups": [a_group(template=with_mounts(NAMED))]},
            f'cannot use volume mount named "ray-tls" in worker group "g" {MANAGED} automatically',
            id="our mount's name on a group",
        ),
        pytest.param(
            {"groups": [a_group(template=with_mounts(PLACED))]},
            f'cannot use volume mount at path "/etc/ray/tls" in worker group "g" {MANAGED} automatically',
            id="our mount's path on a group",
        ),
        pytest.param(
            {"autoscaler_options": {"env": [{"name": "RAY_TLS_CA_CERT", "value": "x"}]}},
            f"cannot set RAY_TLS_CA_CERT environment variable in autoscalerOptions.env {MANAGED} "
            "for the autoscaler automatically",
            id="a variable on the autoscaler",
        ),
        pytest.param(
            {"autoscaler_options": {"volumeMounts": NAMED}},
            f'cannot use volume mount named "ray-tls" in autoscalerOptions.volumeMounts {MANAGED} automatically',
            id="our mount's name on the autoscaler",
        ),
        pytest.param(
            {"autoscaler_options": {"volumeMounts": PLACED}},
            f'cannot use volume mount at path "/etc/ray/tls" in autoscalerOptions.volumeMounts {MANAGED} automatically',
            id="our mount's path on the autoscaler",
        ),
    ],
)
def test_conflicts(spec: Json, message: str | None) -> None:
    assert cluster_rules.spec(a_ray_cluster(tls_options={"enabled": True}, **spec), ON) == message


def test_conflicts_do_not_matter_without_tls() -> None:
    cluster = a_ray_cluster(
        head=a_head(template=with_env("RAY_USE_TLS")), tls_options={"enabled": False}
    )
    assert cluster_rules.spec(cluster, ON) is None
