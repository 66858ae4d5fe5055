"""Batch schedulers of RayJobs (spec rayjob §16; acceptance 121-124)."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from common.api.opaque import Body, Json
from common.api.ray_job import RayJob
from common.feature_gates import BETA, FeatureGate
from job_reconciler import batch
from job_reconciler.resources import ray_cluster, submitter
from job_reconciler.settings import Config
from support.builders.ray_cluster import a_container, a_group, a_head, a_ray_cluster, a_template
from support.builders.ray_job import a_cluster_spec, a_ray_job

RESOURCES = {"requests": {"cpu": "256m", "memory": "256Mi"}}
QUEUE = {"volcano.sh/queue-name": "q", "ray.io/priority-class-name": "high"}
GANG = {
    "ray.io/gang-scheduling-enabled": "",
    "yunikorn.apache.org/app-id": "a",
    "yunikorn.apache.org/queue": "q",
}
SELECTED: Json = {"clusterSelector": {"ray.io/cluster": "chosen"}, "rayClusterSpec": None}
ALL_MODES = ["K8sJobMode", "HTTPMode", "SidecarMode", "InteractiveMode"]


def _template(**spec: Any) -> Json:
    return a_template(a_container(resources=RESOURCES), **spec)


def _spec(**fields: Any) -> Json:
    return a_cluster_spec(
        headGroupSpec=a_head(template=_template()),
        workerGroupSpecs=[a_group(template=_template(), replicas=2, min_replicas=1)],
        **fields,
    )


def _job(
    mode: str = "K8sJobMode",
    *,
    labels: Mapping[str, str] = QUEUE,
    annotations: Mapping[str, str] | None = None,
    **spec: Any,
) -> RayJob:
    fields: Json = {"rayClusterSpec": _spec(), "submissionMode": mode, **spec}
    status = {"rayClusterName": "train-abcde", "jobId": "train-1", "dashboardURL": "head:8265"}
    job = a_ray_job(status=status, annotations=annotations, **fields)
    metadata = msgspec.structs.replace(job.metadata, labels=dict(labels))
    return msgspec.structs.replace(job, metadata=metadata)


def _config(scheduler: str) -> Config:
    return Config(batch_scheduler=scheduler)


def _pod_group(job: RayJob) -> Json:
    body = batch.scheduler(_config("volcano")).build_pod_group(job)
    assert body is not None
    return body


def _marked(scheduler: str, job: RayJob) -> tuple[Body, Body]:
    """Return the metadata of the job's cluster and the pod template of its submitter."""
    config = _config(scheduler)
    cluster = ray_cluster.build(job, config)
    submitting = submitter.build(job, a_ray_cluster("train-abcde"), config)
    batch.scheduler(config).mark_cluster(job, cluster)
    batch.scheduler(config).mark_submitter(job, submitting)
    return cluster["metadata"], submitting["spec"]["template"]


