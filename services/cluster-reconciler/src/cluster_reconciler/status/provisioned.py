"""The condition RayClusterProvisioned: all pods have run once (spec raycluster §13.5; acceptance cases 111, 112).

It stays True once it was, except through suspension. It looks at the pods that exist, not at how many should.
"""

from cluster_reconciler.observed import Observed
from cluster_reconciler.reasons import ConditionReason
from cluster_reconciler.status import pods_ready
from cluster_reconciler.status.conditions import Fact

SUSPENDED = Fact("False", ConditionReason.PODS_PROVISIONING, "RayCluster has been suspended")


def compute(observed: Observed) -> Fact:
    """Return what the condition says, as long as it is not True and the cluster not suspended."""
    if pods_ready.all_running(observed.pods):
        return Fact("True", ConditionReason.ALL_PODS_READY, "All Ray Pods are ready for the first time")
    return Fact("False", ConditionReason.PODS_PROVISIONING, "RayCluster Pods are being provisioned for first time")
