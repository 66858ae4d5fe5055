"""YuniKorn: everything it needs is on the pods (spec raycluster §17.2; acceptance case 117)."""

from typing import Final

import msgspec

from cluster_reconciler.batch.port import GANG, Unannounced, copy_label
from cluster_reconciler.pods import groups
from common import labels, pod_json
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.ray import cluster_traits as traits
from common.ray import desired_resources

APP_ID: Final = "yunikorn.apache.org/app-id"
QUEUE: Final = "yunikorn.apache.org/queue"
TASK_GROUP: Final = "yunikorn.apache.org/task-group-name"
TASK_GROUPS: Final = "yunikorn.apache.org/task-groups"


class YuniKorn(Unannounced):
    """Implements `BatchScheduler`."""

    def mark(self, cluster: RayCluster, group: str, pod: Body) -> None:
        """Name application, queue and scheduler, and for a gang its groups."""
        copy_label(cluster, pod, APP_ID, into="applicationId")
        copy_label(cluster, pod, QUEUE, into="queue")
        pod["spec"]["schedulerName"] = "yunikorn"
        if GANG in cluster.metadata.labels:
            known = cluster.metadata.annotations.get(TASK_GROUPS) or task_groups(cluster)
            pod_json.ensure_body(pod["metadata"], "annotations").update({TASK_GROUP: group, TASK_GROUPS: known})


def task_groups(cluster: RayCluster) -> str:
    """Describe the gang: the head, then every worker group with the pods that it must have at least."""
    head = _task_group(labels.HEAD_GROUP, cluster.spec.head_group_spec.template, 1)
    workers = [
        _task_group(group.group_name, group.template, (group.min_replicas or 0) * groups.hosts(group))
        for group in traits.worker_groups(cluster)
    ]
    return msgspec.json.encode([head, *workers]).decode()


def _task_group(name: str, template: Body, least: int) -> Body:
    spec = pod_json.spec(template)
    found: Body = {"minResource": desired_resources.of_template(template)}
    found |= {field: spec[field] for field in ("nodeSelector", "affinity") if spec.get(field)}
    found["name"] = name
    if spec.get("tolerations"):
        found["tolerations"] = spec["tolerations"]
    found["minMember"] = least
    return found
