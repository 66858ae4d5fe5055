"""Shorten Serve's messages about applications so that the status of a RayService fits into etcd.

An object may have 1.5 MiB, including its spec, the last applied manifest and the statuses of both
clusters. First long messages are cut, all to the same length. Then the messages of deployments are
dropped, then applications, beginning with running ones. The status says that something was left
out.
"""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec

from common.api.meta import MARK, clipped
from common.api.ray_service import AppStatus, RayService, RayServiceStatus, ServeDeploymentStatus
from common.ray.serve_status import Application, AppState

Applications = dict[str, AppStatus]

MAX_OBJECT_SIZE: Final = 1536 * 1024
"""Maximum bytes of an object in etcd."""
RESERVED_SIZE: Final = 384 * 1024
"""Bytes of an object for everything but applications: conditions, managed fields and so on."""
MAX_STATUS_SIZE: Final = 512 * 1024
"""Maximum bytes of the applications in a status.

Every client that watches RayServices receives them with each change.
"""
MIN_STATUS_SIZE: Final = 16 * 1024
MESSAGE_LIMITS: Final = (32_768, 8_192, 2_048, 512, 128, 0)
"""Maximum characters of a message, tried in this order until everything fits."""
TRUNCATED_MESSAGE: Final = (
    "The status leaves out a part of what Ray Serve reports of the applications, because an "
    f"object has room for {MAX_OBJECT_SIZE // 1024} KiB: "
    "messages that are cut are marked, and the Ray dashboard has all of them"
)
_NOTE: Final = f"[all{MARK}"


def get_max_size(service: RayService) -> int:
    """Return the maximum bytes for the applications of each of the two clusters."""
    used = len(service.spec_json) + len(msgspec.json.encode(service.metadata))
    return max(MIN_STATUS_SIZE, min(MAX_STATUS_SIZE, MAX_OBJECT_SIZE - RESERVED_SIZE - used)) // 2


def shorten_to_fit(apps: Mapping[str, Application], max_bytes: int) -> Applications | None:
    """Return the statuses of applications and deployments, shortened to `max_bytes` bytes.

    None if there are no applications or if nothing fits.
    """
    if not apps:
        return None
    return next(
        (
            statuses
            for statuses in _generate_shorter(apps)
            if len(msgspec.json.encode(statuses)) <= max_bytes
        ),
        None,
    )


def is_cut(status: RayServiceStatus) -> bool:
    """Return whether a status leaves out part of Serve's messages."""
    clusters = (status.active_service_status, status.pending_service_status)
    apps = [
        app for cluster_status in clusters for app in (cluster_status.applications or {}).values()
    ]
    return any(
        MARK in part.message for app in apps for part in (app, *(app.deployments or {}).values())
    )


def _generate_shorter(apps: Mapping[str, Application]) -> Iterator[Applications]:
    """Yield the applications in full, then with less and less detail."""
    for limit in MESSAGE_LIMITS:
        yield {name: _build_app_status(app, limit) for name, app in apps.items()}
    bare = {name: AppStatus(status=app.status, message=_NOTE) for name, app in apps.items()}
    yield bare
    names = sorted(bare, key=lambda name: (bare[name].status == AppState.RUNNING, name))
    count = len(names)
    while count := count // 2:
        yield {name: bare[name] for name in names[:count]}


def _build_app_status(app: Application, limit: int) -> AppStatus:
    deployments = {
        name: ServeDeploymentStatus(
            status=deployment.status, message=_truncate(deployment.message, limit)
        )
        for name, deployment in app.deployments.items()
    }
    return AppStatus(
        status=app.status, message=_truncate(app.message, limit), deployments=deployments or None
    )


def _truncate(text: str, limit: int) -> str:
    return clipped(text, limit) if limit or not text else _NOTE
