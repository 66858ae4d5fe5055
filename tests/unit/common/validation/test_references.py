"""Rules on the names of other objects: a text that no object can bear is an input error that names the field."""

import pytest

from common.api.opaque import Json
from common.feature_gates import BETA, FeatureGate
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_container, a_head, a_ray_cluster, a_template

THEFT = "../../tenant-b/secrets/prod-ray"
TOKEN: Json = {"mode": "token"}


@pytest.mark.parametrize("name", [THEFT, "..", "My_Secret", "a/b", "a%2e", "a" * 254, "a\nb"])
def test_a_secret_that_cannot_exist_is_refused_by_the_name_of_its_field(name: str) -> None:
    cluster = a_ray_cluster(auth_options={**TOKEN, "secretName": name}, ray_version="2.52.0")
    assert (problem := cluster_rules.spec(cluster, BETA)) is not None
    assert problem.startswith("authOptions.secretName is not the name of a Secret: ")
    assert len(problem) < 500


@pytest.mark.parametrize("name", ["", "s", "prod-ray", "prod.ray-2"])
def test_a_secret_that_can_exist_is_taken(name: str) -> None:
    cluster = a_ray_cluster(auth_options={**TOKEN, "secretName": name}, ray_version="2.52.0")
    assert cluster_rules.spec(cluster, BETA) is None


def test_a_service_account_that_cannot_exist_is_refused() -> None:
    head = a_head(template=a_template(a_container("ray-head"), serviceAccountName=THEFT))
    problem = cluster_rules.spec(a_ray_cluster(head=head), BETA)
    assert (problem or "").startswith(
        "headGroupSpec.template.spec.serviceAccountName is not the name of a ServiceAccount: "
    )


def test_a_claim_that_cannot_exist_is_refused() -> None:
    options = {"backend": "rocksdb", "storage": {"claimName": THEFT}}
    cluster = a_ray_cluster(gcs_fault_tolerance_options=options, ray_version="2.55.0")
    gates = frozenset({*BETA, *_rocksdb_gates()})
    problem = cluster_rules.spec(cluster, gates)
    assert (problem or "").startswith(
        "gcsFaultToleranceOptions.storage.claimName is not the name of a Persistent"
    )


def _rocksdb_gates() -> set[FeatureGate]:
    return {each for each in FeatureGate if "ROCKSDB" in each.name or "EMBEDDED" in each.name}


@pytest.mark.parametrize(
    ("field", "fields"),
    [
        (
            "autoscalerOptions.resources.limits[cpu]",
            {"autoscaler_options": {"resources": {"limits": {"cpu": "1e5000"}}}},
        ),
        (
            "headGroupSpec.template.spec.overhead[cpu]",
            {"head": a_head(template=a_template(overhead={"cpu": "many"}))},
        ),
        (
            "headGroupSpec.template.spec.resources.requests[cpu]",
            {"head": a_head(template=a_template(resources={"requests": {"cpu": True}}))},
        ),
    ],
)
def test_an_amount_that_a_scheduler_is_told_must_be_a_quantity(field: str, fields: Json) -> None:
    problem = cluster_rules.spec(a_ray_cluster(**fields), BETA)
    assert (problem or "").startswith(field)
