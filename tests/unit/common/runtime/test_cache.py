"""The cache never takes an older version, and its index gives the result of a scan."""

import copy

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import labels
from common.api.core import Container, Pod, PodSpec, Service
from common.api.meta import ObjectMeta
from common.runtime import cache as caches
from common.runtime.cache import BoundedDict, Cache, PodInterner


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


def test_a_message_replaces_the_answer_of_its_version_and_is_no_change() -> None:
    cache, whole = Cache(), a_pod("a", 5, group="w")
    assert cache.put(a_pod("a", 5))
    assert not cache.put(whole, partition=3)
    assert cache.get(Pod, "default", "a") == whole
    assert not cache.put(a_pod("a", 5), partition=3)
    assert cache.get(Pod, "default", "a") == whole


def test_pods_of_a_group_share_their_equal_parts() -> None:
    cache, status = (
        Cache(),
        {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"},
    )
    owners = [{"kind": "RayCluster", "name": "demo", "uid": "u", "controller": True}]
    for name, image in (("a", "ray:1"), ("b", "ray:1"), ("c", "ray:2")):
        meta = {
            "namespace": "default",
            "name": name,
            "labels": {labels.CLUSTER: "demo"},
            "ownerReferences": owners,
        }
        body = {
            "metadata": meta,
            "spec": {"containers": [{"name": "ray", "image": image}]},
            "status": status,
        }
        pod = msgspec.json.decode(msgspec.json.encode(body), type=Pod)
        cache.put(pod)
        assert cache.get(Pod, "default", name) == pod
    a, b, c = cache.list(Pod, "default", {labels.CLUSTER: "demo"})
    assert a.spec is b.spec
    assert a.spec is not c.spec
    assert a.metadata.owner_references is c.metadata.owner_references
    assert a.status.conditions is c.status.conditions


def test_shared_parts_are_forgotten_before_they_are_too_many(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(caches, "MAX_INTERNED", 3)
    shared = PodInterner()
    for number in range(50):
        pod = a_pod(f"p{number}", number, cluster=str(number))
        assert shared.pod(pod) == pod
        assert len(shared._held) <= 3  # pyright: ignore[reportPrivateUsage]  (what bounds the memory)


def test_a_large_part_of_a_pod_is_its_own() -> None:
    shared, pods = PodInterner(), [a_pod(name, 1) for name in "ab"]
    spec = PodSpec(containers=[Container(name="ray", image="x" * caches.MAX_INTERNED_SIZE)])
    a, b = (shared.pod(msgspec.structs.replace(pod, spec=copy.copy(spec))) for pod in pods)
    assert a.spec == b.spec == spec
    assert a.spec is not b.spec


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


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.integers(1, 20), st.booleans(), st.sampled_from(["x", "y"])
        )
    )
)
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
        alive = {
            name: str(version)
            for name, (version, gone, where) in newest.items()
            if not gone and where == cluster
        }
        assert versions(cache, cluster) == alive
    assert cache.count(Pod) == sum(not gone for _, gone, _ in newest.values())
    assert cache.count(Service) == 0


def test_what_was_set_longest_ago_makes_room() -> None:
    held = BoundedDict[str, int](max_entries=2)
    for number, name in enumerate("abac"):
        held[name] = number
    assert held == {"a": 2, "c": 3}


def test_what_makes_room_or_is_deleted_is_ended() -> None:
    ended: list[int] = []
    held = BoundedDict[str, int](max_entries=2, dropped=ended.append)
    for number, name in enumerate("abac"):
        held[name] = number
    assert ended == [1]
    del held["a"]
    assert held.pop("c", None) == 3
    assert held.pop("c", None) is None
    assert ended == [1, 2, 3]


def test_what_has_a_size_makes_room_before_it_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(caches, "ROOM", 10)
    held = BoundedDict[str, str](size=lambda name, value: len(name) + len(value))
    for name, value in (("a", "12"), ("b", "12"), ("a", "123"), ("c", "12")):
        held[name] = value
    assert held == {"b": "12", "a": "123", "c": "12"}
    del held["c"]
    held["d"] = "12345"
    assert held == {"a": "123", "d": "12345"}
    held["e"] = "beyond the room"
    assert held == {}
