"""Logs of Serve replicas, read through Ray's dashboard (its state API).

Serve's status names the log files. The status is untrusted: a file is read only if its name has the
form of a replica's log. `/api/v0/logs/file` answers with 200 even for an error, so errors are
recognised by their text.
"""

from collections.abc import Iterator
from typing import Final

import msgspec
import re2

from common import errors
from common.kube.resources import SERVICE
from common.ray.serve_status import DEFAULT_APP
from raybus_cli.logs.selection import Log, LogChoice, LogExtent, LogSource

LOG_FILE_PATH: Final = "/api/v0/logs/file"
LOG_STREAM_PATH: Final = "/api/v0/logs/stream"
PORT: Final = "dashboard"
WHOLE_LOG: Final = "-1"
READ_FAILED: Final = b"[get_logs] Fetch log error"
"""Start of the text that Ray returns instead of a log after an error."""
SECONDS_OF_RAY: Final = "0.5"
"""Seconds between Ray's reads of a followed file."""
_FILE: Final = re2.compile(r"/?(serve/(replica_[\w.#:-]+\.log))")


class LoggedReplica(msgspec.Struct, frozen=True, kw_only=True):
    """A replica and its log file."""

    node_id: str | None = None
    node_instance_id: str | None = None
    """Id of the replica's node; on Kubernetes, the name of the pod."""
    log_file_path: str | None = None


class LoggedDeployment(msgspec.Struct, frozen=True, kw_only=True):
    """A Serve deployment."""

    replicas: list[LoggedReplica] | None = None


class LoggedApplication(msgspec.Struct, frozen=True, kw_only=True):
    """A Serve application, with its deployments by name."""

    deployments: dict[str, LoggedDeployment] = {}


class Details(msgspec.Struct, frozen=True, kw_only=True):
    """The fields that are read from `GET /api/serve/applications/`."""

    applications: dict[str, LoggedApplication] = {}


def decode(body: bytes) -> Details:
    """Decode Serve's status; raise `Unavailable` for any other body."""
    try:
        return msgspec.json.decode(body, type=Details)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise errors.Unavailable(
            f"the dashboard's answer is not Serve status: {problem}"
        ) from problem


def select_logs(
    details: Details, namespace: str, service: str, choice: LogChoice, extent: LogExtent
) -> list[Log]:
    """Return the logs of the selected replicas; raise `Rejected` if there are none.

    `service` is the Kubernetes Service of Ray's dashboard.
    """
    known = {name or DEFAULT_APP: application for name, application in details.applications.items()}
    if choice.app is not None and choice.app not in known:
        raise errors.Rejected(
            f"Serve has no application {choice.app!r}; applications: {', '.join(known) or 'none'}"
        )
    apps = [application for name, application in known.items() if choice.app in {None, name}]
    deployments = {name: deployment for app in apps for name, deployment in app.deployments.items()}
    if choice.deployment is not None and choice.deployment not in deployments:
        there = ", ".join(deployments) or "none"
        raise errors.Rejected(
            f"Serve has no deployment {choice.deployment!r}; deployments: {there}"
        )
    path = SERVICE.proxy(
        namespace, service, PORT, LOG_STREAM_PATH if extent.follow else LOG_FILE_PATH
    )
    replica_logs = [
        Log(source=source, path=path, query=_build_query(node, file, extent), is_of_ray=True)
        for app in apps
        for name, deployment in app.deployments.items()
        if choice.deployment in {None, name}
        for source, node, file in _list_files(deployment)
        if choice.pod in {None, source.pod}
    ]
    if not replica_logs:
        raise errors.Rejected(
            "no replica with a log runs there now; see what Serve reports with 'raybus get' and "
            "'raybus explain'"
        )
    return replica_logs


def _list_files(deployment: LoggedDeployment) -> Iterator[tuple[LogSource, str, str]]:
    for replica in deployment.replicas or []:
        named = _FILE.fullmatch(replica.log_file_path or "")
        if named is not None and replica.node_id:
            yield (
                LogSource(replica.node_instance_id or replica.node_id, named[2]),
                replica.node_id,
                named[1],
            )


def _build_query(node: str, file: str, extent: LogExtent) -> dict[str, str]:
    tail = WHOLE_LOG if extent.tail is None else str(extent.tail)
    query = {"node_id": node, "filename": file, "lines": tail, "format": "text"}
    return {**query, "interval": SECONDS_OF_RAY} if extent.follow else query
