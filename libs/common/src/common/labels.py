"""All labels, annotations and finalizers of raybus.

Spec raycluster §2.1-2.3, rayservice §2.4, §4.2-4.3.
"""

from typing import Final

# --- labels ---
CLUSTER: Final = "ray.io/cluster"
NODE_TYPE: Final = "ray.io/node-type"
GROUP: Final = "ray.io/group"
IS_RAY_NODE: Final = "ray.io/is-ray-node"
IDENTIFIER: Final = "ray.io/identifier"
SERVE: Final = "ray.io/serve"
SERVES: Final = "raybus.io/serves"
"""On pods of both clusters of an upgrade in steps: the RayService whose Serve Service selects them.
"""
HEADLESS_WORKER_SERVICE: Final = "ray.io/headless-worker-svc"
REPLICA_INDEX: Final = "ray.io/worker-group-replica-index"
REPLICA_NAME: Final = "ray.io/worker-group-replica-name"
HOST_INDEX: Final = "ray.io/replica-host-index"
ORIGIN_NAME: Final = "ray.io/originated-from-cr-name"
ORIGIN_KIND: Final = "ray.io/originated-from-crd"
JOB_SUBMISSION_MODE: Final = "ray.io/job-submission-mode"
APP_NAME: Final = "app.kubernetes.io/name"
APP_PART_OF: Final = "app.kubernetes.io/part-of"
APP_COMPONENT: Final = "app.kubernetes.io/component"
APP_CREATED_BY: Final = "app.kubernetes.io/created-by"
SERVICE_NAME: Final = "kubernetes.io/service-name"
IDENTIFYING: Final = (CLUSTER, NODE_TYPE, GROUP, IDENTIFIER, ORIGIN_NAME, ORIGIN_KIND)
"""The labels by which raybus finds the objects that it created."""

# --- label values ---
HEAD: Final = "head"
WORKER: Final = "worker"
REDIS_CLEANUP: Final = "redis-cleanup"
HEAD_GROUP: Final = "headgroup"
KUBERAY: Final = "kuberay"
KUBERAY_OPERATOR: Final = "kuberay-operator"
BY_OPERATOR: Final = {APP_NAME: KUBERAY, APP_CREATED_BY: KUBERAY_OPERATOR}
"""Labels of all objects that KubeRay's operator creates; raybus sets the same ones."""

CRON_JOB_NAME: Final = "ray.io/cronjob-name"
"""On a RayJob: the name of the RayCronJob that started it."""
KUBERNETES_JOB_NAME: Final = "job-name"
"""On a pod: the name of its Kubernetes Job. Kubernetes sets it."""

