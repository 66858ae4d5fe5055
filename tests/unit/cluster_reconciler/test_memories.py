"""What cluster-reconciler remembers of a cluster ends with that cluster, and not with another one
of the same name.
"""

from cluster_reconciler.config import Config
from cluster_reconciler.observe import Observer
from common.runtime.cache import Cache
from common.runtime.key import Key
from support.builders.ray_cluster import a_ray_cluster
from support.fakes.kube import FakeKube


def test_a_cluster_that_is_gone_takes_nothing_of_a_new_one_of_its_name_along() -> None:
    observer, key = Observer(FakeKube(), Cache(), Config()), Key("ns", "c")
    gone, new = a_ray_cluster(), a_ray_cluster(metadata={"uid": "another"})
    known = observer.get_memory(new)
    observer.forget([gone])
    assert observer.memories == {key: known}
    observer.forget([new])
    assert observer.memories == {}
