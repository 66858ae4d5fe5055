"""The cache never takes an older version, and its index gives the result of a scan."""

from hypothesis import given
from hypothesis import strategies as st

from common import labels
from common.api.core import Pod, Service
from common.api.meta import ObjectMeta
from common.runtime.cache import Cache


def a_pod(name: str, version: int, cluster: str = "demo", **more: str) -> Pod:
    meta = ObjectMeta(
        namespace="default",
        name=name,
        uid=name,
        resource_version=str(version),
        labels={labels.CLUSTER: cluster, **more},
    )
    return Pod(metadata=meta)


def versions(cache: Cache, cluster: str = "demo") -> dict[str, str]:
    pods = cache.list(Pod, "default", {labels.CLUSTER: cluster})
    return {pod.metadata.name: pod.metadata.resource_version for pod in pods}


def test_a_newer_state_replaces_and_an_older_one_is_ignored() -> None:
    cache = Cache()
    assert cache.put(a_pod("a", 5))
    assert not cache.put(a_pod("a", 4))
    assert not cache.put(a_pod("a", 5))
    assert cache.put(a_pod("a", 6))
    assert versions(cache) == {"a": "6"}


def test_a_late_answer_does_not_bring_a_deleted_object_back() -> None:
    cache = Cache()
    cache.put(a_pod("a", 5))
    assert cache.remove(Pod, "default", "a", version=7)
    assert not cache.put(a_pod("a", 6))
    assert versions(cache) == {}


def test_a_deletion_older_than_what_we_know_is_ignored() -> None:
    cache = Cache()
    cache.put(a_pod("a", 9))
    assert not cache.remove(Pod, "default", "a", version=7)
    assert versions(cache) == {"a": "9"}


def test_a_changed_label_moves_the_object_in_the_index() -> None:
    cache = Cache()
    cache.put(a_pod("a", 1, cluster="one"))
    cache.put(a_pod("a", 2, cluster="two"))
    assert versions(cache, "one") == {}
    assert versions(cache, "two") == {"a": "2"}


def test_a_selector_of_two_labels_matches_both() -> None:
    cache = Cache()
    cache.put(a_pod("a", 1, **{labels.NODE_TYPE: "head"}))
    cache.put(a_pod("b", 1, **{labels.NODE_TYPE: "worker"}))
    found = cache.list(Pod, "default", {labels.CLUSTER: "demo", labels.NODE_TYPE: "head"})
    assert [pod.metadata.name for pod in found] == ["a"]


def test_kinds_do_not_mix() -> None:
    cache = Cache()
    cache.put(a_pod("a", 1))
    assert cache.get(Service, "default", "a") is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 20), st.booleans(), st.sampled_from(["x", "y"]))))
def test_the_newest_message_counts_in_any_order(steps: list[tuple[str, int, bool, str]]) -> None:
    cache = Cache()
    newest: dict[str, tuple[int, bool, str]] = {}
    for name, version, gone, cluster in steps:
        known = newest.get(name)
        if gone:
            cache.remove(Pod, "default", name, version=version)
            if known is None or version >= known[0]:
                newest[name] = (version, True, cluster)
        else:
            cache.put(a_pod(name, version, cluster))
            if known is None or version > known[0]:
                newest[name] = (version, False, cluster)
    for cluster in ("x", "y"):
        alive = {name: str(version) for name, (version, gone, where) in newest.items() if not gone and where == cluster}
        assert versions(cache, cluster) == alive
    assert cache.count(Pod) == sum(not gone for _, gone, _ in newest.values())
    assert cache.count(Service) == 0
