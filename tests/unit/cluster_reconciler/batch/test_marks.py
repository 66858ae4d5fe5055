"""What each batch scheduler finds on pods (spec raycluster §17; acceptance cases 116, 117)."""

from typing import Any

import msgspec
import pytest

from cluster_reconciler import batch
from cluster_reconciler.config import Config
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, Gate
from support.builders.pods import an_observation
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template

GANG = "ray.io/gang-scheduling-enabled"
RAY_JOB = {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "job"}


def marked(name: str, cluster: RayCluster, group: str = "g") -> Body:
    pod: Body = {"metadata": {}, "spec": {"schedulerName": "users"}}
    batch.scheduler(Config(batch_scheduler=name)).mark(cluster, Config(), group, pod)
    return pod


def a_pod(scheduler: str, **metadata: Any) -> Body:
    return {"metadata": metadata, "spec": {"schedulerName": scheduler}}


@pytest.mark.parametrize(
    ("name", "own", "pod"),
    [
        pytest.param("", {GANG: "true"}, a_pod("users"), id="none: nothing"),
        pytest.param(
            "yunikorn",
            {"yunikorn.apache.org/app-id": "a", "yunikorn.apache.org/queue": "q"},
            a_pod("yunikorn", labels={"applicationId": "a", "queue": "q"}),
            id="case 117: no gang, only labels and scheduler",
        ),
        pytest.param(
            "kai-scheduler",
            {"kai.scheduler/queue": "q"},
            a_pod("kai-scheduler", labels={"kai.scheduler/queue": "q"}),
            id="KAI",
        ),
        pytest.param("kai-scheduler", {}, a_pod("kai-scheduler"), id="KAI without a queue"),
        pytest.param(
            "scheduler-plugins", {}, a_pod("scheduler-plugins-scheduler"), id="scheduler-plugins"
        ),
        pytest.param(
            "volcano",
            {"volcano.sh/queue-name": "q", "ray.io/priority-class-name": "p"},
            a_pod(
                "volcano",
                labels={"volcano.sh/queue-name": "q", "ray.io/priority-class-name": "p"},
                annotations={
                    "scheduling.k8s.io/group-name": "ray-c-pg",
                    "volcano.sh/task-spec": "g",
                },
            ),
            id="case 116: Volcano",
        ),
    ],
)
def test_marks(name: str, own: dict[str, str], pod: Body) -> None:
    assert marked(name, a_ray_cluster(labels=own)) == pod


def test_case_116_a_ray_jobs_cluster_shares_the_jobs_pod_group() -> None:
    cluster = a_ray_cluster(labels=RAY_JOB)
    scheduler = batch.Volcano()
    assert scheduler.looked_up(cluster, Config()) == ()
    assert scheduler.submit(an_observation(cluster=cluster)).actions == ()
    pod = marked("volcano", cluster)
    assert pod["metadata"]["annotations"]["scheduling.k8s.io/group-name"] == "ray-job-pg"


def test_case_117_a_gang_of_yunikorn_describes_its_groups() -> None:
    template = a_template(
        a_container(resources={"limits": {"cpu": "2"}, "requests": {"memory": "1Gi"}}),
        node_selector={"a": "b"},
    )
    groups = [a_group(template=template, min_replicas=2, num_of_hosts=4)]
    cluster = a_ray_cluster(labels={GANG: ""}, head=a_head(template=a_template()), groups=groups)
    annotations = marked("yunikorn", cluster)["metadata"]["annotations"]
    assert annotations["yunikorn.apache.org/task-group-name"] == "g"
    assert annotations["yunikorn.apache.org/task-groups"] == (
        '[{"minResource":{},"name":"headgroup","minMember":1},'
        '{"minResource":{"cpu":"2","memory":"1Gi"},"nodeSelector":{"a":"b"},"name":"g","minMember":8}]'
    )


def test_what_go_leaves_out_is_in_no_description_of_a_gang() -> None:
    """KubeRay's annotation is the JSON of Go's types, and so is what a user compares it with."""
    template = a_template(
        a_container(),
        node_selector={"a": "<b>"},
        affinity={},
        tolerations=[{"key": "k", "operator": ""}],
    )
    cluster = a_ray_cluster(labels={GANG: ""}, head=a_head(template=template), groups=[])
    assert marked("yunikorn", cluster)["metadata"]["annotations"][
        "yunikorn.apache.org/task-groups"
    ] == (
        '[{"minResource":{},"nodeSelector":{"a":"\\u003cb\\u003e"},"affinity":{},"name":"headgroup","tolerations":[{"key":"k"}],"minMember":1}]'
    )


def test_the_users_own_task_groups_win() -> None:
    cluster = a_ray_cluster(
        labels={GANG: ""}, annotations={"yunikorn.apache.org/task-groups": "[]"}
    )
    annotations = marked("yunikorn", cluster)["metadata"]["annotations"]
    assert annotations["yunikorn.apache.org/task-groups"] == "[]"


