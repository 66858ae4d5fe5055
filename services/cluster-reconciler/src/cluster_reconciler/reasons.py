"""Every condition type, and every reason of a condition, that this service writes (spec raycluster §1.4); those of Events: `events`."""

from enum import StrEnum

import msgspec

from common.conditions import ConditionUpdate


class ConditionType(StrEnum):
    """The conditions of a RayCluster."""

    HEAD_POD_READY = "HeadPodReady"
    PROVISIONED = "RayClusterProvisioned"
    SUSPENDING = "RayClusterSuspending"
    SUSPENDED = "RayClusterSuspended"
    REPLICA_FAILURE = "ReplicaFailure"


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
    CERT_MANAGER_NOT_FOUND = "CertManagerNotFound"
    LIMIT_EXCEEDED = "LimitExceeded"
    INVALID_METADATA = "InvalidRayClusterMetadata"


class State(StrEnum):
    """The old status as a single name; conditions have more detail."""

    READY = "ready"
    SUSPENDED = "suspended"


class Failure(msgspec.Struct, frozen=True):
    """The condition ReplicaFailure: the first failure of a reconcile, one that concerns pods before others, or why there are no pods."""

    reason: str
    problem: str

    @property
    def is_of_name(self) -> bool:
        """Return whether the name breaks a rule; then nothing else of the cluster is read, and only this condition changes."""
        return self.reason == ReplicaFailure.INVALID_METADATA

    @property
    def update(self) -> ConditionUpdate:
        """Return the condition."""
        return ConditionUpdate(
            ConditionType.REPLICA_FAILURE, "True", self.reason, f"{self.reason}\n{self.problem}"
        )
