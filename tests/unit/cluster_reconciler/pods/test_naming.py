from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_reconciler.pods.naming import Namer
from common.names import SAFE_ALPHABET
from support.builders.pods import a_pod, an_observation, some_workers
from support.builders.ray_cluster import a_ray_cluster


def draw(*pods: str, version: str = "1", place: str = "0/0") -> str:
    observed = an_observation(
        *(a_pod(name) for name in pods), cluster=a_ray_cluster(metadata={"resourceVersion": version})
    )
    return Namer(observed).pod("c-g-worker-", "g", place)


def test_the_same_observation_gives_the_same_name() -> None:
    assert draw("a", "b") == draw("b", "a")


def test_a_name_has_a_suffix_of_five_safe_characters() -> None:
    prefix, suffix = draw()[:-5], draw()[-5:]
    assert prefix == "c-g-worker-"
    assert set(suffix) <= set(SAFE_ALPHABET)


def test_place_pods_and_version_of_the_cluster_all_change_the_name() -> None:
    assert len({draw(), draw(place="1/0"), draw("a"), draw(version="2")}) == 4


def test_a_name_does_not_come_back_when_the_autoscaler_has_named_its_pod() -> None:
    """Naming a pod in workersToDelete changes the RayCluster, so the same group of pods draws another name afterwards."""
    assert draw("a", "b", version="1") != draw("a", "b", version="2")


def test_a_taken_name_is_passed_over() -> None:
    first = draw()
    observed = an_observation(taken=frozenset({first}))
    assert Namer(observed).pod("c-g-worker-", "g", "0/0") != first


@settings(deadline=None)
@given(st.integers(1, 30))
def test_one_plan_never_draws_a_name_twice(count: int) -> None:
    observed = an_observation(*some_workers(3))
    namer = Namer(observed)
    drawn = [namer.pod("p-", "g", f"{number % 3}/0") for number in range(count)]
    assert len(set(drawn)) == count
