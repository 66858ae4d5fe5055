"""The page docs/reference/annotations.md: annotations, labels and finalizers.

The page's test finds the names in the source code and fails if the page lacks one. The texts are in
this module, and defaults come from the code.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from cluster_reconciler.redis_cleanup import DEFAULT_TIMEOUT as REDIS_TIMEOUT
from common import durations
from common.upgrade import controls as upgrade_controls
from generators.docs import markdown
from service_reconciler.plan import FINALIZER_TIMEOUT, ROUTE_RELEASE_TIMEOUT
from service_reconciler.promotion import cleanup_schedule
from support.manifests import ROOT

_NAME: Final = re.compile(r'"((?:[a-z0-9-]+\.)+[a-z]+/[a-zA-Z][a-zA-Z0-9._-]*)"')
_OTHERS: Final = re.compile(
    r"/v\d\w*$|^kubernetes\.io/h2c$|^(google|aws\.amazon)\.com/|^ray\.io/kuberay-operator$"
    r"|^kubectl\.|^raybus\.io/record$"
    r"|^client\.authentication\.k8s\.io/exec$"
    r"|/gateway-controller$"
    r"|^raybus\.io/(cluster-reconciler|service-reconciler|traffic-manager|job-reconciler)$"
)
"""Pattern for names with a slash that do not belong on the page of annotations and labels.

