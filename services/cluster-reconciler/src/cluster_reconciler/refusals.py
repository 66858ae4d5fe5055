"""Why nothing is done for a RayCluster: another controller's, or a spec that breaks a rule.

An Event reports the violation; for a wrong name a condition does too, since no Event about a name of more than 236 characters can be named;
nothing is retried until the object changes, but for a status that contradicts itself (spec raycluster §6 steps 2-9; acceptance cases 2, 5-18).
"""

import msgspec

from cluster_reconciler import events
from cluster_reconciler.config import Config
from cluster_reconciler.reasons import EventReason
from common import labels
from common.api.event import Event
from common.api.ray_cluster import RayCluster
from common.validation import ray_cluster as cluster_rules


class Refusal(msgspec.Struct, frozen=True):
    """The event of a refusal, if any, whether a retry may help without a change, and its effect on the status.

    `invalid_name` is what is wrong with the name; nothing else of such a cluster is read.
    """

    event: Event | None
    is_retried: bool = False
    unsupported: str = ""
    invalid_name: str = ""


def find(cluster: RayCluster, config: Config) -> Refusal | None:
    """Return the first reason to do nothing."""
    managed_by = _managed_by(cluster)
    if managed_by not in {"", labels.MANAGED_BY_US}:
        return Refusal(None)
    if problem := cluster_rules.metadata(cluster):
        event = events.invalid(cluster, "metadata", problem, EventReason.INVALID_METADATA)
        return Refusal(event, invalid_name=problem)
    if refusal := _of_spec(cluster, config):
        return refusal
    if problem := cluster_rules.upgrade_options(cluster):
        return Refusal(events.invalid(cluster, "UpgradeStrategy", problem, EventReason.INVALID_SPEC))
    if problem := cluster_rules.status(cluster):
        return Refusal(events.invalid_status(cluster, problem), is_retried=True)
    return None


def _of_spec(cluster: RayCluster, config: Config) -> Refusal | None:
    problem, unsupported = _spec_violation(cluster, config), ""
    if problem is None and not config.has_cert_manager:
        problem = cluster_rules.certificates_without_maker(cluster)
        unsupported = cluster_rules.unsupported(cluster, config.gates)
    if problem is None:
        return None
    event = events.invalid(cluster, "spec", problem, EventReason.INVALID_SPEC)
    return Refusal(event, unsupported=unsupported)


def _managed_by(cluster: RayCluster) -> str:
    try:
        return cluster.spec.managed_by or ""
    except msgspec.ValidationError:
        return ""  # `_spec_violation` reports what is wrong


def _spec_violation(cluster: RayCluster, config: Config) -> str | None:
    try:
        return cluster_rules.spec(cluster, config.gates)
    except msgspec.ValidationError as problem:
        return f"{problem}; correct the field"
