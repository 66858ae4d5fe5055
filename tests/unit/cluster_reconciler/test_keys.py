import msgspec
import pytest

from cluster_reconciler.wiring import keys_of, rank
from common.api.meta import OwnerReference
from common.api.ray_cluster import RayClusterStatus
from common.runtime.cache import Cache
from common.runtime.key import Key
from support.builders.pods import a_pod
from support.builders.ray_cluster import a_ray_cluster

OWNER = OwnerReference(
    api_version="ray.io/v1", kind="RayCluster", name="c", uid="u", controller=True
)


@pytest.mark.parametrize(
    ("owners", "keys"),
    [
        pytest.param([OWNER], [Key("ns", "c")], id="a RayCluster controls it"),
        pytest.param(
            [msgspec.structs.replace(OWNER, api_version="ray.io/v1alpha1")],
            [Key("ns", "c")],
            id="any version",
        ),
        pytest.param(
            [msgspec.structs.replace(OWNER, controller=None)],
            [],
            id="an owner that does not control it",
        ),
        pytest.param([msgspec.structs.replace(OWNER, kind="RayService")], [], id="another kind"),
        pytest.param(
            [msgspec.structs.replace(OWNER, api_version="example.org/v1")], [], id="another group"
        ),
        pytest.param([], [], id="a label alone does not count"),
    ],
)
def test_a_child_enqueues_its_controller(owners: list[OwnerReference], keys: list[Key]) -> None:
    pod = a_pod("p")
    pod = msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=owners)
    )
    assert list(keys_of(pod)) == keys


def test_a_cluster_enqueues_itself() -> None:
    assert list(keys_of(a_ray_cluster())) == [Key("ns", "c")]


@pytest.mark.parametrize(
    ("status", "is_steady"),
    [
        pytest.param(
            {"state": "ready", "desiredWorkerReplicas": 3, "readyWorkerReplicas": 3},
            True,
            id="all is there",
        ),
        pytest.param({"state": "ready"}, True, id="a head alone"),
        pytest.param(
            {"state": "ready", "desiredWorkerReplicas": 3, "readyWorkerReplicas": 2},
            False,
            id="a worker lacks",
        ),
        pytest.param(
            {"desiredWorkerReplicas": 3, "readyWorkerReplicas": 3}, False, id="never ready"
        ),
        pytest.param({"state": "suspended"}, False, id="suspended"),
    ],
)
def test_a_cluster_that_had_all_its_pods_is_steady(
    status: dict[str, object], *, is_steady: bool
) -> None:
    cache = Cache()
    cluster = msgspec.structs.replace(
        a_ray_cluster(), status=msgspec.convert(status, RayClusterStatus)
    )
    cache.put(cluster)
    assert rank(Key("ns", "c"), cache).is_steady is is_steady
    assert not rank(Key("ns", "another"), cache).is_steady