They are API versions, an app protocol, resource names, the value of a field, kubectl's annotations,
Gateway controllers, the label of raybus's ControllerRevisions, the sources of Events, and an
extension of kubeconfigs.
"""


class MetadataKey(msgspec.Struct, frozen=True):
    """An annotation, label or finalizer: one row of the page."""

    name: str
    where: str
    values: str
    text: str


_SERVICE: Final = "RayService"
_CLUSTER: Final = "RayCluster"
_CRON_JOB: Final = "RayCronJob"
_JOB: Final = "RayJob"
_EITHER: Final = "RayService, RayCluster"
_DURATION: Final = "a duration (`10m`) or seconds"
PARTS: Final = {
    "Controls of an upgrade": (
        "You set these on a RayService. They do not change its generation and take effect at "
        "once. If a\n"
        "value is invalid, the default applies, and the condition `InvalidAnnotations` reports "
        "it. See\n"
        "[upgrade controls](../upgrade-controls.md) and [traffic](../traffic.md).",
        (
            MetadataKey(
                "raybus.io/pause",
                _SERVICE,
                "`true`, `false`",
                "Pause the upgrade at its current step.",
            ),
            MetadataKey(
                "raybus.io/abort",
                _SERVICE,
                "`true`, `false`, a generation",
                "Roll back to the active cluster and stay there.",
            ),
            MetadataKey(
                "raybus.io/promote",
                _SERVICE,
                "`true`, `false`, a generation",
                "Skip the remaining steps, but move traffic only to proven capacity.",
            ),
            MetadataKey(
                "raybus.io/approved-step",
                _SERVICE,
                "`<pending RayCluster>/<weight>@<generation>`",
                "End the pause of an UpgradePolicy at this weight, for this pending cluster and "
                "this `metadata.generation`. "
                "`raybus resume` sets it. Without a generation it applies until the Serve config "
                "is edited.",
            ),
            MetadataKey(
                "raybus.io/progress-deadline",
                _SERVICE,
                f"{_DURATION}; `{durations.text(upgrade_controls.DEFAULT_DEADLINE)}` when absent",
                "Time without progress after which an upgrade is stalled.",
            ),
            MetadataKey(
                "raybus.io/on-deadline",
                _SERVICE,
                ", ".join(f"`{choice}`" for choice in upgrade_controls.OnDeadline)
                + "; `Wait` when absent",
                "Action at the progress deadline.",
            ),
            MetadataKey(
                "raybus.io/max-unavailable-percent",
                _SERVICE,
                f"0 to {upgrade_controls.MAX_UNAVAILABLE_PERCENT}; 0 when absent",
                "Capacity that may be missing while traffic moves in steps, for upgrades on a "
                "full cluster.",
            ),
            MetadataKey(
                "raybus.io/capacity-parity",
                _SERVICE,
                "`true`, `false`; `true` when absent",
                "Limit traffic to the load that the autoscaled replicas can serve.",
            ),
            MetadataKey(
                "raybus.io/http-route",
                _SERVICE,
                "name of an HTTPRoute in the namespace",
                "Your own route that carries the traffic. It must permit this with the annotation "
                "`raybus.io/rayservice`.",
            ),
            MetadataKey(
                "raybus.io/rayservice",
                "HTTPRoute",
                "names of RayServices in the namespace, separated by commas",
                "Permission of the route's owner: these RayServices may write their backends into "
                "the route.",
            ),
            MetadataKey(
                "raybus.io/drain-timeout",
                _SERVICE,
                f"{_DURATION}; `{durations.text(cleanup_schedule.DEFAULT_TIMEOUT)}` when absent",
                "Time after the deletion delay in which the old cluster may finish the requests "
                "in flight.",
            ),
            MetadataKey(
                "raybus.io/graceful-drain",
                _EITHER,
                "`true`, `false`; `false` when absent, unless `RAYBUS_GRACEFUL_DRAIN` is set",
                "Prepare pods so that a blue/green upgrade can close kept-alive connections "
                "between requests. This changes the pods.",
            ),
            MetadataKey(
                "raybus.io/disruption-budget",
                _EITHER,
                "`true`, `false`; `false` when absent, unless `RAYBUS_DISRUPTION_BUDGETS` is set",
                "Limit evictions with PodDisruptionBudgets ([drain "
                "nodes](../how-to/node-drains.md)). A RayService passes the annotation to new "
                "clusters.",
            ),
            MetadataKey(
                "raybus.io/drain-workers",
                _EITHER,
                "`true`, `false`; `false` when absent",
                "Add preStop hooks that drain workers in Ray before they end, and let the head of "
                "a RayService finish its requests. This changes new pods.",
            ),
            MetadataKey(
                "raybus.io/revision-history-limit",
                _SERVICE,
                f"0 to {upgrade_controls.MAX_HISTORY_LENGTH}; {upgrade_controls.DEFAULT_HISTORY} "
                "when absent",
                "Number of earlier specs for `raybus undo` and `raybus history`.",
            ),
            MetadataKey(
                "raybus.io/upgrade-policy",
                _SERVICE,
                "name of an UpgradePolicy in the namespace",
                "Steps and gates of the upgrades; the namespace's default policy when absent.",
            ),
            MetadataKey(
                "raybus.io/default",
                "UpgradePolicy",
                "`true`, `false`; `false` when absent",
                "Use this policy for the RayServices of its namespace that name none.",
            ),
        ),
    ),
    "Options of a RayCronJob": (
        "You set these on a RayCronJob ([schedule a job](../how-to/schedule-job.md)). Without\n"
        "them, runs may overlap and all jobs stay.",
        (
            MetadataKey(
                "raybus.io/concurrency-policy",
                _CRON_JOB,
                "`Allow`, `Forbid`, `Replace`; `Allow` when absent",
                "What a run does while an earlier job has not ended: start, wait, or replace it.",
            ),
            MetadataKey(
                "raybus.io/starting-deadline",
                _CRON_JOB,
                f"{_DURATION}; no limit when absent",
                "Maximum delay of a run; later runs are skipped.",
            ),
            MetadataKey(
                "raybus.io/successful-jobs-history-limit",
                _CRON_JOB,
                "a number; no limit when absent",
                "Number of succeeded RayJobs to keep.",
            ),
            MetadataKey(
                "raybus.io/failed-jobs-history-limit",
                _CRON_JOB,
                "a number; no limit when absent",
                "Number of failed RayJobs to keep.",
            ),
            MetadataKey(
                "raybus.io/job-labels",
                _CRON_JOB,
                "`key=value,key=value`",
                "Labels of its RayJobs, such as `kueue.x-k8s.io/queue-name=users`.",
            ),
        ),
    ),
    "Written by the command line": (
        "The command line sets these on the pod templates of a spec. You can set them yourself, "
        "as\n`kubectl rollout restart` does for a Deployment.",
        (
            MetadataKey(
                "raybus.io/restartedAt",
                "pod templates",
                "a time",
                "Time at which `raybus restart` requested a new cluster. Like every annotation of "
                "a template, it is part of the cluster spec hash.",
            ),
        ),
    ),
    "KubeRay's annotations": (
        "You set these, with the same meaning as in KubeRay. raybus copies those of a RayService "
        "to its\nRayClusters.",
        (
            MetadataKey(
                "ray.io/initializing-timeout",
                _SERVICE,
                "a duration or seconds",
                "Time limit for a new service to become ready.",
            ),
            MetadataKey(
                "ray.io/ft-enabled",
                _EITHER,
                "`true`",
                "Store the GCS state in Redis, by variables of the head's container.",
            ),
            MetadataKey(
                "ray.io/external-storage-namespace",
                _EITHER,
                "any text; the uid when absent",
                "Prefix of the keys in Redis.",
            ),
            MetadataKey(
                "ray.io/gcs-ft-deletion-timeout",
                _CLUSTER,
                f"seconds; {REDIS_TIMEOUT.seconds} when absent",
                "Time limit for the Redis clean-up of a deleted cluster.",
            ),
            MetadataKey(
                "ray.io/overwrite-container-cmd",
                _EITHER,
                "`true`",
                "Leave command and arguments of the Ray containers as they are.",
            ),
            MetadataKey(
                "ray.io/enable-serve-service",
                _CLUSTER,
                "`true`",
                "Create a Service for Serve's port.",
            ),
            MetadataKey(
                "ray.io/disable-provisioned-head-restart",
                _CLUSTER,
                "`true`",
                "Do not replace the head of a cluster that has been ready.",
            ),
            MetadataKey(
                "kubernetes.io/ingress.class",
                _EITHER,
                "name of an IngressClass",
                "Class of the dashboard's Ingress.",
            ),
        ),
    ),
    "Batch schedulers": (
        "You set these labels on a RayCluster or RayService. A label takes effect if raybus is "
        "configured\n"
        "for that scheduler ([configuration](configuration.md)).",
        (
            MetadataKey(
                "ray.io/gang-scheduling-enabled",
                _EITHER,
                "see the scheduler",
                "YuniKorn, scheduler-plugins, Kubernetes' own: schedule the whole cluster or "
                "nothing.",
            ),
            MetadataKey(
                "ray.io/priority-class-name",
                _EITHER,
                "name of a PriorityClass",
                "Volcano: priority of the gang.",
            ),
            MetadataKey("volcano.sh/queue-name", _EITHER, "name of a queue", "Volcano."),
            MetadataKey("volcano.sh/network-topology-mode", _EITHER, "see Volcano", "Volcano."),
            MetadataKey(
                "volcano.sh/network-topology-highest-tier-allowed",
                _EITHER,
                "see Volcano",
                "Volcano.",
            ),
            MetadataKey(
                "yunikorn.apache.org/app-id",
                _EITHER,
                "any text",
                "YuniKorn: becomes `applicationId` of the pods.",
            ),
            MetadataKey(
                "yunikorn.apache.org/queue",
                _EITHER,
                "name of a queue",
                "YuniKorn: becomes `queue` of the pods.",
            ),
            MetadataKey("kai.scheduler/queue", _EITHER, "name of a queue", "KAI."),
        ),
    ),
    "Written by raybus": (
        "Read only. These hold the state of an upgrade, which no process keeps in memory.",
        (
            MetadataKey(
                "raybus.io/upgrade-receipt",
                _SERVICE,
                "JSON",
                "Result of the last upgrade ([the receipt](../traffic.md#the-receipt)).",
            ),
            MetadataKey(
                "raybus.io/traffic-record",
                "HTTPRoute",
                "JSON",
                "Current weights and capacities, and the time of their last change.",
            ),
            MetadataKey(
                "raybus.io/upgrade-policy-record",
                _CLUSTER,
                "JSON",
                "The UpgradePolicy with which the upgrade to this cluster began.",
            ),
            MetadataKey(
                "raybus.io/redis-storage-namespace",
                _CLUSTER,
                "any text",
                "Storage namespace of the last head of a deleted cluster, if the spec no longer "
                "names it.",
            ),
            MetadataKey(
                "raybus.io/upgrade-from",
                _CLUSTER,
                "name",
                "Name of the cluster that this cluster replaces; removed once the event about the "
                "end of the upgrade is published.",
            ),
            MetadataKey(
                "raybus.io/upgrade-so-far",
                _CLUSTER,
                "JSON",
                "Record of the upgrade that replaced this cluster.",
            ),
            MetadataKey(
                "raybus.io/delete-after",
                _CLUSTER,
                "time",
                "Earliest deletion time of this unused cluster.",
            ),
            MetadataKey(
                "raybus.io/has-disruption-budgets",
                _CLUSTER,
                "`true`",
                "PodDisruptionBudgets of raybus may exist for this cluster.",
            ),
            MetadataKey(
                "raybus.io/draining-since", _CLUSTER, "time", "Start of the drain of this cluster."
            ),
            MetadataKey(
                "raybus.io/serves",
                "Pod",
                "name of a RayService",
                "A label. During an upgrade in steps, the Serve Service of this RayService "
                "selects the pod by it.",
            ),
            MetadataKey(
                "raybus.io/draining",
                "Pod",
                "`true`",
                "The pod's proxy closes kept-alive connections between requests.",
            ),
            MetadataKey(
                "raybus.io/drain-refresh",
                "Pod",
                "number",
                "Grows 3, 10 and 30 s after `raybus.io/draining` is set, so that the kubelet "
                "passes that annotation on even if it missed the first change.",
            ),
            MetadataKey(
                "raybus.io/replaces",
                "ControllerRevision",
                "name",
                "The record of the previous serving spec.",
            ),
            MetadataKey(
                "raybus.io/serve-config-outcome",
                "ControllerRevision",
                "`sent`, `accepted`, `refused`",
                "Result of sending the Serve config to a cluster; absent means accepted.",
            ),
            MetadataKey(
                "raybus.io/watcher", "Lease", "text", "State of the watcher that holds the Lease."
            ),
            MetadataKey(
                "raybus.io/next-watcher",
                "Lease",
                "text",
                "State of the watcher that prepares to lead next.",
            ),
            MetadataKey(
                "raybus.io/partitions", "Lease", "numbers", "Partitions that this replica holds."
            ),
            MetadataKey(
                "raybus.io/nats-keys",
                "ConfigMap",
                "`true`",
                "The ConfigMap has public keys of NATS users or certificates of NATS servers.",
            ),
            MetadataKey(
                "raybus.io/takes-part",
                "Lease",
                "`true`, `false`",
                "Whether the replica accepts partitions.",
            ),
            MetadataKey(
                "raybus.io/session", "Lease", "text", "Run of the process that wrote the Lease."
            ),
            MetadataKey(
                "ray.io/hash-without-replicas-and-workers-to-delete",
                _CLUSTER,
                "hash",
                "Hash of the spec of this cluster; another hash requires a new cluster.",
            ),
            MetadataKey(
                "ray.io/num-worker-groups",
                _CLUSTER,
                "number",
                "Number of worker groups when the cluster was created; groups appended later are "
                "added in place.",
            ),
            MetadataKey(
                "ray.io/kuberay-version",
                "RayCluster, Pod",
                "version",
                "Version of the operator that created the object.",
            ),
            MetadataKey(
                "ray.io/upgrade-strategy-recreate-hash",
                "Pod",
                "hash",
                "On head pods: hash of the spec with which the pod was created.",
            ),
            MetadataKey("yunikorn.apache.org/task-group-name", "Pod", "text", "YuniKorn."),
            MetadataKey("yunikorn.apache.org/task-groups", "Pod", "JSON", "YuniKorn."),
            MetadataKey("scheduling.k8s.io/group-name", "Pod", "name", "Volcano."),
            MetadataKey("volcano.sh/task-spec", "Pod", "name", "Volcano."),
        ),
    ),
    "Labels": (
        "raybus sets these labels on the objects that it creates, as KubeRay does. Use them as "
        "selectors.",
        (
            MetadataKey(
                "ray.io/cluster", "all that a RayCluster owns", "name", "Name of the RayCluster."
            ),
            MetadataKey(
                "ray.io/node-type",
                "Pod, Service, Job",
                "`head`, `worker`, `redis-cleanup`",
                "Type of the object.",
            ),
            MetadataKey(
                "ray.io/group", "Pod", "`headgroup`, or the group's name", "Group of the pod."
            ),
            MetadataKey("ray.io/is-ray-node", "Pod", "`yes`", "The pod is a Ray node."),
            MetadataKey(
                "ray.io/identifier", "Pod, Service, Ingress", "name", "Cluster and node type."
            ),
            MetadataKey(
                "ray.io/serve",
                "Pod, Service",
                "`true`, `false`",
                "On pods: whether the pod accepts requests.",
            ),
            MetadataKey(
                "ray.io/headless-worker-svc",
                "Service",
                "name",
                "The headless Service of that cluster's multi-host groups.",
            ),
            MetadataKey(
                "ray.io/worker-group-replica-index",
                "Pod",
                "number",
                "Index of the replica in its group.",
            ),
            MetadataKey(
                "ray.io/worker-group-replica-name",
                "Pod",
                "name",
                "Name of the replica in a multi-host group.",
            ),
            MetadataKey(
                "ray.io/replica-host-index", "Pod", "number", "Index of the host in that replica."
            ),
            MetadataKey(
                "ray.io/originated-from-cr-name",
                "RayCluster, Service, HTTPRoute",
                "name",
                "Name of the owning RayService.",
            ),
            MetadataKey(
                "ray.io/originated-from-crd",
                "RayCluster, Service, HTTPRoute",
                "kind",
                "Kind of the owner.",
            ),
            MetadataKey(
                "ray.io/cronjob-name",
                _JOB,
                "name of a RayCronJob",
                "The RayCronJob that started the job.",
            ),
            MetadataKey(
                "ray.io/cronjob-scheduled-timestamp",
                _JOB,
                "a time",
                "An annotation. Time for which the RayCronJob scheduled the job.",
            ),
            MetadataKey(
                "raybus.io/submitted-to",
                _JOB,
                "`<submission ID>@<RayCluster>/<head>`",
                "An annotation of raybus. The head that a job of HTTPMode was last submitted to.",
            ),
            MetadataKey(
                "ray.io/job-submission-mode",
                "RayCluster",
                "`K8sJobMode`",
                "Set by KubeRay on the RayCluster of a RayJob; the head's NetworkPolicy then "
                "admits the submitter.",
            ),
            MetadataKey(
                "app.kubernetes.io/name",
                "all that a RayCluster owns",
                "`kuberay`",
                "The same value as with KubeRay.",
            ),
            MetadataKey(
                "app.kubernetes.io/created-by",
                "all that a RayCluster owns",
                "`kuberay-operator`",
                "The same value as with KubeRay.",
            ),
            MetadataKey(
                "app.kubernetes.io/component",
                "Issuer, Certificate of a RayCluster",
                "such as `head-certificate`",
                "Role of the object among the cluster's certificates, as with KubeRay.",
            ),
            MetadataKey(
                "app.kubernetes.io/part-of",
                "raybus' own pods and Leases",
                "`raybus`",
                "The object belongs to raybus.",
            ),
            MetadataKey(
                "cert-manager.io/certificate-name",
                "Secret",
                "name",
                "An annotation that cert-manager sets. raybus makes a Secret go with its "
                "Certificate only if this names the Certificate.",
            ),
            MetadataKey(
                "kubernetes.io/service-name",
                "EndpointSlice",
                "name",
                "Kubernetes' own; raybus reads it.",
            ),
            MetadataKey(
                "raybus.io/replica-of",
                "Lease",
                "name of a service",
                "Service of the replica that wrote the Lease.",
            ),
            MetadataKey("scheduling.x-k8s.io/pod-group", "Pod", "name", "scheduler-plugins."),
        ),
    ),
    "Finalizers": (
        "While raybus runs, it removes each finalizer within its limit, in every state of the "
        "object.",
        (
            MetadataKey(
                "ray.io/rayservice-finalizer",
                _SERVICE,
                f"until its RayClusters are deleted, at most {FINALIZER_TIMEOUT.seconds // 60} min "
                "after its deletion; with a user's HTTPRoute "
                "until raybus has left the route, at most "
                f"{round(ROUTE_RELEASE_TIMEOUT.total_seconds())} s after its deletion; "
                "removed at once under another `spec.managedBy`",
                "Clean up objects without owner references. The Event `FinalizerReleased` names "
                "RayClusters that still exist at the limit, "
                "or their label if an object in quarantine prevented the clean-up.",
            ),
            MetadataKey(
                "ray.io/rayjob-finalizer",
                _JOB,
                "until Ray was asked to stop the job; on a selected cluster that does not answer "
                "at most 60 s after the deletion; 10 min if an object is in quarantine",
                "Stop the Ray job of a deleted RayJob. The Event `FinalizerReleased` tells that an "
                "object in quarantine prevented it.",
            ),
            MetadataKey(
                "ray.io/gcs-ft-redis-cleanup-finalizer",
                _CLUSTER,
                f"{round(REDIS_TIMEOUT.total_seconds())} s after the deletion, or "
                "`ray.io/gcs-ft-deletion-timeout`",
                "Clean up Redis before the deletion. The finalizer is also removed if the "
                "clean-up fails or is impossible, for example in "
                "quarantine. A Warning Event (`ForceDeletedStuckCluster`, `RedisCleanupFailed`) "
                "then names the storage namespace and the "
                "remaining keys.",
            ),
            MetadataKey(
                "scheduling.k8s.io/podgroup-protection",
                "PodGroup",
                "at once",
                "Set by Kubernetes; raybus removes it before it deletes the PodGroup.",
            ),
        ),
    ),
}
_HEAD: Final = f"""\
# Annotations, labels, finalizers

