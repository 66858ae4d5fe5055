"""Every reason and condition type that this service writes (spec raycluster §1.4, §15)."""

from enum import StrEnum


class ConditionType(StrEnum):
    """The conditions of a RayCluster."""

    HEAD_POD_READY = "HeadPodReady"
    PROVISIONED = "RayClusterProvisioned"
    SUSPENDING = "RayClusterSuspending"
    SUSPENDED = "RayClusterSuspended"
    REPLICA_FAILURE = "ReplicaFailure"
    UNSUPPORTED = "UnsupportedFeatures"
    """Ours: the spec asks for what we do not do yet."""


class ConditionReason(StrEnum):
    """Reasons of conditions that we name ourselves; a pod's own reasons come beside them."""

    HEAD_POD_NOT_FOUND = "HeadPodNotFound"
    HEAD_POD_RUNNING_AND_READY = "HeadPodRunningAndReady"
    UNKNOWN = "Unknown"
    ALL_PODS_READY = "AllPodRunningAndReadyFirstTime"
    PODS_PROVISIONING = "RayClusterPodsProvisioning"


class ReplicaFailure(StrEnum):
    """What could not be done to a pod: reasons of the condition `ReplicaFailure`.

    The last three are ours, and so are those for other children, such as FailedCreateIngress.
    """

    DELETE_ALL_PODS = "FailedDeleteAllPods"
    DELETE_HEAD_POD = "FailedDeleteHeadPod"
    CREATE_HEAD_POD = "FailedCreateHeadPod"
    DELETE_WORKER_POD = "FailedDeleteWorkerPod"
    CREATE_WORKER_POD = "FailedCreateWorkerPod"
    UNSUPPORTED = "UnsupportedRayClusterSpec"
    LIMIT_EXCEEDED = "LimitExceeded"
    INVALID_METADATA = "InvalidRayClusterMetadata"


class EventReason(StrEnum):
    """Reasons of Events."""

    INVALID_METADATA = "InvalidRayClusterMetadata"
    INVALID_SPEC = "InvalidRayClusterSpec"
    INVALID_STATUS = "InvalidRayClusterStatus"
    UNSUPPORTED = "UnsupportedRayClusterSpec"
    LIMIT_EXCEEDED = "LimitExceeded"
    GRACEFUL_DRAIN_UNAVAILABLE = "GracefulDrainUnavailable"
    SERVICE_ACCOUNT_NOT_FOUND = "AutoscalerServiceAccountNotFound"
    CREATED_SERVICE_ACCOUNT = "CreatedServiceAccount"
    FAILED_TO_CREATE_SERVICE_ACCOUNT = "FailedToCreateServiceAccount"
    CREATED_ROLE = "CreatedRole"
    FAILED_TO_CREATE_ROLE = "FailedToCreateRole"
    CREATED_ROLE_BINDING = "CreatedRoleBinding"
    FAILED_TO_CREATE_ROLE_BINDING = "FailedToCreateRoleBinding"
    CREATED_INGRESS = "CreatedIngress"
    FAILED_TO_CREATE_INGRESS = "FailedToCreateIngress"
    UPDATED_INGRESS = "UpdatedIngress"
    FAILED_TO_UPDATE_INGRESS = "FailedToUpdateIngress"
    CREATED_NETWORK_POLICY = "CreatedNetworkPolicy"
    FAILED_TO_CREATE_NETWORK_POLICY = "FailedToCreateNetworkPolicy"
    UPDATED_NETWORK_POLICY = "UpdatedNetworkPolicy"
    FAILED_TO_UPDATE_NETWORK_POLICY = "FailedToUpdateNetworkPolicy"
    DELETED_NETWORK_POLICY = "DeletedNetworkPolicy"
    FAILED_TO_DELETE_NETWORK_POLICY = "FailedToDeleteNetworkPolicy"
    NETWORK_POLICY_NAME_COLLISION = "NetworkPolicyNameCollision"
    CREATED_ROUTE = "CreatedRoute"
    FAILED_TO_CREATE_ROUTE = "FailedToCreateRoute"
    FAILED_TO_CREATE_POD_GROUP = "FailedToCreatePodGroup"
    CREATED_SERVICE = "CreatedService"
    FAILED_TO_CREATE_SERVICE = "FailedToCreateService"
    CREATED_PVC = "CreatedPVC"
    FAILED_TO_CREATE_PVC = "FailedToCreatePVC"
    CREATED_HEAD_POD = "CreatedHeadPod"
    FAILED_TO_CREATE_HEAD_POD = "FailedToCreateHeadPod"
    DELETED_HEAD_POD = "DeletedHeadPod"
    FAILED_TO_DELETE_HEAD_POD = "FailedToDeleteHeadPod"
    CREATED_WORKER_POD = "CreatedWorkerPod"
    FAILED_TO_CREATE_WORKER_POD = "FailedToCreateWorkerPod"
    DELETED_WORKER_POD = "DeletedWorkerPod"
    FAILED_TO_DELETE_WORKER_POD = "FailedToDeleteWorkerPod"
    FAILED_TO_DELETE_WORKER_PODS = "FailedToDeleteWorkerPodCollection"
    CREATED_CLEANUP_JOB = "CreatedRedisCleanupJob"
    FAILED_TO_CREATE_CLEANUP_JOB = "FailedToCreateRedisCleanupJob"
    FORCE_DELETED = "ForceDeletedStuckCluster"
    DELETED_PODS = "DeletedPod"
    FAILED_TO_DELETE_PODS = "FailedToDeletePodCollection"


class State(StrEnum):
    """The old status as a single name; conditions have more detail."""

    READY = "ready"
    SUSPENDED = "suspended"
