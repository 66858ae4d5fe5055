"""Selects clusters, pods and containers by the options of `raybus logs`, and formats log lines.

Does no I/O.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from functools import cached_property
from typing import Final, NamedTuple

import msgspec

from common import durations, errors, labels, untrusted
from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.kube.resources import POD, RAY_SERVICE
from common.ray import cluster_traits as traits
from raybus_cli.reading.kinds import NamedTarget

MAX_LINE_SIZE: Final = 2**20
"""Maximum bytes of a line. Longer lines are split, so that no log can fill the memory."""


class LogSource(msgspec.Struct, frozen=True, dict=True):
    """The pod and container that a line comes from."""

    pod: str
    container: str
    """Container name; for a Serve replica, the name of its log file."""

    def __str__(self) -> str:
        return f"pod/{self.pod}/{self.container}"

    @cached_property
    def printable_names(self) -> tuple[str, str]:
        """Names of pod and container, without control characters; computed once for all lines."""
        return _decode_line(self.pod), _decode_line(self.container)

    @cached_property
    def prefix(self) -> bytes:
        """The start of each line, as with `kubectl logs --prefix`; computed once for all lines."""
        return f"[{_decode_line(str(self))}] ".encode()


class LineFormat(msgspec.Struct, frozen=True, kw_only=True):
    """The output format of lines."""

    is_prefixed: bool = False
    """Whether each line starts with its source, as with `kubectl logs --prefix`."""
    is_raw: bool = False
    """Whether terminal escapes are kept."""
    is_json: bool = False


class LogRecord(msgspec.Struct, frozen=True):
    """The JSON output for a line of a log."""

    pod: str
    container: str
    line: str


class Piece(NamedTuple):
    """A line, or a part of a line that is longer than `MAX_LINE_SIZE`."""

    text: bytes
    begins_line: bool


class Splitter:
    """Splits the chunks of a stream into lines, without line ends.

    A long line is cut at multiples of `MAX_LINE_SIZE`, wherever the chunks end.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._is_within_line = False
        """Whether the first pieces of the present line have been returned."""

    def split(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes."""
        return [piece.text for piece in self.split_pieces(chunk)]

    def split_pieces(self, chunk: bytes) -> list[Piece]:
        """Return the lines that a chunk completes, as pieces of at most `MAX_LINE_SIZE` bytes."""
        self._rest += chunk
        *whole, rest = bytes(self._rest).split(b"\n")
        pieces: list[Piece] = []
        for line in whole:
            pieces += self._divide(line)
            self._is_within_line = False
        complete = len(rest) - len(rest) % MAX_LINE_SIZE
        if complete:
            pieces += self._divide(rest[:complete])
        self._rest = bytearray(rest[complete:])
        return pieces

    def end(self) -> list[bytes]:
        """Return the last line, if the stream does not end with a line end."""
        return [piece.text for piece in self.end_pieces()]

    def end_pieces(self) -> list[Piece]:
        """Return the rest of the last line as pieces, unless the stream ends with a line end."""
        pieces = self._divide(bytes(self._rest)) if self._rest else []
        self._rest, self._is_within_line = bytearray(), False
        return pieces

    def _divide(self, line: bytes) -> list[Piece]:
        if not line and not self._is_within_line:
            return [Piece(line, begins_line=True)]
        pieces = [
            Piece(line[at : at + MAX_LINE_SIZE], begins_line=at == 0 and not self._is_within_line)
            for at in range(0, len(line), MAX_LINE_SIZE)
        ]
        self._is_within_line = True
        return pieces


def render(source: LogSource, line: bytes, form: LineFormat) -> bytes:
    """Format a line for output, with a line end."""
    if form.is_json:
        text = line.decode(errors="replace")
        record = LogRecord(*source.printable_names, text if form.is_raw else _decode_line(text))
        return untrusted.escaped(msgspec.json.encode(record).decode()).encode() + b"\n"
    prefix = source.prefix if form.is_prefixed else b""
    return (
        prefix
        + (line if form.is_raw else _decode_line(line.decode(errors="replace")).encode())
        + b"\n"
    )


def _decode_line(text: str) -> str:
    return untrusted.plain(text.removesuffix("\r"))


MAX_LOGS: Final = 20
"""Maximum number of logs per command; each takes a connection and a buffer."""
MAX_SHOWN_NAMES: Final = 8
"""Maximum number of names in a message."""
ACTIVE: Final = "active"
PENDING: Final = "pending"


class LogChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The options that select logs, as the user gave them."""

    cluster: str | None = None
    head: bool = False
    workers: bool = False
    group: str | None = None
    pod: str | None = None
    container: str | None = None
    every: bool = False
    app: str | None = None
    deployment: str | None = None

    @property
    def is_of_serve(self) -> bool:
        """Whether logs of Serve replicas are selected."""
        return self.app is not None or self.deployment is not None


class LogExtent(msgspec.Struct, frozen=True, kw_only=True):
    """The options that limit each log."""

    follow: bool = False
    since: timedelta | None = None
    tail: int | None = None
    previous: bool = False


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """A log and the request that reads it."""

    source: LogSource
    path: str
    query: dict[str, str]
    is_placed: bool = True
    """Whether the pod is assigned to a node. Without one, the API server returns an empty log."""
    is_of_ray: bool = False
    """Whether Ray's dashboard serves the log instead of the API server."""


def check(choice: LogChoice, extent: LogExtent, target: NamedTarget) -> None:
    """Raise `InvalidSpec` for options that exclude each other."""
    given = {
        "--head": choice.head,
        "--workers": choice.workers,
        "--group": choice.group is not None,
        "--pod": choice.pod is not None,
        "--all": choice.every,
    }
    chosen = [name for name, is_given in given.items() if is_given]
    if len(chosen) > 1:
        raise errors.InvalidSpec(f"{' and '.join(chosen)} exclude one another: choose one")
    if choice.cluster is not None and target.resource is not RAY_SERVICE:
        raise errors.InvalidSpec(
            f"--cluster selects a cluster of a RayService; {target} is one already"
        )
    if not choice.is_of_serve:
        return
    others = {
        "-c": choice.container is not None,
        "--since": extent.since is not None,
        "-p": extent.previous,
        **{name: name in chosen for name in given if name != "--pod"},
    }
    wrong = [name for name, is_given in others.items() if is_given]
    if wrong:
        raise errors.InvalidSpec(
            f"{' and '.join(wrong)} cannot be used with --app or --deployment, which read files "
            "of replicas: narrow them with --pod and --tail"
        )


def check_raw(raw: bool, *, is_terminal: bool) -> None:
    """Raise `InvalidSpec` for `--raw` on a terminal, because escapes in a log could control it."""
    if raw and is_terminal:
        raise errors.InvalidSpec(
            "--raw would pass the escapes of a log to this terminal: write it to a file or a pipe"
        )


def parse_since(text: str | None) -> timedelta | None:
    """Parse `--since`; raise `InvalidSpec` if it is not a positive duration."""
    if text is None:
        return None
    length = durations.parse_or_seconds(text)
    if length is None or length <= timedelta(0):
        raise errors.InvalidSpec(
            f"--since {text!r} is no duration; write for example 10m, 90s or 2h"
        )
    return length


def select_cluster(service: RayService, asked: str | None, known: Sequence[str] = ()) -> str:
    """Return the name of the selected cluster; raise `Rejected` if there is none.

    `known` are the RayService's clusters; they are needed only if `asked` is a name.
    """
    name, status = service.metadata.name, service.status
    active, pending = (
        status.active_service_status.ray_cluster_name,
        status.pending_service_status.ray_cluster_name,
    )
    if asked is None:
        chosen = active or pending
    elif asked in {ACTIVE, PENDING}:
        chosen = active if asked == ACTIVE else pending
    else:
        if asked not in known:
            raise errors.Rejected(
                f"RayService {name} has no RayCluster {asked}; {_format_clusters(known)}"
            )
        return asked
    if chosen:
        return chosen
    if asked == PENDING and active:
        raise errors.Rejected(
            f"RayService {name} has no pending cluster, because no upgrade is in progress"
        )
    raise errors.Rejected(
        f"RayService {name} has no {asked or ACTIVE} cluster yet; see why with 'raybus explain "
        f"{name}'"
    )


def select_pods(pods: Sequence[Pod], choice: LogChoice, of: str, target: NamedTarget) -> list[Pod]:
    """Return the selected pods of the RayCluster named `of`; `target` is what the user named.

    Raises `Rejected` if no pod or too many pods are selected.
    """
    there = sorted(pods, key=lambda pod: (_get_node_type(pod) != labels.HEAD, pod.metadata.name))
    if choice.pod is not None:
        chosen = [pod for pod in there if pod.metadata.name == choice.pod]
        if not chosen:
            raise build_gone_error(choice.pod, of, target)
    elif choice.every:
        chosen = there
    elif choice.group is not None:
        chosen = [pod for pod in there if _get_group(pod) == choice.group]
        if not chosen:
            groups = list(dict.fromkeys(map(_get_group, there)))
            raise errors.Rejected(
                f"RayCluster {of} has no pod of group {choice.group!r}; groups with pods: "
                f"{untrusted.joined(groups, MAX_SHOWN_NAMES)}"
            )
    else:
        wanted = labels.WORKER if choice.workers else labels.HEAD
        chosen = [pod for pod in there if _get_node_type(pod) == wanted]
    if not chosen:
        what = "worker pod" if choice.workers else "pod" if choice.every else "head pod"
        raise errors.Rejected(f"RayCluster {of} has no {what} now; {_format_remedy(target)}")
    _check_count(len(chosen), "pods", "--group, --pod or --head")
    return chosen


def build_gone_error(pod: str, of: str, target: NamedTarget) -> errors.Rejected:
    """Return the error for a pod that the RayCluster named `of` does not have."""
    return errors.Rejected(
        f"RayCluster {of} has no pod {pod}: if it is gone, so is its log; {_format_remedy(target)}"
    )


def _format_remedy(target: NamedTarget) -> str:
    if target.resource is not RAY_SERVICE:
        return (
            f"see 'kubectl describe raycluster {target.name}'; -p reads the log of a container "
            "before its restart"
        )
    return (
        f"'raybus explain {target.name}' names the cause, 'raybus bundle {target.name}' keeps "
        "the events, and -p reads the log of a "
        "container before its restart"
    )


def select_logs(
    namespace: str,
    chosen: Sequence[Pod],
    choice: LogChoice,
    extent: LogExtent,
    of: RayCluster | None = None,
) -> list[Log]:
    """Return one log for each pod: of the selected container, by default the Ray container.

    `of` is the RayCluster of the pods. Without it, the first container counts as the Ray container.
    """
    query = {
        "follow": "true" if extent.follow else "",
        "sinceSeconds": ""
        if extent.since is None
        else str(math.ceil(extent.since.total_seconds())),
        "tailLines": "" if extent.tail is None else str(extent.tail),
        "previous": "true" if extent.previous else "",
    }
    selected: list[Log] = []
    for pod in chosen:
        name, container = pod.metadata.name, _select_container(pod, choice, of)
        if container is None:
            continue
        asked = {"container": container, **{key: value for key, value in query.items() if value}}
        path, is_placed = POD.path(namespace, name, "log"), bool(pod.spec.node_name)
        selected.append(
            Log(source=LogSource(name, container), path=path, query=asked, is_placed=is_placed)
        )
    if not selected:
        there = list(dict.fromkeys(name for pod in chosen for name in _list_containers(pod)))
        raise errors.Rejected(
            f"no container is named {choice.container!r}; containers: "
            f"{untrusted.joined(there, MAX_SHOWN_NAMES)}"
        )
    return selected


def limit_logs(logs: list[Log]) -> list[Log]:
    """Return the logs unchanged; raise `Rejected` if there are more than `MAX_LOGS`."""
    _check_count(len(logs), "replicas", "--deployment or --pod")
    return logs


def _check_count(count: int, what: str, options: str) -> None:
    if count > MAX_LOGS:
        raise errors.Rejected(
            f"{count} {what} are more than the {MAX_LOGS} that one command reads: narrow them with "
            f"{options}"
        )


def _select_container(pod: Pod, choice: LogChoice, of: RayCluster | None) -> str | None:
    there = _list_containers(pod)
    if choice.container is None:
        container = traits.ray_container(of, pod)
        return None if container is None else container.name
    return choice.container if choice.container in there else None


def _list_containers(pod: Pod) -> list[str]:
    """Return the names of a pod's containers, including init containers that have a status."""
    return [
        *(container.name for container in pod.spec.containers),
        *(status.name for status in pod.status.init_container_statuses),
    ]


def _get_node_type(pod: Pod) -> str:
    return pod.metadata.labels.get(labels.NODE_TYPE, "")


def _get_group(pod: Pod) -> str:
    return pod.metadata.labels.get(labels.GROUP, "")


def _format_clusters(known: Sequence[str]) -> str:
    return f"it has {untrusted.joined(known, MAX_SHOWN_NAMES)}" if known else "it has none"
