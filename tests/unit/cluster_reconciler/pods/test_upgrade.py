import pytest

from cluster_reconciler.pods import upgrade
from cluster_reconciler.pods.upgrade import UpgradeMove
from common.api.ray_cluster import RayCluster
from support.builders.pods import a_head_pod, an_observation, some_workers
from support.builders.ray_cluster import a_group, a_ray_cluster

OLD = a_ray_cluster(upgrade_strategy={"type": "Recreate"})
CHANGED = a_ray_cluster(upgrade_strategy={"type": "Recreate"}, ray_version="2.53.0")


@pytest.mark.parametrize(
    ("cluster", "made_by", "move"),
    [
        pytest.param(OLD, "v1", UpgradeMove.GO_ON, id="nothing changed"),
        pytest.param(CHANGED, "v1", UpgradeMove.RECREATE, id="the spec changed"),
        pytest.param(a_ray_cluster(ray_version="2.53.0"), "v1", UpgradeMove.GO_ON, id="no strategy"),
        pytest.param(CHANGED, "v0", UpgradeMove.REFRESH, id="another version wrote the hash"),
        pytest.param(
            a_ray_cluster(upgrade_strategy={"type": "Recreate"}, groups=[a_group(replicas=9, max_replicas=99)]),
            "v1",
            UpgradeMove.GO_ON,
            id="only replicas and limits changed",
        ),
    ],
)
@pytest.mark.acceptance("raycluster", 80, 81, 82, 83)
def test_what_a_changed_spec_asks_for(cluster: RayCluster, made_by: str, move: UpgradeMove) -> None:
    head = a_head_pod(annotations=upgrade.marks(OLD, made_by))
    assert upgrade.decide(an_observation(head, cluster=cluster), "v1") is move


def test_old_pods_are_waited_for() -> None:
    head = a_head_pod(annotations=upgrade.marks(OLD, "v1"), terminating=True)
    observed = an_observation(head, *some_workers(1, terminating=True), cluster=CHANGED)
    assert upgrade.decide(observed, "v1") is UpgradeMove.WAIT


def test_a_head_without_hash_is_left_alone() -> None:
    assert upgrade.decide(an_observation(a_head_pod(), cluster=CHANGED), "v1") is UpgradeMove.GO_ON
