"""docs/reference/annotations.md: every annotation, label and finalizer that the code names.

The names are found in the source, so that a new one cannot be forgotten; what each means stands here. Defaults are the code's.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from cluster_reconciler.redis_cleanup import DEFAULT_TIMEOUT as REDIS_TIMEOUT
from common import durations, upgrade_controls
from service_reconciler.promotion import drain
from support.docs import markdown
from support.manifests import ROOT

_NAME: Final = re.compile(r'"((?:[a-z0-9-]+\.)+[a-z]+/[a-zA-Z][a-zA-Z0-9._-]*)"')
_OTHERS: Final = re.compile(
    r"/v\d\w*$|^kubernetes\.io/h2c$|^(google|aws\.amazon)\.com/|^ray\.io/kuberay-operator$|^kubectl\.|^raybus\.io/record$"
)
"""Versions of APIs, an app protocol, resources, a value, kubectl's own, and the label of our ControllerRevisions."""


class Key(msgspec.Struct, frozen=True):
    """One annotation, label or finalizer."""

    name: str
    where: str
    values: str
    text: str


_SERVICE: Final = "RayService"
_CLUSTER: Final = "RayCluster"
_EITHER: Final = "RayService, RayCluster"
_DURATION: Final = "a duration (`10m`) or seconds"
PARTS: Final = {
    "Controls of an upgrade": (
        "You set these on a RayService. They change no generation and take effect at once; a value that cannot be meant is told by the "
        "condition `InvalidAnnotations`, and the default holds. What each does: [upgrade controls](../upgrade-controls.md), "
        "[traffic](../traffic.md).",
        (
            Key("raybus.io/pause", _SERVICE, "`true`, `false`", "Hold the upgrade where it is."),
            Key("raybus.io/abort", _SERVICE, "`true`, `false`, a generation", "Go back to the active cluster and stay there."),
            Key("raybus.io/promote", _SERVICE, "`true`, `false`, a generation", "Skip the rest of the steps, never the proof."),
            Key(
                "raybus.io/progress-deadline",
                _SERVICE,
                f"{_DURATION}; `{durations.text(upgrade_controls.DEFAULT_DEADLINE)}` when absent",
                "How long an upgrade may stay as it is before it counts as stalled.",
            ),
            Key(
                "raybus.io/on-deadline",
                _SERVICE,
                ", ".join(f"`{each}`" for each in upgrade_controls.OnDeadline) + "; `Wait` when absent",
                "What happens then.",
            ),
            Key(
                "raybus.io/max-unavailable-percent",
                _SERVICE,
                f"0 to {upgrade_controls.MOST_UNAVAILABLE}; 0 when absent",
                "Capacity that may be missing while traffic moves in steps, for upgrades on a full cluster.",
            ),
            Key(
                "raybus.io/capacity-parity",
                _SERVICE,
                "`true`, `false`; `true` when absent",
                "Let traffic move to no fewer autoscaled replicas than those that carry it.",
            ),
            Key(
                "raybus.io/http-route",
                _SERVICE,
                "name of an HTTPRoute in the namespace",
                "Your own route carries the traffic; it has to agree by `raybus.io/rayservice`.",
            ),
            Key(
                "raybus.io/rayservice",
                "HTTPRoute",
                "names of RayServices in the namespace, separated by commas",
                "The owner of the route lets these RayServices write their backends into it.",
            ),
            Key(
                "raybus.io/drain-timeout",
                _SERVICE,
                f"{_DURATION}; `{durations.text(drain.DEFAULT_TIMEOUT)}` when absent",
                "How much longer than its deletion delay requests in flight may keep the old cluster.",
            ),
            Key(
                "raybus.io/graceful-drain",
                _EITHER,
                "`true`, `false`; `false` when absent, unless `RAYBUS_GRACEFUL_DRAIN` is set",
                "Prepare pods so that a blue/green upgrade can end kept-alive connections between requests. It changes pods.",
            ),
            Key(
                "raybus.io/revision-history-limit",
                _SERVICE,
                f"0 to {upgrade_controls.MOST_HISTORY}; {upgrade_controls.DEFAULT_HISTORY} when absent",
                "How many earlier specs are kept for `raybus undo` and `raybus history`.",
            ),
        ),
    ),
    "KubeRay's annotations": (
        "You set these; they mean what they mean to KubeRay. Those of a RayService are copied to its RayClusters.",
        (
            Key(
                "ray.io/initializing-timeout",
                _SERVICE,
                "a duration or seconds",
                "How long a new service may take to be ready, before it is given up.",
            ),
            Key("ray.io/ft-enabled", _EITHER, "`true`", "Keep the GCS in Redis, by variables of the head's container."),
            Key("ray.io/external-storage-namespace", _EITHER, "any text; the uid when absent", "Prefix of the keys in Redis."),
            Key(
                "ray.io/gcs-ft-deletion-timeout",
                _CLUSTER,
                f"seconds; {REDIS_TIMEOUT.seconds} when absent",
                "How long a deleted cluster may wait until Redis is clean.",
            ),
            Key("ray.io/overwrite-container-cmd", _EITHER, "`true`", "Leave command and arguments of the Ray containers as they are."),
            Key("ray.io/enable-serve-service", _CLUSTER, "`true`", "Make a Service for Serve's port."),
            Key("ray.io/disable-provisioned-head-restart", _CLUSTER, "`true`", "Do not replace the head of a cluster that was once ready."),
            Key("kubernetes.io/ingress.class", _EITHER, "name of an IngressClass", "Class of the dashboard's Ingress."),
        ),
    ),
    "Batch schedulers": (
        "Labels that you set on a RayCluster or RayService; each counts where raybus was given that scheduler "
        "([configuration](configuration.md)).",
        (
            Key("ray.io/gang-scheduling-enabled", _EITHER, "see the scheduler", "Place the whole cluster or nothing of it: YuniKorn, scheduler-plugins, Kubernetes' own."),
            Key("ray.io/priority-class-name", _EITHER, "name of a PriorityClass", "Volcano: priority of the gang."),
            Key("volcano.sh/queue-name", _EITHER, "name of a queue", "Volcano."),
            Key("volcano.sh/network-topology-mode", _EITHER, "see Volcano", "Volcano."),
            Key("volcano.sh/network-topology-highest-tier-allowed", _EITHER, "see Volcano", "Volcano."),
            Key("yunikorn.apache.org/app-id", _EITHER, "any text", "YuniKorn: becomes `applicationId` of the pods."),
            Key("yunikorn.apache.org/queue", _EITHER, "name of a queue", "YuniKorn: becomes `queue` of the pods."),
            Key("kai.scheduler/queue", _EITHER, "name of a queue", "KAI."),
        ),
    ),
    "Written by raybus": (
        "For you to read, not to set. What an upgrade needs stands in these, and not in any process's memory.",
        (
            Key("raybus.io/upgrade-receipt", _SERVICE, "JSON", "What the last upgrade came to ([the receipt](../traffic.md#the-receipt))."),
            Key("raybus.io/traffic-record", "HTTPRoute", "JSON", "Weights and capacities as they are, and when they last moved."),
            Key("raybus.io/upgrade-from", _CLUSTER, "name", "Which cluster this one was made to replace, until that upgrade's end was told."),
            Key("raybus.io/upgrade-so-far", _CLUSTER, "JSON", "What is known of the upgrade that left this cluster behind."),
            Key("raybus.io/delete-after", _CLUSTER, "time", "When this cluster, which nobody needs any more, goes at the earliest."),
            Key("raybus.io/draining-since", _CLUSTER, "time", "Since when it drains."),
            Key("raybus.io/serves", "Pod", "name of a RayService", "A label: its Serve Service selects the pod while an upgrade in steps is on."),
            Key("raybus.io/draining", "Pod", "`true`", "Its proxy ends kept-alive connections between requests."),
            Key("raybus.io/replaces", "ControllerRevision", "name", "The record of the spec that served before this one."),
            Key("raybus.io/serve-config-outcome", "ControllerRevision", "`sent`, `accepted`, `refused`", "What became of the Serve config that a cluster was sent; without it, it was accepted."),
            Key("raybus.io/watcher", "Lease", "text", "Which watcher does what with the Lease."),
            Key("raybus.io/partitions", "Lease", "numbers", "Partitions that this replica holds."),
            Key("raybus.io/takes-part", "Lease", "`true`, `false`", "Whether it is to hold any."),
            Key("raybus.io/session", "Lease", "text", "Which run of the process wrote it."),
            Key(
                "ray.io/hash-without-replicas-and-workers-to-delete",
                _CLUSTER,
                "hash",
                "Hash of the spec that it was made for; another one asks for a new cluster.",
            ),
            Key("ray.io/num-worker-groups", _CLUSTER, "number", "How many groups it was made with; appended ones are added in place."),
            Key("ray.io/kuberay-version", "RayCluster, Pod", "version", "Which operator made it."),
            Key("ray.io/upgrade-strategy-recreate-hash", "Pod", "hash", "On heads: the spec that they were made for."),
            Key("yunikorn.apache.org/task-group-name", "Pod", "text", "YuniKorn."),
            Key("yunikorn.apache.org/task-groups", "Pod", "JSON", "YuniKorn."),
            Key("scheduling.k8s.io/group-name", "Pod", "name", "Volcano."),
            Key("volcano.sh/task-spec", "Pod", "name", "Volcano."),
        ),
    ),
    "Labels": (
        "Written on what raybus makes, as by KubeRay; select by them.",
        (
            Key("ray.io/cluster", "all that a RayCluster owns", "name", "Name of the RayCluster."),
            Key("ray.io/node-type", "Pod, Service, Job", "`head`, `worker`, `redis-cleanup`", "What it is."),
            Key("ray.io/group", "Pod", "`headgroup`, or the group's name", "Which group it is in."),
            Key("ray.io/is-ray-node", "Pod", "`yes`", "It is a Ray node."),
            Key("ray.io/identifier", "Pod, Service, Ingress", "name", "Cluster and node type in one."),
            Key("ray.io/serve", "Pod, Service", "`true`, `false`", "On pods: whether requests may go there."),
            Key("ray.io/headless-worker-svc", "Service", "name", "It is the headless Service of that cluster's multi-host groups."),
            Key("ray.io/worker-group-replica-index", "Pod", "number", "Which replica of its group."),
            Key("ray.io/worker-group-replica-name", "Pod", "name", "Which replica of a multi-host group."),
            Key("ray.io/replica-host-index", "Pod", "number", "Which host of that replica."),
            Key("ray.io/originated-from-cr-name", "RayCluster, Service, HTTPRoute", "name", "The RayService that it belongs to."),
            Key("ray.io/originated-from-crd", "RayCluster, Service, HTTPRoute", "kind", "Its kind."),
            Key("app.kubernetes.io/name", "all that a RayCluster owns", "`kuberay`", "As KubeRay writes it."),
            Key("app.kubernetes.io/created-by", "all that a RayCluster owns", "`kuberay-operator`", "As KubeRay writes it."),
            Key("app.kubernetes.io/part-of", "raybus' own pods and Leases", "`raybus`", "It belongs to raybus."),
            Key("kubernetes.io/service-name", "EndpointSlice", "name", "Kubernetes' own; read."),
            Key("raybus.io/replica-of", "Lease", "name of a service", "Whose replica wrote it."),
            Key("scheduling.x-k8s.io/pod-group", "Pod", "name", "scheduler-plugins."),
        ),
    ),
    "Finalizers": (
        "",
        (
            Key("ray.io/rayservice-finalizer", _SERVICE, "", "Clean up what the owner references do not cover."),
            Key("ray.io/gcs-ft-redis-cleanup-finalizer", _CLUSTER, "", "Empty Redis first."),
            Key("scheduling.k8s.io/podgroup-protection", "PodGroup", "", "Kubernetes' own; taken off before the PodGroup goes."),
        ),
    ),
}  # fmt: skip
_HEAD: Final = f"""\
# Annotations, labels, finalizers

What you may set, and what you find on objects. {markdown.WRITTEN}
"""


def page() -> str:
    """Write the page."""
    lines = [_HEAD]
    for title, (said, keys) in PARTS.items():
        rows = [(f"`{each.name}`", each.where, each.values, each.text) for each in keys]
        lines += [f"## {title}", "", *([said, ""] if said else [])]
        lines += [*markdown.table(("name", "on", "value", "meaning"), rows), ""]
    return "\n".join(lines)


def described() -> list[str]:
    """Return the names on the page."""
    return [each.name for _, keys in PARTS.values() for each in keys]


@cache
def named() -> frozenset[str]:
    """Return the names in the source of the services and of what they share."""
    found = {name for path in sources() for name in _NAME.findall(path.read_text())}
    return frozenset(name for name in found if not _OTHERS.search(name))


def sources() -> Iterator[Path]:
    """Return the modules of the services and of what they share."""
    for folder in (ROOT / "libs" / "common", *sorted((ROOT / "services").iterdir())):
        yield from sorted((folder / "src").rglob("*.py"))
