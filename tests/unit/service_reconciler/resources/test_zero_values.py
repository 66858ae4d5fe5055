"""The spec that Go would write back; spec rayservice §2.5."""

from common.api.opaque import Json
from common.ray import spec_hash
from service_reconciler.resources import ray_cluster
from support.builders.ray_service import a_cluster_config, a_group

HEAD_IMAGE = "rayproject/ray:2.52.0"


def with_head(container: Json, **group: Json) -> Json:
    return {
        "headGroupSpec": {
            "template": {"spec": {"containers": [{"name": "h", **container}]}},
            **group,
        }
    }


def test_what_go_never_omits_is_added_and_quantities_are_canonical() -> None:
    config = {
        **with_head({"resources": {"limits": {"cpu": 1, "memory": "2048Mi"}}}),
        "workerGroupSpecs": [a_group()],
    }
    filled = ray_cluster.filled(config)
    head = filled["headGroupSpec"]["template"]
    assert head["metadata"] == {}
    assert head["spec"]["containers"] == [
        {"name": "h", "resources": {"limits": {"cpu": "1", "memory": "2Gi"}}}
    ]
    worker = filled["workerGroupSpecs"][0]
    assert worker["scaleStrategy"] == worker["template"]["metadata"] == {}
    assert worker["template"]["spec"]["containers"][0]["resources"] == {}


def test_what_the_user_wrote_stays_with_fields_that_our_types_do_not_know() -> None:
    config = {
        **with_head(
            {"image": HEAD_IMAGE, "novelty": {"a": [1, "2"]}}, rayStartParams={"num-cpus": "0"}
        ),
        "anotherNovelty": True,
    }
    filled = ray_cluster.filled(config)
    assert filled["anotherNovelty"] is True
    assert filled["headGroupSpec"]["rayStartParams"] == {"num-cpus": "0"}
    assert filled["headGroupSpec"]["template"]["spec"]["containers"][0]["novelty"] == {
        "a": [1, "2"]
    }


def test_it_means_the_same_and_is_the_same_when_done_twice() -> None:
    config = a_cluster_config(a_group(), a_group("b", idleTimeoutSeconds=5), suspend=False)
    filled = ray_cluster.filled(config)
    assert filled != config
    assert ray_cluster.filled(filled) == filled
    assert spec_hash.service_goal_hash(filled) == spec_hash.service_goal_hash(config)