# --- annotations ---
SUBMITTED_TO: Final = "raybus.io/submitted-to"
"""On a RayJob: submission ID and head of its submission over HTTP, as `<id>@<head>`."""
CRON_JOB_TIMESTAMP: Final = "ray.io/cronjob-scheduled-timestamp"
"""On a RayJob: the time for which its RayCronJob scheduled it."""
FT_ENABLED: Final = "ray.io/ft-enabled"
EXTERNAL_STORAGE_NAMESPACE: Final = "ray.io/external-storage-namespace"
REDIS_STORAGE_NAMESPACE: Final = "raybus.io/redis-storage-namespace"
"""On a RayCluster that is being deleted: the storage namespace that its last head used, if the spec
now has a different one."""
GCS_FT_DELETION_TIMEOUT: Final = "ray.io/gcs-ft-deletion-timeout"
OVERWRITE_CONTAINER_CMD: Final = "ray.io/overwrite-container-cmd"
ENABLE_SERVE_SERVICE: Final = "ray.io/enable-serve-service"
DISABLE_PROVISIONED_HEAD_RESTART: Final = "ray.io/disable-provisioned-head-restart"
RECREATE_HASH: Final = "ray.io/upgrade-strategy-recreate-hash"
KUBERAY_VERSION: Final = "ray.io/kuberay-version"
SPEC_HASH: Final = "ray.io/hash-without-replicas-and-workers-to-delete"
NUM_WORKER_GROUPS: Final = "ray.io/num-worker-groups"
INITIALIZING_TIMEOUT: Final = "ray.io/initializing-timeout"
CERTIFICATE_NAME: Final = "cert-manager.io/certificate-name"
"""On a Secret that cert-manager writes: the name of its Certificate."""
INGRESS_CLASS: Final = "kubernetes.io/ingress.class"
GRACEFUL_DRAIN: Final = "raybus.io/graceful-drain"
"""On a RayService or RayCluster: whether draining is requested. On a pod: `true` if its proxy
supports draining."""
DISRUPTION_BUDGET: Final = "raybus.io/disruption-budget"
HAS_BUDGETS: Final = "raybus.io/has-disruption-budgets"
"""On a RayCluster for which raybus may have created PodDisruptionBudgets.

Set before the first budget is created, and removed after the last one is deleted.
"""
DRAIN_WORKERS: Final = "raybus.io/drain-workers"
DRAINING: Final = "raybus.io/draining"
"""On a pod: its proxy must close kept-alive connections between requests."""
DRAIN_REFRESH: Final = "raybus.io/drain-refresh"
"""On a draining pod: a number that raybus raises to change the pod. The kubelet updates the
annotations in the pod's volume only when the pod changes.
"""
DRAINING_SINCE: Final = "raybus.io/draining-since"
DRAIN_TIMEOUT: Final = "raybus.io/drain-timeout"
HTTP_ROUTE: Final = "raybus.io/http-route"
"""On a RayService: the user's HTTPRoute that carries its traffic."""
ROUTE_PERMITS: Final = "raybus.io/rayservice"
"""On an HTTPRoute: the RayServices of its namespace that may use it, separated by commas."""
MAX_UNAVAILABLE: Final = "raybus.io/max-unavailable-percent"
CAPACITY_PARITY: Final = "raybus.io/capacity-parity"
"""On a RayService: `false` lets traffic move before the new cluster has enough replicas for it."""
PAUSE: Final = "raybus.io/pause"
"""On a RayService: pauses its upgrade.

This annotation and those below are the controls of an upgrade (`common.upgrade.controls`)."""
ABORT: Final = "raybus.io/abort"
PROMOTE: Final = "raybus.io/promote"
PROGRESS_DEADLINE: Final = "raybus.io/progress-deadline"
ON_DEADLINE: Final = "raybus.io/on-deadline"
HISTORY_LIMIT: Final = "raybus.io/revision-history-limit"
"""On a RayService: number of earlier specs to keep, like a Deployment's `revisionHistoryLimit`."""
CONCURRENCY_POLICY: Final = "raybus.io/concurrency-policy"
"""On a RayCronJob: what happens if a run is due while the RayJob of the last run still exists.

This annotation and the four below are options that KubeRay's CRD does not have."""
STARTING_DEADLINE: Final = "raybus.io/starting-deadline"
SUCCEEDED_JOBS_LIMIT: Final = "raybus.io/successful-jobs-history-limit"
FAILED_JOBS_LIMIT: Final = "raybus.io/failed-jobs-history-limit"
JOB_LABELS: Final = "raybus.io/job-labels"
"""On a RayCronJob: labels for its RayJobs, as `key=value,key=value`."""
RESTARTED_AT: Final = "raybus.io/restartedAt"
"""On pod templates, like kubectl's annotation: when `raybus restart` asked for a new cluster."""
UPGRADE_POLICY: Final = "raybus.io/upgrade-policy"
"""On a RayService: the name of its UpgradePolicy."""
DEFAULT_POLICY: Final = "raybus.io/default"
"""On an UpgradePolicy: `true` applies it to RayServices of its namespace that name no policy."""
APPROVED_STEP: Final = "raybus.io/approved-step"
"""On a RayService: the pause of its UpgradePolicy that the user approved.

Format: `<pending RayCluster>/<weight>@<metadata.generation>`; the generation may be missing.
"""
UPGRADE_POLICY_RECORD: Final = "raybus.io/upgrade-policy-record"
"""On a pending RayCluster: a copy of the policy that its upgrade follows."""
UPGRADE_RECEIPT: Final = "raybus.io/upgrade-receipt"
DELETE_AFTER: Final = "raybus.io/delete-after"
"""On a RayCluster that is no longer needed: when to delete it."""
UPGRADE_FROM: Final = "raybus.io/upgrade-from"
"""On a RayCluster: the cluster that it replaces, until the upgrade is over."""

REPLICA_OF: Final = "raybus.io/replica-of"
"""Label of a Lease: the service (such as `watcher`) whose replica wrote it. The annotations below
are on the same Lease.
"""
PARTITIONS: Final = "raybus.io/partitions"
TAKES_PART: Final = "raybus.io/takes-part"
SESSION: Final = "raybus.io/session"

# --- finalizers ---
RAYJOB_FINALIZER: Final = "ray.io/rayjob-finalizer"
RAYSERVICE_FINALIZER: Final = "ray.io/rayservice-finalizer"
GCS_FT_FINALIZER: Final = "ray.io/gcs-ft-redis-cleanup-finalizer"

# --- spec.managedBy ---
MANAGED_BY_US: Final = "ray.io/kuberay-operator"
