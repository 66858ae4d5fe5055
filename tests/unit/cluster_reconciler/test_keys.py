import msgspec
from msgspec.structs import replace

from cluster_reconciler.wiring import keys_of, rank
from common.api.meta import OwnerReference
from common.api.ray_cluster import RayClusterStatus
from common.runtime.cache import Cache
from common.runtime.key import Key
from support.builders.pods import a_pod
from support.builders.ray_cluster import a_ray_cluster
from support.tables import cases

OWNER = OwnerReference(
    api_version="ray.io/v1", kind="RayCluster", name="c", uid="u", controller=True
)


@cases(
    ("owners", "keys"),
    {
        "a RayCluster controls it": ([OWNER], [Key("ns", "c")]),
        "any version": ([replace(OWNER, api_version="ray.io/v1alpha1")], [Key("ns", "c")]),
        "an owner that does not control it": ([replace(OWNER, controller=None)], []),
        "another kind": ([replace(OWNER, kind="RayService")], []),
        "another group": ([replace(OWNER, api_version="example.org/v1")], []),
        "a label alone does not count": ([], []),
    },
)
def test_a_child_enqueues_its_controller(owners: list[OwnerReference], keys: list[Key]) -> None:
    pod = a_pod("p")
    pod = replace(pod, metadata=replace(pod.metadata, owner_references=owners))
    assert list(keys_of(pod)) == keys


def test_a_cluster_enqueues_itself() -> None:
    assert list(keys_of(a_ray_cluster())) == [Key("ns", "c")]


@cases(
    ("status", "is_steady"),
    {
        "all is there": (
            {"state": "ready", "desiredWorkerReplicas": 3, "readyWorkerReplicas": 3},
            True,
        ),
        "a head alone": ({"state": "ready"}, True),
        "a worker lacks": (
            {"state": "ready", "desiredWorkerReplicas": 3, "readyWorkerReplicas": 2},
            False,
        ),
        "never ready": ({"desiredWorkerReplicas": 3, "readyWorkerReplicas": 3}, False),
        "suspended": ({"state": "suspended"}, False),
    },
)
def test_a_cluster_that_had_all_its_pods_is_steady(
    status: dict[str, object], *, is_steady: bool
) -> None:
    cache = Cache()
    cluster = replace(a_ray_cluster(), status=msgspec.convert(status, RayClusterStatus))
    cache.put(cluster)
    assert rank(Key("ns", "c"), cache).is_steady is is_steady
    assert not rank(Key("ns", "another"), cache).is_steady
