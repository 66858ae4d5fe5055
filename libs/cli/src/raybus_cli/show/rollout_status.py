"""The result of `raybus status`: whether a rollout is done, has failed, or is in progress, and why.

A pause and a stall without a deadline do not end by themselves: a pause is waited for, a stall is a failure. An upgrade that
was aborted has failed, however well the old cluster serves.
"""

from enum import StrEnum
from typing import Final

import msgspec

from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from raybus_cli.reading import observing
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import phase
from raybus_cli.show.phase import Phase

_FAILED: Final = {Phase.INVALID, Phase.TIMED_OUT, Phase.ABORTED, Phase.STALLED, Phase.DELETING}


class RolloutState(StrEnum):
    """The state of a rollout."""

    DONE = "done"
    GOING_ON = "going on"
    FAILED = "failed"


class RolloutStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a rollout, and its reason."""

    course: RolloutState
    text: str


def of(snapshot: Snapshot) -> RolloutStatus:
    """Return the verdict on a snapshot."""
    service, current = snapshot.service, phase.of(snapshot.service)
    where = f"RayService {service.metadata.namespace}/{service.metadata.name}"
    if current.phase in _FAILED:
        return RolloutStatus(course=RolloutState.FAILED, text=f"{where} {current.phase}: {current.message}")
    if (behind := _behind(service)) is not None:
        return RolloutStatus(course=RolloutState.GOING_ON, text=behind)
    if service.raw_spec.get("suspend"):
        course = RolloutState.DONE if current.phase is Phase.SUSPENDED else RolloutState.GOING_ON
        return RolloutStatus(course=course, text=f"{where} {current.phase}, as its spec asks")
    if current.phase is not Phase.READY:
        return RolloutStatus(course=RolloutState.GOING_ON, text=f"{current.phase}: {current.message}")
    if (why := _unserved(snapshot)) is not None:
        return RolloutStatus(course=RolloutState.GOING_ON, text=why)
    count = service.status.num_serve_endpoints
    text = (
        f"{where} Ready: {count} endpoint{'' if count == 1 else 's'}, RayCluster {snapshot.active or 'unknown'} serves"
    )
    return RolloutStatus(course=RolloutState.DONE, text=text)


def _behind(service: RayService) -> str | None:
    seen, wanted = service.status.observed_generation, service.metadata.generation
    if seen >= wanted:
        return None
    return f"raybus has not observed generation {wanted} yet (last observed: {seen})"


def _has_goal(snapshot: Snapshot, cluster: RayCluster) -> bool:
    """Return whether a cluster has the Serve config of the spec; one without a record is not checked."""
    given = observing.given(snapshot, cluster)
    is_recorded = bool(observing.records(snapshot, cluster))
    return not is_recorded or (
        given is not None and given.serve_config == snapshot.service.raw_spec.get("serveConfigV2", "")
    )


def _unserved(snapshot: Snapshot) -> str | None:
    """Return why the active cluster does not serve all that the spec asks for."""
    status = snapshot.service.status.active_service_status
    cluster = snapshot.cluster(snapshot.active)
    if cluster is not None and not _has_goal(snapshot, cluster):
        return f"RayCluster {snapshot.active} does not have the new Serve config yet"
    for name, app in sorted((status.applications or {}).items()):
        if app.status != "RUNNING":
            return f"application {name} is {app.status or 'unknown'}: {app.message}".rstrip(": ")
    return None
