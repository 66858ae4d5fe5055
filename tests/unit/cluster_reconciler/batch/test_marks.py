"""The marks that each batch scheduler finds on pods (spec raycluster §17; acceptance cases 116,
117).
"""

from typing import Any

import msgspec

from cluster_reconciler import batch
from cluster_reconciler.config import Config
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.feature_gates import BETA, FeatureGate
from common.ray import batch_schedulers
from support.builders.pods import an_observation
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.tables import cases

GANG = "ray.io/gang-scheduling-enabled"
RAY_JOB = {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "job"}


def marked(name: str, cluster: RayCluster, group: str = "g") -> Body:
    pod: Body = {"metadata": {}, "spec": {"schedulerName": "users"}}
    batch.get_scheduler(Config(batch_scheduler=name)).mark(cluster, Config(), group, pod)
    return pod


def a_pod(scheduler: str, **metadata: Any) -> Body:
    return {"metadata": metadata, "spec": {"schedulerName": scheduler}}


@cases(
    ("name", "own", "pod"),
    {
        "none: nothing": ("", {GANG: "true"}, a_pod("users")),
        "case 117: no gang, only labels and scheduler": (
            "yunikorn",
            {"yunikorn.apache.org/app-id": "a", "yunikorn.apache.org/queue": "q"},
            a_pod("yunikorn", labels={"applicationId": "a", "queue": "q"}),
        ),
        "KAI": (
            "kai-scheduler",
            {"kai.scheduler/queue": "q"},
            a_pod("kai-scheduler", labels={"kai.scheduler/queue": "q"}),
        ),
        "KAI without a queue": ("kai-scheduler", {}, a_pod("kai-scheduler")),
        "scheduler-plugins": ("scheduler-plugins", {}, a_pod("scheduler-plugins-scheduler")),
        "case 116: Volcano": (
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
        ),
    },
)
def test_marks(name: str, own: dict[str, str], pod: Body) -> None:
    assert marked(name, a_ray_cluster(labels=own)) == pod


def test_case_116_a_ray_jobs_cluster_shares_the_jobs_pod_group() -> None:
    cluster = a_ray_cluster(labels=RAY_JOB)
    scheduler = batch.Volcano()
    assert scheduler.list_children_to_read(cluster, Config()) == ()
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
    """KubeRay's annotation is the JSON of Go's types, and users compare it with that."""
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
    scheduler = batch.get_scheduler(Config(gates=BETA | {FeatureGate.KUBERNETES_WAS}))
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
    own = {
        batch_schedulers.TOPOLOGY_MODE: "hard",
        batch_schedulers.TOPOLOGY_TIER: "2",
        batch_schedulers.VOLCANO_QUEUE: "q",
    }
    (child,) = batch.SCHEDULERS["volcano"].list_children_to_read(
        a_ray_cluster(labels=own, annotations={"a": "b"}), Config()
    )
    body = child.body
    assert body["spec"]["networkTopology"] == {"mode": "hard", "highestTierAllowed": 2}
    assert body["spec"]["queue"] == "q"
    assert body["metadata"]["annotations"] == {"a": "b"}
    assert msgspec.json.encode(body)


def room_of(config: Config, **fields: Any) -> dict[str, str]:
    """Return the resources that Volcano reserves for a cluster."""
    (child,) = batch.SCHEDULERS["volcano"].list_children_to_read(a_ray_cluster(**fields), config)
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


@cases(
    ("config", "fields", "cpu"),
    {
        "what the templates ask for": (Config(), ONE_EACH, "2"),
        "the autoscaler's container": (Config(), AUTOSCALED, "2500m"),
        "the autoscaler's own resources": (
            Config(),
            {**AUTOSCALED, "autoscaler_options": {"resources": {"requests": {"cpu": "2"}}}},
            "4",
        ),
        "the operator's sidecars": (
            Config(head_sidecars=(SIDECAR,), worker_sidecars=(SIDECAR, SIDECAR)),
            ONE_EACH,
            "2300m",
        ),
        "the collector of each pod": (
            Config(gates=BETA | {FeatureGate.HISTORY_SERVER}),
            {**ONE_EACH, **COLLECTED},
            "2100m",
        ),
        "an init container that needs more than what follows": (
            Config(),
            {**ONE_EACH, "groups": [a_group(template=asking("100m"), replicas=1)]},
            "1200m",
        ),
        "a sidecar among the init containers": (
            Config(),
            {**ONE_EACH, "head": a_head(template=asking("1", init_containers=[ALWAYS]))},
            "2100m",
        ),
        "the overhead of a sandbox": (
            Config(),
            {**ONE_EACH, "head": a_head(template=asking("1", overhead={"cpu": "250m"}))},
            "2250m",
        ),
        "amounts of the whole pod": (
            Config(),
            {
                **ONE_EACH,
                "head": a_head(template=asking("1", resources={"requests": {"cpu": "3"}})),
            },
            "4",
        ),
    },
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