def test_workload_aware_scheduling_marks_only_a_gang() -> None:
    scheduler = batch.scheduler(Config(gates=BETA | {Gate.KUBERNETES_WAS}))
    pod: Body = {"metadata": {}, "spec": {}}
    scheduler.mark(
        a_ray_cluster(labels={GANG: "true"}, enable_in_tree_autoscaling=True), Config(), "g", pod
    )
    assert pod == {"metadata": {}, "spec": {}}
    scheduler.mark(a_ray_cluster(labels={GANG: "TRUE"}), Config(), "g", pod)
    assert pod["spec"] == {
        "schedulingGroup": {"podGroupName": "c-cluster"},
        "schedulerName": "default-scheduler",
    }


def test_a_topology_is_taken_over() -> None:
    own = {batch.TOPOLOGY_MODE: "hard", batch.TOPOLOGY_TIER: "2", batch.VOLCANO_QUEUE: "q"}
    (child,) = batch.SCHEDULERS["volcano"].looked_up(
        a_ray_cluster(labels=own, annotations={"a": "b"}), Config()
    )
    body = child.body
    assert body["spec"]["networkTopology"] == {"mode": "hard", "highestTierAllowed": 2}
    assert body["spec"]["queue"] == "q"
    assert body["metadata"]["annotations"] == {"a": "b"}
    assert msgspec.json.encode(body)


def room_of(config: Config, **fields: Any) -> dict[str, str]:
    """Return what Volcano reserves for a cluster."""
    (child,) = batch.SCHEDULERS["volcano"].looked_up(a_ray_cluster(**fields), config)
    return child.body["spec"]["minResources"]


def asking(cpu: str, **fields: Any) -> Body:
    return a_template(a_container(resources={"requests": {"cpu": cpu}}), **fields)


ONE_EACH: Any = {
    "head": a_head(template=asking("1")),
    "groups": [a_group(template=asking("1"), replicas=1, min_replicas=1)],
}
AUTOSCALED: Any = {**ONE_EACH, "enable_in_tree_autoscaling": True}
SIDECAR: Body = {"name": "s", "image": "i", "resources": {"requests": {"cpu": "100m"}}}
ALWAYS: Body = {**SIDECAR, "restartPolicy": "Always"}
COLLECTED = {"historyServerOptions": {"collectorOptions": {"image": "i"}}}


@pytest.mark.parametrize(
    ("config", "fields", "cpu"),
    [
        pytest.param(Config(), ONE_EACH, "2", id="what the templates ask for"),
        pytest.param(Config(), AUTOSCALED, "2500m", id="the autoscaler's container"),
        pytest.param(
            Config(),
            {**AUTOSCALED, "autoscaler_options": {"resources": {"requests": {"cpu": "2"}}}},
            "4",
            id="the autoscaler's own resources",
        ),
        pytest.param(
            Config(head_sidecars=(SIDECAR,), worker_sidecars=(SIDECAR, SIDECAR)),
            ONE_EACH,
            "2300m",
            id="the operator's sidecars",
        ),
        pytest.param(
            Config(gates=BETA | {Gate.HISTORY_SERVER}),
            {**ONE_EACH, **COLLECTED},
            "2100m",
            id="the collector of each pod",
        ),
        pytest.param(
            Config(),
            {**ONE_EACH, "groups": [a_group(template=asking("100m"), replicas=1)]},
            "1200m",
            id="an init container that needs more than what follows",
        ),
        pytest.param(
            Config(),
            {**ONE_EACH, "head": a_head(template=asking("1", init_containers=[ALWAYS]))},
            "2100m",
            id="a sidecar among the init containers",
        ),
        pytest.param(
            Config(),
            {**ONE_EACH, "head": a_head(template=asking("1", overhead={"cpu": "250m"}))},
            "2250m",
            id="the overhead of a sandbox",
        ),
        pytest.param(
            Config(),
            {
                **ONE_EACH,
                "head": a_head(template=asking("1", resources={"requests": {"cpu": "3"}})),
            },
            "4",
            id="amounts of the whole pod",
        ),
    ],
)
def test_a_gang_has_room_for_its_pods_as_they_are_built(
    config: Config, fields: Any, cpu: str
) -> None:
    assert room_of(config, **fields)["cpu"] == cpu


def test_the_room_of_a_gang_follows_the_spec_and_the_operators_file() -> None:
    assert room_of(Config(), **ONE_EACH)["cpu"] == "2"
    assert room_of(Config(), **AUTOSCALED)["cpu"] == "2500m"
    assert room_of(Config(head_sidecars=(SIDECAR,)), **AUTOSCALED)["cpu"] == "2600m"
    assert room_of(Config(), **ONE_EACH)["cpu"] == "2"
