from datetime import timedelta

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from cluster_reconciler.observed import Observed
from cluster_reconciler.resources.node import Namer
from common.names import SAFE_ALPHABET
from support.builders.pods import NOW, a_pod, an_observation, some_workers
from support.builders.ray_cluster import a_group, a_ray_cluster

PREFIX = "c-g-worker-"


def draw(observed: Observed, place: str = "0", *, hours: int = 0) -> str:
    later = msgspec.structs.replace(observed, now=NOW + timedelta(hours=hours))
    (name,), _ = Namer(later).draw(PREFIX, "g", place)
    return name


def test_a_name_has_a_suffix_of_five_safe_characters() -> None:
    name = draw(an_observation())
    assert name[:-5] == PREFIX
    assert set(name[-5:]) <= set(SAFE_ALPHABET)


def test_owners_with_different_knowledge_draw_the_same_name() -> None:
    version = a_ray_cluster(metadata={"resourceVersion": "2", "generation": 2})
    others = [
        an_observation(a_pod("a")),
        an_observation(*some_workers(3)),
        an_observation(cluster=version),
    ]
    assert {draw(each, "7") for each in others} == {draw(an_observation(), "7")}


def test_place_cluster_and_hour_change_the_name() -> None:
    other = an_observation(cluster=a_ray_cluster(metadata={"uid": "another"}))
    first = an_observation()
    assert len({draw(first), draw(first, "1"), draw(other), draw(first, hours=1)}) == 4


def test_the_first_pods_are_named_by_the_hour_of_their_cluster_whenever_they_are_made() -> None:
    made = {"creationTimestamp": "2026-01-01T11:59:50Z"}
    new = an_observation(cluster=a_ray_cluster(metadata=made))
    observed = an_observation(
        cluster=a_ray_cluster(metadata=made, status={"lastUpdateTime": "2026-01-01T11:59:59Z"})
    )
    assert draw(new) == draw(new, hours=1)
    assert draw(observed) != draw(observed, hours=1)


def test_what_is_there_what_is_gone_and_what_the_autoscaler_names_is_passed_over() -> None:
    first = draw(an_observation())
    named = a_ray_cluster(groups=[a_group(scale_strategy={"workersToDelete": [first]})])
    for observed in (
        an_observation(a_pod(first)),
        an_observation(unavailable_names=frozenset({first})),
        an_observation(cluster=named),
    ):
        assert draw(observed) != first


def test_the_hosts_of_a_replica_share_its_name_and_move_on_together() -> None:
    hosts, replica = Namer(an_observation()).draw(PREFIX, "g", "0", hosts=3)
    assert len(set(hosts)) == 3
    others, other = Namer(an_observation(unavailable_names=frozenset({hosts[1]}))).draw(
        PREFIX, "g", "0", hosts=3
    )
    assert {*hosts, replica}.isdisjoint({*others, other})


def test_the_name_of_a_replica_of_a_long_group_fits_a_label() -> None:
    _, replica = Namer(an_observation()).draw(PREFIX, "g" * 63, "0", hosts=2)
    assert len(replica) == 63


@settings(deadline=None)
@given(st.integers(1, 30))
def test_one_plan_never_draws_a_name_twice(count: int) -> None:
    namer = Namer(an_observation(*some_workers(3)))
    drawn = [name for number in range(count) for name in namer.draw("p-", "g", str(number % 3))[0]]
    assert len(set(drawn)) == count
