"""Amounts and versions that the API server accepts and nobody can calculate with are errors of the
spec.

They are not bugs of raybus.
"""

from typing import Any

from cluster_reconciler.config import Config
from common.feature_gates import BETA, FeatureGate
from scenario.cluster_reconciler.harness import Harness
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.tables import cases


def limited(**limits: Any) -> dict[str, Any]:
    return a_template(a_container(resources={"limits": limits}))


@cases(
    ("fields", "named"),
    {
        "an exponent beyond any machine": (
            {"head": a_head(template=limited(**{"nvidia.com/gpu": "1e5000"}))},
            "headGroupSpec.template.spec.containers[0].resources.limits[nvidia.com/gpu]: '1e5000' has the exponent 5000",
        ),
        "of a worker": (
            {"groups": [a_group(template=limited(memory="1e5000"))]},
            "workerGroupSpecs[0].template.spec.containers[0].resources.limits[memory]",
        ),
        "5,001 digits": (
            {"head": a_head(template=limited(cpu="9" * 5001))},
            "resources.limits[cpu]: '99999999999999999999'… has more than 128 characters",
        ),
        "no text": (
            {"head": a_head(template=limited(cpu={"a": 1}))},
            "limits[cpu]: a dict is not a quantity",
        ),
        "a version of 100 digits": (
            {"ray_version": "9" * 100 + ".1", "auth_options": {"mode": "token"}},
            "RayVersion format is invalid",
        ),
        "a volume": (
            {"gcs_fault_tolerance_options": {"backend": "rocksdb", "storage": {"size": "1e5000"}}},
            "gcsFaultToleranceOptions.storage.size",
        ),
    },
)
async def test_an_absurd_amount_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], named: str
) -> None:
    harness = Harness(Config(gates=BETA | {FeatureGate.EMBEDDED_STORAGE}))
    harness.apply(a_ray_cluster(**fields))
    await harness.settle()
    notes = [note for _, reason, note in harness.kube.events() if reason == "InvalidRayClusterSpec"]
    assert any(named in note for note in notes), notes
    assert harness.pods() == []
    assert harness.errors == []
