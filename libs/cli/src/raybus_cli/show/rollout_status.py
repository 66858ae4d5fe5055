"""The result of `raybus status`: whether a rollout is done, has failed or is in progress, and why.

A paused upgrade counts as in progress, a stalled one as failed. An aborted upgrade has failed even
if the old cluster serves well. An upgrade has also failed if its problem does not go away with
time: an image that cannot be pulled, a Serve config that Serve refuses, an application in
DEPLOY_FAILED.
"""

from collections.abc import Iterator
from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from common import conditions
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.ray.serve_status import AppState
from raybus_cli.linting import serve_schema
from raybus_cli.reading import observing
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import phase
from raybus_cli.show.phase import CurrentPhase, ServicePhase

_FAILED: Final = {
    ServicePhase.INVALID,
    ServicePhase.TIMED_OUT,
    ServicePhase.ABORTED,
    ServicePhase.STALLED,
    ServicePhase.DELETING,
}


class RolloutState(StrEnum):
    """The state of a rollout."""

    DONE = "done"
    GOING_ON = "going on"
    FAILED = "failed"
    TIMED_OUT = "timed out"


class RolloutStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a rollout, and its reason."""

    course: RolloutState
    text: str


def derive_status(snapshot: Snapshot, *, now: datetime) -> RolloutStatus:
    """Return the state of the rollout of the RayService in a snapshot."""
    service, current = snapshot.service, phase.derive_phase(snapshot.service)
    where = f"RayService {service.metadata.namespace}/{service.metadata.name}"
    if (why := _find_failure(snapshot, current, now=now)) is not None:
        return RolloutStatus(course=RolloutState.FAILED, text=f"{where} {current.phase}: {why}")
    if (behind := _describe_lag(service)) is not None:
        return RolloutStatus(course=RolloutState.GOING_ON, text=behind)
    if service.raw_spec.get("suspend"):
        course = (
            RolloutState.DONE if current.phase is ServicePhase.SUSPENDED else RolloutState.GOING_ON
        )
        return RolloutStatus(course=course, text=f"{where} {current.phase}, as its spec asks")
    if current.phase is not ServicePhase.READY:
        return RolloutStatus(
            course=RolloutState.GOING_ON, text=f"{current.phase}: {current.message}"
        )
    if (why := _find_unserved(snapshot)) is not None:
        return RolloutStatus(course=RolloutState.GOING_ON, text=why)
    count = service.status.num_serve_endpoints
    text = (
        f"{where} Ready: {count} endpoint{'' if count == 1 else 's'}, RayCluster "
        f"{snapshot.active or 'unknown'} serves"
    )
    return RolloutStatus(course=RolloutState.DONE, text=text)


def _find_failure(snapshot: Snapshot, current: CurrentPhase, *, now: datetime) -> str | None:
    """Return why the rollout has failed or will not succeed by waiting; None if it may succeed.

    Unless the phase is a failure, the result is None if the spec is not reconciled yet, or if the
    service is suspended or paused.
    """
    if current.phase in _FAILED:
        return current.message
    is_held = snapshot.service.raw_spec.get("suspend") or current.phase is ServicePhase.PAUSED
    if is_held or _describe_lag(snapshot.service) is not None:
        return None
    return next(_find_lasting_causes(snapshot, now=now), None)


def _find_lasting_causes(snapshot: Snapshot, *, now: datetime) -> Iterator[str]:
    """Yield causes that waiting cannot remove: in the spec, and on the cluster that serves next."""
    refused = serve_schema.list_refused_fields(snapshot.service.serve_config)
    if refused:
        yield f"Ray Serve refuses spec.serveConfigV2: {'; '.join(refused)}"
    if conditions.is_true(snapshot.service.status.conditions, "RollbackInProgress"):
        return
    name = snapshot.pending or snapshot.active
    for pod in snapshot.list_pods(name):
        pull = observing.find_image_pull(pod, snapshot.events)
        if pull is not None and observing.is_lasting(pod, pull, now=now):
            yield f"Pod {pod.metadata.name}: {pull}"
    cluster, details = snapshot.find_cluster(name), snapshot.serve.get(name)
    if cluster is None or not _has_goal(snapshot, cluster):
        return
    for app_name, app in sorted(details.named().items() if details is not None else ()):
        if app.status == AppState.DEPLOY_FAILED:
            yield (
                f"application {app_name} on RayCluster {name} is {app.status}: "
                f"{' '.join(app.message.split())}"
            )


def _describe_lag(service: RayService) -> str | None:
    seen, wanted = service.status.observed_generation, service.metadata.generation
    if seen >= wanted:
        return None
    return f"raybus has not observed generation {wanted} yet (last observed: {seen})"


def _has_goal(snapshot: Snapshot, cluster: RayCluster) -> bool:
    """Return whether a cluster was sent the Serve config of the spec.

    A cluster without any recorded config counts as having the config.
    """
    given = observing.find_config(snapshot, cluster)
    is_recorded = bool(observing.list_records(snapshot, cluster))
    return not is_recorded or (
        given is not None
        and given.serve_config == snapshot.service.raw_spec.get("serveConfigV2", "")
    )


def _find_unserved(snapshot: Snapshot) -> str | None:
    """Return why the active cluster does not fully serve the spec; None if it does."""
    status = snapshot.service.status.active_service_status
    cluster = snapshot.find_cluster(snapshot.active)
    if cluster is not None and not _has_goal(snapshot, cluster):
        return f"RayCluster {snapshot.active} does not have the new Serve config yet"
    for name, app in sorted((status.applications or {}).items()):
        if app.status != "RUNNING":
            return f"application {name} is {app.status or 'unknown'}: {app.message}".rstrip(": ")
    return None