This page lists the annotations, labels and finalizers that you may set, and those that raybus sets.
{markdown.WRITTEN}
"""


def page() -> str:
    """Return the text of the page about annotations, labels and finalizers."""
    lines = [_HEAD]
    for title, (text, keys) in PARTS.items():
        rows = [(f"`{key.name}`", key.where, key.values, key.text) for key in keys]
        lines += [f"## {title}", "", *([text, ""] if text else [])]
        lines += [*markdown.table(("name", "on", "value", "meaning"), rows), ""]
    return "\n".join(lines)


def described() -> list[str]:
    """Return the names of all annotations, labels and finalizers that the page describes."""
    return [key.name for _, keys in PARTS.values() for key in keys]


@cache
def named() -> frozenset[str]:
    """Return the names of all annotations, labels and finalizers in the files of `sources`."""
    names = {name for path in sources() for name in _NAME.findall(path.read_text())}
    return frozenset(name for name in names if not _OTHERS.search(name))


def sources() -> Iterator[Path]:
    """Yield the Python files of the services and of their libraries."""
    libs = [ROOT / "libs" / name for name in ("common", "nats-admin", "notifications")]
    for folder in (*libs, *sorted((ROOT / "services").iterdir())):
        yield from sorted((folder / "src").rglob("*.py"))
