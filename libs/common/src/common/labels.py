"""Every label, annotation and finalizer that we read or write (spec raycluster §2.1-2.3, rayservice §2.4, §4.2-4.3)."""

from typing import Final

# --- labels ------------------------------------------------------------------------------------------------------------
CLUSTER: Final = "ray.io/cluster"
NODE_TYPE: Final = "ray.io/node-type"
GROUP: Final = "ray.io/group"
IS_RAY_NODE: Final = "ray.io/is-ray-node"
IDENTIFIER: Final = "ray.io/identifier"
SERVE: Final = "ray.io/serve"
HEADLESS_WORKER_SERVICE: Final = "ray.io/headless-worker-svc"
REPLICA_INDEX: Final = "ray.io/worker-group-replica-index"
REPLICA_NAME: Final = "ray.io/worker-group-replica-name"
HOST_INDEX: Final = "ray.io/replica-host-index"
ORIGIN_NAME: Final = "ray.io/originated-from-cr-name"
ORIGIN_KIND: Final = "ray.io/originated-from-crd"
APP_NAME: Final = "app.kubernetes.io/name"
APP_CREATED_BY: Final = "app.kubernetes.io/created-by"
SERVICE_NAME: Final = "kubernetes.io/service-name"

# --- label values ------------------------------------------------------------------------------------------------------
HEAD: Final = "head"
WORKER: Final = "worker"
REDIS_CLEANUP: Final = "redis-cleanup"
HEAD_GROUP: Final = "headgroup"
KUBERAY: Final = "kuberay"
KUBERAY_OPERATOR: Final = "kuberay-operator"

# --- annotations -------------------------------------------------------------------------------------------------------
FT_ENABLED: Final = "ray.io/ft-enabled"
EXTERNAL_STORAGE_NAMESPACE: Final = "ray.io/external-storage-namespace"
GCS_FT_DELETION_TIMEOUT: Final = "ray.io/gcs-ft-deletion-timeout"
OVERWRITE_CONTAINER_CMD: Final = "ray.io/overwrite-container-cmd"
ENABLE_SERVE_SERVICE: Final = "ray.io/enable-serve-service"
DISABLE_PROVISIONED_HEAD_RESTART: Final = "ray.io/disable-provisioned-head-restart"
RECREATE_HASH: Final = "ray.io/upgrade-strategy-recreate-hash"
KUBERAY_VERSION: Final = "ray.io/kuberay-version"
SPEC_HASH: Final = "ray.io/hash-without-replicas-and-workers-to-delete"
NUM_WORKER_GROUPS: Final = "ray.io/num-worker-groups"
INITIALIZING_TIMEOUT: Final = "ray.io/initializing-timeout"
INGRESS_CLASS: Final = "kubernetes.io/ingress.class"
GRACEFUL_DRAIN: Final = "raybus.io/graceful-drain"
"""Asked for on a RayService or RayCluster; on a pod it says that its proxy can be told to drain."""
DRAINING: Final = "raybus.io/draining"
"""On a pod: its proxy is to close kept-alive connections between requests."""
DRAINING_SINCE: Final = "raybus.io/draining-since"
DRAIN_TIMEOUT: Final = "raybus.io/drain-timeout"
HTTP_ROUTE: Final = "raybus.io/http-route"
"""On a RayService: the HTTPRoute of its user that carries its traffic."""
MAX_UNAVAILABLE: Final = "raybus.io/max-unavailable-percent"
UPGRADE_RECEIPT: Final = "raybus.io/upgrade-receipt"

# --- finalizers --------------------------------------------------------------------------------------------------------
RAYSERVICE_FINALIZER: Final = "ray.io/rayservice-finalizer"
GCS_FT_FINALIZER: Final = "ray.io/gcs-ft-redis-cleanup-finalizer"

# --- spec.managedBy ----------------------------------------------------------------------------------------------------
MANAGED_BY_US: Final = "ray.io/kuberay-operator"