@pytest.mark.acceptance("rayjob", 121)
@pytest.mark.parametrize(
    ("mode", "cpu", "memory"),
    [
        ("K8sJobMode", "1268m", "968Mi"),
        ("SidecarMode", "1268m", "968Mi"),
        ("HTTPMode", "768m", "768Mi"),
        ("InteractiveMode", "768m", "768Mi"),
    ],
)
def test_volcano_reserves_the_cluster_and_the_submitter(mode: str, cpu: str, memory: str) -> None:
    body = _pod_group(_job(mode, annotations={"a": "b"}))
    assert body["metadata"] == {
        "name": "ray-train-pg",
        "namespace": "ns",
        "annotations": {"a": "b"},
        "ownerReferences": [
            {
                "apiVersion": "ray.io/v1",
                "kind": "RayJob",
                "name": "train",
                "uid": "uid-of-train",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    assert body["spec"] == {
        "minMember": 3,
        "minResources": {"cpu": cpu, "memory": memory},
        "queue": "q",
        "priorityClassName": "high",
    }


@pytest.mark.acceptance("rayjob", 121)
def test_the_users_template_of_the_submitter_counts() -> None:
    template = a_template(a_container(resources={"requests": {"cpu": "2"}}))
    resources = _pod_group(_job(submitterPodTemplate=template))["spec"]["minResources"]
    assert resources == {"cpu": "2768m", "memory": "768Mi"}


@pytest.mark.acceptance("rayjob", 121)
def test_an_autoscaled_cluster_needs_its_minimum() -> None:
    job = _job("HTTPMode", rayClusterSpec=_spec(enableInTreeAutoscaling=True))
    spec = _pod_group(job)["spec"]
    assert (spec["minMember"], spec["minResources"]) == (2, {"cpu": "512m", "memory": "512Mi"})


def _last(job: RayJob, **cluster: Any) -> Json | None:
    volcano = batch.scheduler(_config("volcano"))
    live = a_ray_cluster("train-abcde", **cluster) if cluster else None
    body = volcano.build_last_pod_group(job, live)
    return None if body is None else {field: body["spec"][field] for field in _SIZE}


_SIZE = ("minMember", "minResources")
_LIVE: Json = {
    "head": a_head(template=_template()),
    "groups": [a_group(template=_template(), replicas=2)],
}
_SUSPENDED: Json = {
    **_LIVE,
    "groups": [a_group(template=_template(), replicas=2, suspend=True)],
}
_NOTHING: Json = {"minMember": 0, "minResources": {}}


@pytest.mark.acceptance("rayjob", 122)
def test_the_pod_group_shrinks_with_what_is_left_of_a_job() -> None:
    assert _last(_job()) == _NOTHING
    assert _last(_job(), **_LIVE) == {
        "minMember": 3,
        "minResources": {"cpu": "768m", "memory": "768Mi"},
    }
    assert _last(_job(), **_SUSPENDED) == {
        "minMember": 1,
        "minResources": {"cpu": "256m", "memory": "256Mi"},
    }
    ending = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert _last(_job(), **_LIVE, **ending) == _NOTHING


@pytest.mark.acceptance("rayjob", 122)
def test_a_job_that_never_had_a_cluster_leaves_no_pod_group() -> None:
    job = _job()
    status = msgspec.structs.replace(job.status, ray_cluster_name="")
    assert _last(msgspec.structs.replace(job, status=status)) is None
    assert _last(_job(**SELECTED)) is None


@pytest.mark.acceptance("rayjob", 122)
def test_a_pod_group_is_changed_once() -> None:
    full, volcano = _pod_group(_job()), batch.scheduler(_config("volcano"))
    nothing = volcano.build_last_pod_group(_job(), None)
    assert nothing is not None
    stored = {**full, "spec": {**full["spec"], "weight": 7}}
    changed = batch.resize(stored, nothing)
    assert changed is not None
    assert changed["spec"] == {**stored["spec"], **_NOTHING}
    assert batch.resize(changed, nothing) is None
    equal = {**full, "spec": {**full["spec"], "minResources": {"cpu": "1.268", "memory": "968Mi"}}}
    assert batch.resize(equal, full) is None


def test_a_pod_group_of_a_cluster_with_the_name_of_the_job_is_told_apart() -> None:
    body = _pod_group(_job())
    assert batch.find_other_owner(body, _job()) is None
    body["metadata"]["ownerReferences"][0] |= {"kind": "RayCluster", "uid": "another"}
    assert batch.find_other_owner(body, _job()) == "RayCluster train"


def test_volcano_marks_the_cluster_and_the_submitter() -> None:
    cluster, template = _marked("volcano", _job())
    assert cluster["annotations"] == {
        "scheduling.k8s.io/group-name": "ray-train-pg",
        "volcano.sh/task-spec": "",
    }
    assert QUEUE.items() <= cluster["labels"].items()
    assert template["metadata"]["annotations"] == {
        "scheduling.k8s.io/group-name": "ray-train-pg",
        "volcano.sh/task-spec": "submittergroup",
    }
    assert QUEUE.items() <= template["metadata"]["labels"].items()
    assert template["spec"]["schedulerName"] == "volcano"


def test_a_job_on_an_existing_cluster_waits_for_no_pod_group() -> None:
    job = _job(**SELECTED)
    config = _config("volcano")
    body = submitter.build(job, a_ray_cluster("chosen"), config)
    batch.scheduler(config).mark_submitter(job, body)
    template = body["spec"]["template"]
    assert "annotations" not in template["metadata"]
    assert template["spec"]["schedulerName"] == "volcano"
    assert batch.scheduler(config).build_pod_group(job) is None
    assert batch.scheduler(config).find_violation(job) is None


def test_an_unusable_topology_is_named() -> None:
    labels = {
        "volcano.sh/network-topology-mode": "hard",
        "volcano.sh/network-topology-highest-tier-allowed": "two",
    }
    violation = batch.scheduler(_config("volcano")).find_violation(_job(labels=labels))
    assert violation is not None
    assert 'parsing "two": invalid syntax for podgroup ray-train-pg in namespace ns' in violation


@pytest.mark.acceptance("rayjob", 123)
def test_yunikorn_gets_the_same_groups_from_the_cluster_and_the_submitter() -> None:
    cluster, template = _marked("yunikorn", _job(labels=GANG))
    marked = template["metadata"]["annotations"]
    groups = marked["yunikorn.apache.org/task-groups"]
    assert marked["yunikorn.apache.org/task-group-name"] == "submittergroup"
    assert cluster["annotations"] == {"yunikorn.apache.org/task-groups": groups}
    assert msgspec.json.decode(groups) == [
        {"minResource": {"cpu": "256m", "memory": "256Mi"}, "name": "headgroup", "minMember": 1},
        {"minResource": {"cpu": "256m", "memory": "256Mi"}, "name": "g", "minMember": 1},
        {
            "minResource": {"cpu": "500m", "memory": "200Mi"},
            "name": "submittergroup",
            "minMember": 1,
        },
    ]
    for labels in (cluster["labels"], template["metadata"]["labels"]):
        assert (labels["applicationId"], labels["queue"]) == ("a", "q")
    assert template["spec"]["schedulerName"] == "yunikorn"


@pytest.mark.acceptance("rayjob", 123)
def test_yunikorn_gets_the_placing_of_the_submitter() -> None:
    placing = {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}
    template = {"spec": {"containers": [a_container()], **placing}}
    _, marked = _marked("yunikorn", _job(labels=GANG, submitterPodTemplate=template))
    groups = marked["metadata"]["annotations"]["yunikorn.apache.org/task-groups"]
    last = msgspec.json.decode(groups)[-1]
    assert {field: last[field] for field in placing} == placing


@pytest.mark.acceptance("rayjob", 123)
def test_the_users_own_groups_are_kept() -> None:
    own = {"yunikorn.apache.org/task-groups": "[]"}
    cluster, template = _marked("yunikorn", _job(labels=GANG, annotations=own))
    assert cluster["annotations"] == own
    assert template["metadata"]["annotations"] == {
        **own,
        "yunikorn.apache.org/task-group-name": "submittergroup",
    }


@pytest.mark.parametrize(
    ("job", "has_groups"),
    [
        pytest.param(_job(labels={}), False, id="no gang"),
        pytest.param(_job(labels=GANG, **SELECTED), False, id="a selected cluster"),
    ],
)
def test_yunikorn_without_a_gang(job: RayJob, *, has_groups: bool) -> None:
    body = submitter.build(job, a_ray_cluster("chosen"), _config("yunikorn"))
    batch.scheduler(_config("yunikorn")).mark_submitter(job, body)
    assert ("annotations" in body["spec"]["template"]["metadata"]) is has_groups


@pytest.mark.acceptance("rayjob", 124)
@pytest.mark.parametrize("mode", ALL_MODES)
def test_kai_refuses_a_submitter_that_comes_later_and_says_what_to_do(mode: str) -> None:
    violation = batch.scheduler(_config("kai-scheduler")).find_violation(_job(mode))
    if mode != "K8sJobMode":
        assert violation is None
        return
    assert violation is not None
    assert violation.startswith("KAI-Scheduler does not support RayJob with K8sJobMode: ")
    assert violation.endswith("; set spec.submissionMode to SidecarMode or HTTPMode")


@pytest.mark.acceptance("rayjob", 124)
@pytest.mark.parametrize("mode", ALL_MODES)
@pytest.mark.parametrize("name", ["", "scheduler-plugins", "KubernetesWAS"])
def test_other_schedulers_treat_a_job_as_its_cluster(name: str, mode: str) -> None:
    gates = BETA | {FeatureGate.KUBERNETES_WAS} if name == "KubernetesWAS" else BETA
    config = Config(gates=gates, batch_scheduler="" if name == "KubernetesWAS" else name)
    scheduler, job = batch.scheduler(config), _job(mode)
    cluster = ray_cluster.build(job, config)
    submitting = submitter.build(job, a_ray_cluster("train-abcde"), config)
    scheduler.mark_cluster(job, cluster)
    scheduler.mark_submitter(job, submitting)
    assert cluster == ray_cluster.build(job, config)
    assert submitting == submitter.build(job, a_ray_cluster("train-abcde"), config)
    assert scheduler.find_violation(job) is None
    assert scheduler.build_pod_group(job) is None
    assert scheduler.build_last_pod_group(job, None) is None


@pytest.mark.parametrize("name", ["volcano", "yunikorn"])
@pytest.mark.parametrize("mode", ["HTTPMode", "SidecarMode", "InteractiveMode"])
def test_a_cluster_is_marked_only_for_a_kubernetes_job(name: str, mode: str) -> None:
    config, job = _config(name), _job(mode, labels=GANG)
    cluster = ray_cluster.build(job, config)
    batch.scheduler(config).mark_cluster(job, cluster)
    assert cluster == ray_cluster.build(job, config)
