"""Whether a cluster still matches the RayService; spec rayservice §6.2, §6.3, acceptance 16-23."""

from typing import Any

from common import labels
from common.api import ray_cluster as types
from common.api import ray_service
from common.api.opaque import Json
from common.runtime.cache import ROOM
from common.version import OPERATOR_VERSION
from service_reconciler.resources import ray_cluster
from service_reconciler.resources.ray_cluster import Match
from support.builders.ray_service import a_cluster_config, a_group, a_ray_service
from support.memory import measured
from support.tables import cases


def compare(made_from: Json, goal: Json, **annotations: str) -> Match:
    first = ray_service.decode(a_ray_service(config=made_from))
    built = ray_cluster.build(first, "demo-abcde")
    built["metadata"]["annotations"] |= annotations
    return ray_cluster.match(types.decode(built), ray_service.decode(a_ray_service(config=goal)))


BASE = a_cluster_config()
OTHER: dict[str, Any] = {labels.KUBERAY_VERSION: "v1.5.1", labels.SPEC_HASH: "another algorithm's"}


@cases(
    ("goal", "annotations", "expected"),
    {
        "the same": (BASE, {}, Match.FULL),
        "the autoscaler's fields": (
            a_cluster_config(a_group(replicas=4, minReplicas=2)),
            {},
            Match.FULL,
        ),
        "a group at the end": (a_cluster_config(a_group(), a_group("b")), {}, Match.APPENDED),
        "a group in front": (a_cluster_config(a_group("b"), a_group()), {}, Match.DIFFERENT),
        "another image": (a_cluster_config(image="other"), {}, Match.DIFFERENT),
        "no number: KubeRay": (
            a_cluster_config(image="o"),
            {labels.NUM_WORKER_GROUPS: "x"},
            Match.APPENDED,
        ),
        "another version, the same content": (BASE, OTHER, Match.FULL),
        "another version, another image": (a_cluster_config(image="other"), OTHER, Match.DIFFERENT),
        "another version, a group more": (
            a_cluster_config(a_group(), a_group("b")),
            OTHER,
            Match.APPENDED,
        ),
    },
)
def test_what_a_cluster_is_to_the_goal(
    goal: Json, annotations: dict[str, str], expected: Match
) -> None:
    assert compare(BASE, goal, **annotations) is expected


@cases(
    ("annotations", "expected"),
    {
        "ours": ({}, False),
        "KubeRay's, with the same content": ({labels.KUBERAY_VERSION: "nightly"}, False),
        "a released KubeRay's, with the same content": ({labels.KUBERAY_VERSION: "v1.5.1"}, False),
        "KubeRay's, of another algorithm": (OTHER, True),
        "another number": ({labels.KUBERAY_VERSION: "v1.5.1", labels.NUM_WORKER_GROUPS: "2"}, True),
        "an older raybus": ({labels.KUBERAY_VERSION: "raybus-v0.0.9"}, True),
        "nobody known": ({labels.KUBERAY_VERSION: "old"}, True),
    },
)
def test_which_annotations_are_renewed(annotations: dict[str, str], expected: bool) -> None:
    service = ray_service.decode(a_ray_service(config=BASE))
    built = ray_cluster.build(service, "demo-abcde")
    built["metadata"]["annotations"] |= annotations
    assert ray_cluster.needs_stamp(types.decode(built), service) is expected


def test_a_cluster_carries_labels_annotations_and_owner() -> None:
    service = ray_service.decode(a_ray_service(annotations={"x": "y"}))
    meta = ray_cluster.build(service, "demo-abcde")["metadata"]
    assert meta["labels"] == {
        "team": "a",
        labels.ORIGIN_NAME: "demo",
        labels.ORIGIN_KIND: "RayService",
    }
    assert meta["annotations"] == {
        "x": "y",
        labels.SPEC_HASH: ray_cluster.goal_hash(service),
        labels.NUM_WORKER_GROUPS: "1",
        labels.KUBERAY_VERSION: OPERATOR_VERSION,
    }
    assert meta["ownerReferences"][0]["controller"] is True


def test_the_hashes_of_large_specs_are_remembered_as_long_as_there_is_room() -> None:
    """The specs come one after the other, as from a RayService that is edited again and again."""
    made = types.decode(ray_cluster.build(ray_service.decode(a_ray_service()), "demo-abcde"))
    hashes = set[str]()
    with measured() as kept:
        for number in range(100):
            config = a_cluster_config(image=f"{number}{'x' * 1_000_000}")
            service = ray_service.decode(a_ray_service(config=config))
            hashes.add(ray_cluster.goal_hash(service))
            assert ray_cluster.match(made, service) is Match.DIFFERENT
        assert kept() < 1.1 * ROOM
    assert len(hashes) == 100
