"""What `raybus status` waits for: whether a rollout is over, has failed, or goes on, and why.

A pause and a deadline that is only told do not end by themselves: a pause is waited for, a stall is a failure. An upgrade that
was aborted has failed, however well the old cluster serves.
"""

from enum import StrEnum
from typing import Final

import msgspec

from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from raybus_cli.reading import observing
from raybus_cli.reading.look import Look
from raybus_cli.show import phase
from raybus_cli.show.phase import Phase

_FAILED: Final = {Phase.INVALID, Phase.TIMED_OUT, Phase.ABORTED, Phase.STALLED, Phase.DELETING}


class Course(StrEnum):
    """How a rollout stands."""

    DONE = "done"
    GOING_ON = "going on"
    FAILED = "failed"


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """How a rollout stands, and why."""

    course: Course
    text: str


def of(look: Look) -> Verdict:
    """Judge a look."""
    service, doing = look.service, phase.of(look.service)
    where = f"RayService {service.metadata.namespace}/{service.metadata.name}"
    if doing.phase in _FAILED:
        return Verdict(course=Course.FAILED, text=f"{where} {doing.phase}: {doing.message}")
    if (behind := _behind(service)) is not None:
        return Verdict(course=Course.GOING_ON, text=behind)
    if service.raw_spec.get("suspend"):
        course = Course.DONE if doing.phase is Phase.SUSPENDED else Course.GOING_ON
        return Verdict(course=course, text=f"{where} {doing.phase}, as its spec asks")
    if doing.phase is not Phase.READY:
        return Verdict(course=Course.GOING_ON, text=f"{doing.phase}: {doing.message}")
    if (why := _unserved(look)) is not None:
        return Verdict(course=Course.GOING_ON, text=why)
    count = service.status.num_serve_endpoints
    text = f"{where} Ready: {count} endpoint{'' if count == 1 else 's'}, RayCluster {look.active or 'unknown'} serves"
    return Verdict(course=Course.DONE, text=text)


def _behind(service: RayService) -> str | None:
    seen, wanted = service.status.observed_generation, service.metadata.generation
    if seen >= wanted:
        return None
    return f"raybus has not looked at generation {wanted} yet (last seen: {seen})"


def _has_goal(look: Look, cluster: RayCluster) -> bool:
    """Tell whether a cluster has the Serve config that the spec asks for; one without a record is not asked about."""
    given = observing.given(look, cluster)
    is_recorded = bool(observing.records(look, cluster))
    return not is_recorded or (
        given is not None and given.serve_config == look.service.raw_spec.get("serveConfigV2", "")
    )


def _unserved(look: Look) -> str | None:
    """Return why the active cluster does not serve all that the spec asks for."""
    status = look.service.status.active_service_status
    cluster = look.cluster(look.active)
    if cluster is not None and not _has_goal(look, cluster):
        return f"RayCluster {look.active} has not got the new Serve config yet"
    for name, app in sorted((status.applications or {}).items()):
        if app.status != "RUNNING":
            return f"application {name} is {app.status or 'unknown'}: {app.message}".rstrip(": ")
    return None
