"""Rules on the head and on each worker group by itself, S1-S15 (acceptance cases 7, 18)."""

import pytest

from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA
from common.validation import ray_cluster as cluster_rules
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.tables import cases

NO_CONTAINER: Json = {"spec": {"containers": []}}
V2 = {"version": "v2"}
V2_BY_ENV = a_head(
    template=a_template(a_container(env=[{"name": "RAY_enable_autoscaler_v2", "value": "1"}]))
)
TWICE = "resource fields should not be set in both rayStartParams and Resources for {} group; please use only one"
LABELS = "rayStartParams['labels'] is not supported for {} group; please use the top-level Labels field instead"
V2_FOR_IDLE = (
    "worker group g: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please set "
    ".spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment variable to 'true' "
    "in the head pod if using KubeRay < 1.4.0)"
)
V2_FOR_PRIORITY = (
    "worker group g: priority is set to 7, but autoscaler v2 is not enabled. "
    "Priority is only supported with autoscaler v2 enabled"
)
MALFORMED_KEY = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
MALFORMED_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)


@pytest.mark.parametrize(
    ("cluster", "message"),
    [
        pytest.param(a_ray_cluster(), None, id="the plain cluster is valid"),
        pytest.param(
            a_ray_cluster(head=a_head(template=NO_CONTAINER)),
            "headGroupSpec should have at least one container",
            id="S1: a head without a container",
        ),
        *(
            pytest.param(
                a_ray_cluster(head=a_head(ray_start_params={param: "1"}, resources={"cpu": "1"})),
                TWICE.format("Head"),
                id=f"S2: {param} and resources on the head",
            )
            for param in ("num-cpus", "num-gpus", "memory", "resources")
        ),
        pytest.param(
            a_ray_cluster(head=a_head(ray_start_params={"num-cpus": ""}, resources={"cpu": "1"})),
            None,
            id="S2: an empty param does not count",
        ),
        pytest.param(
            a_ray_cluster(head=a_head(ray_start_params={"num-cpus": "1"}, resources={})),
            None,
            id="S2: empty resources do not count",
        ),
        pytest.param(
            a_ray_cluster(head=a_head(ray_start_params={"labels": ""})),
            LABELS.format("Head"),
            id="S3 / case 18: labels as a param, even empty",
        ),
        pytest.param(
            a_ray_cluster(head=a_head(labels={"-b": "v", "a": "v-"})),
            f"invalid label key for Head group: '-b', error: {MALFORMED_KEY}; "
            f"invalid label value for key 'a' in Head group: 'v-', error: {MALFORMED_VALUE}",
            id="S4: all malformed labels are named, by key",
        ),
    ],
)
def test_head(cluster: RayCluster, message: str | None) -> None:
    assert cluster_rules.spec(cluster, BETA) == message


@cases(
    ("group", "spec", "message"),
    {
        "S5: a group without a container": (
            a_group(template=NO_CONTAINER),
            {},
            "workerGroupSpec should have at least one container",
        ),
        "S6: no minimum without autoscaling": (
            a_group(min_replicas=None),
            {},
            "worker group g must set both minReplicas and maxReplicas when autoscaling is disabled",
        ),
        "S6: no maximum without autoscaling": (
            a_group(max_replicas=None),
            {},
            "worker group g must set both minReplicas and maxReplicas when autoscaling is disabled",
        ),
        "S6: the autoscaler needs no bounds": (
            a_group(min_replicas=None, max_replicas=None),
            {"enable_in_tree_autoscaling": True},
            None,
        ),
        "S7: minimum": (a_group(min_replicas=-1), {}, "worker group g has negative minReplicas -1"),
        "S8: maximum": (a_group(max_replicas=-2), {}, "worker group g has negative maxReplicas -2"),
        "S9 / case 7: minimum above maximum": (
            a_group(min_replicas=5, max_replicas=1),
            {},
            "worker group g has minReplicas 5 greater than maxReplicas 1",
        ),
        "S10: resources twice": (
            a_group(ray_start_params={"memory": "1"}, resources={"memory": "1Gi"}),
            {},
            TWICE.format("g"),
        ),
        "S11: labels as a param": (
            a_group(ray_start_params={"labels": "a=b"}),
            {},
            LABELS.format("g"),
        ),
        "S12: a malformed label": (
            a_group(labels={"a": "v-"}),
            {},
            f"invalid label value for key 'a' in g group: 'v-', error: {MALFORMED_VALUE}",
        ),
        "S13: a negative idle timeout": (
            a_group(idle_timeout_seconds=-1),
            {},
            "worker group g: idleTimeoutSeconds must be non-negative, got -1",
        ),
        "S14: an idle timeout needs autoscaler v2": (
            a_group(idle_timeout_seconds=0),
            {},
            V2_FOR_IDLE,
        ),
        "S14: v2 in the options will do": (
            a_group(idle_timeout_seconds=9),
            {"autoscaler_options": V2},
            None,
        ),
        "S14: v2 in the head's environment will do": (
            a_group(idle_timeout_seconds=9),
            {"head": V2_BY_ENV, "enable_in_tree_autoscaling": True},
            None,
        ),
        "S15a: a priority needs a Ray version": (
            a_group(priority=7),
            {},
            "worker group g: priority is set, but RayVersion was not specified. "
            "Ray version 2.56.0 or later is required",
        ),
        "S15b: a readable one": (
            a_group(priority=7),
            {"ray_version": "nightly"},
            "worker group g: priority is set, but RayVersion format is invalid: nightly, "
            'could not parse "nightly" as version',
        ),
        "S15c: a new one": (
            a_group(priority=7),
            {"ray_version": "2.55.9"},
            "worker group g: priority is set, but minimum Ray version is 2.56.0, got 2.55.9",
        ),
        "S15d: and autoscaler v2": (
            a_group(priority=7),
            {"ray_version": "2.56.0"},
            V2_FOR_PRIORITY,
        ),
        "S15: all is there": (
            a_group(priority=7),
            {"ray_version": "2.56.0", "autoscaler_options": V2},
            None,
        ),
        "S15: no priority is no wish": (a_group(priority=0), {}, None),
    },
)
def test_worker_group(group: Json, spec: Json, message: str | None) -> None:
    assert cluster_rules.spec(a_ray_cluster(groups=[group], **spec), BETA) == message


def test_groups_are_checked_one_after_another() -> None:
    groups = [a_group("a", idle_timeout_seconds=-1), a_group("b", min_replicas=-1)]
    assert cluster_rules.spec(a_ray_cluster(groups=groups), BETA) == (
        "worker group a: idleTimeoutSeconds must be non-negative, got -1"
    )


def test_the_head_comes_before_the_groups() -> None:
    cluster = a_ray_cluster(
        head=a_head(ray_start_params={"labels": "a=b"}), groups=[a_group(min_replicas=-1)]
    )
    assert cluster_rules.spec(cluster, BETA) == LABELS.format("Head")


def test_case_14_two_groups_of_one_name_pass() -> None:
    assert cluster_rules.spec(a_ray_cluster(groups=[a_group("g"), a_group("g")]), BETA) is None
