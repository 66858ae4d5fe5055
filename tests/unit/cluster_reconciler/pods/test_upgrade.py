from typing import Final

import msgspec
import pytest

from cluster_reconciler.actions import ClusterPlan
from cluster_reconciler.config import Config
from cluster_reconciler.observed import OVERDUE_AFTER, Observed
from cluster_reconciler.pods import all_pods
from common import labels
from common.api.ray_cluster import RayCluster
from support.builders.pods import NOW, a_head_pod, actions_of, an_observation, some_workers
from support.builders.ray_cluster import a_group, a_head, a_ray_cluster, a_template
from support.tables import cases

OLD = a_ray_cluster(upgrade_strategy={"type": "Recreate"})
CHANGED = a_ray_cluster(upgrade_strategy={"type": "Recreate"}, ray_version="2.53.0")


WORKERS: Final = "delete Pods ray.io/cluster=c,ray.io/node-type=worker"
DELETE: Final = f"{WORKERS}; delete Pods ray.io/cluster=c"


def move_of(observed: Observed) -> str:
    """Return the decision about all pods together, for the version `v1`."""
    found = all_pods.recreate(msgspec.structs.replace(observed, config=Config(version="v1")))
    return "; ".join(map(str, actions_of(found))) or (
        "wait" if isinstance(found, ClusterPlan) else "go on"
    )


@cases(
    ("cluster", "made_by", "move"),
    {
        "nothing changed": (OLD, "v1", "go on"),
        "the spec changed": (CHANGED, "v1", DELETE),
        "no strategy": (a_ray_cluster(ray_version="2.53.0"), "v1", "go on"),
        "empty parameters were written down": (
            a_ray_cluster(
                upgrade_strategy={"type": "Recreate"},
                head=a_head(ray_start_params={}),
                groups=[a_group(ray_start_params={})],
            ),
            "v1",
            "go on",
        ),
        "another version wrote the hash": (CHANGED, "v0", "change Pod c-head-x"),
        "only replicas and limits changed": (
            a_ray_cluster(
                upgrade_strategy={"type": "Recreate"}, groups=[a_group(replicas=9, max_replicas=99)]
            ),
            "v1",
            "go on",
        ),
    },
)
@pytest.mark.acceptance("raycluster", 80, 81, 82, 83)
def test_what_a_changed_spec_asks_for(cluster: RayCluster, made_by: str, move: str) -> None:
    head = a_head_pod(annotations=all_pods.build_marks(OLD, made_by))
    assert move_of(an_observation(head, cluster=cluster)) == move


def test_the_mark_of_a_head_that_is_about_to_go_is_left_as_it_is() -> None:
    head = a_head_pod(annotations=all_pods.build_marks(OLD, "v0"), phase="Failed")
    assert move_of(an_observation(head, cluster=CHANGED)) == "go on"


def test_old_pods_are_waited_for() -> None:
    head = a_head_pod(annotations=all_pods.build_marks(OLD, "v1"), terminating=True)
    observed = an_observation(head, *some_workers(1, terminating=True), cluster=CHANGED)
    assert move_of(observed) == "wait"


@pytest.mark.parametrize(
    ("made_by", "move"),
    [
        pytest.param("v1", DELETE, id="workers of the old spec"),
        pytest.param("v0", "go on", id="marked by another version"),
        pytest.param(None, "go on", id="made by KubeRay"),
    ],
)
def test_without_a_head_the_workers_tell_of_the_change(made_by: str | None, move: str) -> None:
    annotations = all_pods.build_marks(OLD, made_by) if made_by else None
    workers = some_workers(2, annotations=annotations)
    assert move_of(an_observation(*workers, cluster=CHANGED)) == move


def test_an_old_worker_that_never_ends_does_not_hold_the_new_head_back() -> None:
    (lost,) = some_workers(1, annotations=all_pods.build_marks(OLD, "v1"), terminating=True)
    observed = an_observation(lost, cluster=CHANGED, now=NOW + OVERDUE_AFTER)
    assert move_of(observed) == "go on"


def test_a_head_without_hash_is_left_alone() -> None:
    assert move_of(an_observation(a_head_pod(), cluster=CHANGED)) == "go on"


def test_the_hash_is_kuberays_where_no_parameters_are_given() -> None:
    """KubeRay wrote this hash on the head pod of `tests/golden/kuberay/plain/small.yaml`."""
    nodes = [
        a_template({"name": name, "image": "rayproject/ray:2.52.0"})
        for name in ("ray-head", "ray-worker")
    ]
    spec = a_ray_cluster(
        head=a_head(template=nodes[0]), groups=[a_group(template=nodes[1], priority=0)]
    )
    assert (
        all_pods.build_marks(spec, "v1")[labels.RECREATE_HASH] == "6A3128FC7E80P4TUCJI6U3QKRS8I05KN"
    )
