"""The types and reasons of the conditions that this service writes (spec raycluster §1.4).

The reasons of Events are in `events`.
"""

from enum import StrEnum

import msgspec

from common.conditions import ConditionUpdate


class ConditionType(StrEnum):
    """The types of a RayCluster's conditions."""

    HEAD_POD_READY = "HeadPodReady"
    PROVISIONED = "RayClusterProvisioned"
    SUSPENDING = "RayClusterSuspending"
    SUSPENDED = "RayClusterSuspended"
    REPLICA_FAILURE = "ReplicaFailure"


class ConditionReason(StrEnum):
    """Reasons of a RayCluster's conditions; HeadPodReady may also have a reason from the pod."""

    HEAD_POD_NOT_FOUND = "HeadPodNotFound"
    HEAD_POD_RUNNING_AND_READY = "HeadPodRunningAndReady"
    UNKNOWN = "Unknown"
    ALL_PODS_READY = "AllPodRunningAndReadyFirstTime"
    PODS_PROVISIONING = "RayClusterPodsProvisioning"


class ReplicaFailure(StrEnum):
    """Reasons of condition `ReplicaFailure`, mostly failed operations on pods.

    The last three do not exist in KubeRay. Reasons about children other than pods, such as
    FailedCreateIngress, are not listed here.
    """

    DELETE_ALL_PODS = "FailedDeleteAllPods"
    DELETE_HEAD_POD = "FailedDeleteHeadPod"
    CREATE_HEAD_POD = "FailedCreateHeadPod"
    DELETE_WORKER_POD = "FailedDeleteWorkerPod"
    CREATE_WORKER_POD = "FailedCreateWorkerPod"
    CERT_MANAGER_NOT_FOUND = "CertManagerNotFound"
    LIMIT_EXCEEDED = "LimitExceeded"
    INVALID_METADATA = "InvalidRayClusterMetadata"


class RayClusterState(StrEnum):
    """The legacy state of a cluster in one word; the conditions are more precise."""

    READY = "ready"
    SUSPENDED = "suspended"


class Failure(msgspec.Struct, frozen=True):
    """Reason and message of condition ReplicaFailure: the first failure of a reconcile.

    Failures of pods take precedence. The condition also reports why no pods may be created.
    """

    reason: str
    problem: str

    @property
    def is_of_name(self) -> bool:
        """Whether the cluster's name is invalid; then only condition ReplicaFailure is written."""
        return self.reason == ReplicaFailure.INVALID_METADATA

    @property
    def update(self) -> ConditionUpdate:
        """Condition ReplicaFailure with this reason and message."""
        return ConditionUpdate(
            ConditionType.REPLICA_FAILURE, "True", self.reason, f"{self.reason}\n{self.problem}"
        )
