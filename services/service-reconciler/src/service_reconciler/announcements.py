"""The Events of this service's writes, in KubeRay's words where it has some (spec rayservice §13.4)."""

from common import labels
from common.api.event import normal, warning
from service_reconciler.actions import Told
from service_reconciler.reasons import EventReason


def cluster_created(where: str) -> Told:
    """Tell of a new RayCluster; `where` is `<namespace>/<name>`."""
    return Told(
        done=normal(EventReason.CREATED_CLUSTER, "Create", f"Created the RayCluster {where}"),
        failed=warning(EventReason.FAILED_TO_CREATE_CLUSTER, "Create", f"Failed to create the RayCluster {where}: "),
    )


def cluster_updated(role: str, where: str) -> Told:
    """Tell of a change to the active or the pending RayCluster."""
    return Told(
        done=normal(EventReason.UPDATED_CLUSTER, "Update", f"Updated the {role} RayCluster {where}"),
        failed=warning(
            EventReason.FAILED_TO_UPDATE_CLUSTER, "Update", f"Failed to update the {role} RayCluster {where}: "
        ),
    )


def cluster_update_failed(role: str, where: str) -> Told:
    """Tell of a refused change to a RayCluster; one that succeeds is no news."""
    return Told(failed=cluster_updated(role, where).failed)


def old_cluster_marked(where: str) -> Told:
    """Tell that a RayCluster that is not needed any more cannot be given a deadline, and so is not deleted."""
    return cluster_update_failed("old", where)


def pod_drain_mark(where: str) -> Told:
    """Tell that a pod cannot be marked as draining."""
    note = f"The pod {where} is not told to drain, so its proxy keeps connections open: "
    return Told(failed=warning(EventReason.DRAIN_NOT_TOLD, "Drain", note))


def pod_not_labelled(where: str) -> Told:
    """Tell that a pod cannot be labelled for the Serve Service of an upgrade in steps."""
    note = f"The pod {where} is not labelled {labels.SERVES}, so the Serve Service selects it wrongly until the upgrade ends: "
    return Told(failed=warning(EventReason.FAILED_TO_LABEL_POD, "Update", note))


def status_refused() -> Told:
    """Tell that the API server refuses the status."""
    return Told(failed=warning(EventReason.STATUS_NOT_WRITTEN, "Reconcile", "The status is not written: "))


def finalizer_refused() -> Told:
    """Tell that the API server refuses the finalizer, without which nothing is created."""
    note = "The finalizer is not set, and nothing is created without it: "
    return Told(failed=warning(EventReason.FINALIZER_NOT_SET, "Reconcile", note))


def cluster_deleted(where: str, *, suspending: bool = False) -> Told:
    """Tell of the deletion of a RayCluster."""
    when = " during suspend" if suspending else ""
    return Told(
        done=normal(EventReason.DELETED_CLUSTER, "Delete", f"Deleted the RayCluster {where}{when}"),
        failed=warning(
            EventReason.FAILED_TO_DELETE_CLUSTER, "Delete", f"Failed to delete the RayCluster {where}{when}: "
        ),
    )


def service_created(where: str) -> Told:
    """Tell of a new Service."""
    return Told(
        done=normal(EventReason.CREATED_SERVICE, "Create", f"Created the service {where}"),
        failed=warning(EventReason.FAILED_TO_CREATE_SERVICE, "Create", f"Failed to create the service {where}, "),
    )


def service_updated(where: str) -> Told:
    """Tell of a Service that selects another cluster."""
    return Told(
        done=normal(EventReason.UPDATED_SERVICE, "Update", f"Updated the service {where}"),
        failed=warning(EventReason.FAILED_TO_UPDATE_SERVICE, "Update", f"Failed to update the service {where}, "),
    )


def service_deleted(where: str) -> Told:
    """Tell of the deletion of a Service."""
    return Told(
        done=normal(EventReason.DELETED_SERVICE, "Delete", f"Deleted the Service {where} during suspend"),
        failed=warning(
            EventReason.FAILED_TO_DELETE_SERVICE, "Delete", f"Failed to delete the Service {where} during suspend: "
        ),
    )


def config_sent(where: str) -> Told:
    """Tell of a Serve config that was sent."""
    return Told(
        done=normal(
            EventReason.UPDATED_APPLICATIONS, "Update", f"Updated serve applications to the RayCluster {where}"
        ),
        failed=warning(
            EventReason.FAILED_TO_UPDATE_APPLICATIONS,
            "Update",
            f"Failed to update serve applications to the RayCluster {where}: ",
        ),
    )


def config_restored(where: str, difference: str) -> Told:
    """Tell of a Serve config that was sent again, because Serve ran another one than the cluster was given."""
    note = f"RayCluster {where} runs another Serve config than the recorded one ({difference}); it gets the recorded one again"
    return Told(
        done=warning(EventReason.SERVE_CONFIG_DRIFTED, "Update", note),
        failed=config_sent(where).failed,
    )


def head_labelled(value: str, where: str) -> Told:
    """Tell of the head pod's changed label; the value stands in quotes."""
    text = f'the serve label to "{value}" for the Head Pod {where}'
    return Told(
        done=normal(EventReason.UPDATED_HEAD_LABEL, "Update", f"Updated {text}"),
        failed=warning(EventReason.FAILED_TO_UPDATE_HEAD_LABEL, "Update", f"Failed to update {text}: "),
    )
