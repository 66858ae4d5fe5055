"""Selects clusters, pods and containers by the options of `raybus logs`, and formats log lines.

Pure.
"""

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

import msgspec

from common import durations, errors, labels, untrusted
from common.api.core import Pod
from common.api.ray_cluster import RayCluster
from common.api.ray_service import RayService
from common.kube.resources import POD, RAY_SERVICE
from common.ray import cluster_traits as traits
from raybus_cli.reading.kinds import Target

LONGEST: Final = 2**20
"""Maximum bytes of a line. Longer lines are split, so that no log can fill the memory."""


class Source(msgspec.Struct, frozen=True):
    """The pod and container that a line comes from."""

    pod: str
    container: str
    """Container name; for a Serve replica, the name of its log file."""

    def __str__(self) -> str:
        return f"pod/{self.pod}/{self.container}"


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """The output format of lines."""

    is_prefixed: bool = False
    """Whether each line starts with its source, as with `kubectl logs --prefix`."""
    is_raw: bool = False
    """Whether terminal escapes are kept."""
    is_json: bool = False


class Document(msgspec.Struct, frozen=True):
    """A line as JSON."""

    pod: str
    container: str
    line: str


class Splitter:
    """Splits the chunks of a stream into lines, without line ends."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that a chunk completes."""
        self._rest += chunk
        *whole, rest = bytes(self._rest).split(b"\n")
        self._rest = bytearray(rest)
        lines = [part for line in whole for part in _divided(line)]
        while len(self._rest) >= LONGEST:
            lines.append(bytes(self._rest[:LONGEST]))
            del self._rest[:LONGEST]
        return lines

    def end(self) -> list[bytes]:
        """Return the last line, if the stream does not end with a line end."""
        rest, self._rest = bytes(self._rest), bytearray()
        return [rest] if rest else []


def _divided(line: bytes) -> list[bytes]:
    return [line[at : at + LONGEST] for at in range(0, len(line), LONGEST)] or [b""]


def render(source: Source, line: bytes, form: Form) -> bytes:
    """Format a line for output, with a line end."""
    if form.is_json:
        text = line.decode(errors="replace")
        found = Document(
            _plain(source.pod), _plain(source.container), text if form.is_raw else _plain(text)
        )
        return untrusted.escaped(msgspec.json.encode(found).decode() + "\n").encode()
    prefix = f"[{_plain(str(source))}] ".encode() if form.is_prefixed else b""
    return (
        prefix + (line if form.is_raw else _plain(line.decode(errors="replace")).encode()) + b"\n"
    )


def _plain(text: str) -> str:
    return untrusted.plain(text.removesuffix("\r"))


MOST: Final = 20
"""Maximum number of logs per command; each takes a connection and a buffer."""
SHOWN: Final = 8
"""Maximum number of names in a message."""
ACTIVE: Final = "active"
PENDING: Final = "pending"


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """The options that select logs, as given."""

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


class Extent(msgspec.Struct, frozen=True, kw_only=True):
    """The options that limit each log."""

    follow: bool = False
    since: timedelta | None = None
    tail: int | None = None
    previous: bool = False


class Log(msgspec.Struct, frozen=True, kw_only=True):
    """A log and the request that reads it."""

    source: Source
    path: str
    query: dict[str, str]
    is_placed: bool = True
    """Whether the pod has a node; without one the API server returns an empty log."""
    is_of_ray: bool = False
    """Whether Ray's dashboard serves the log instead of the API server."""


def check(choice: Choice, extent: Extent, target: Target) -> None:
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


def since(text: str | None) -> timedelta | None:
    """Parse `--since`; raise `InvalidSpec` if it is not a positive duration."""
    if text is None:
        return None
    length = durations.parse_or_seconds(text)
    if length is None or length <= timedelta(0):
        raise errors.InvalidSpec(
            f"--since {text!r} is no duration; write for example 10m, 90s or 2h"
        )
    return length


def cluster(service: RayService, asked: str | None, known: Sequence[str] = ()) -> str:
    """Return the name of the selected cluster; raise `Rejected` if there is none.

    `known` are the RayService's clusters; they are needed only if `asked` is a name.
    """
    name, status = service.metadata.name, service.status
    active, pending = (
        status.active_service_status.ray_cluster_name,
        status.pending_service_status.ray_cluster_name,
    )
    if asked is None:
        found = active or pending
    elif asked in {ACTIVE, PENDING}:
        found = active if asked == ACTIVE else pending
    else:
        if asked not in known:
            raise errors.Rejected(f"RayService {name} has no RayCluster {asked}; {_there(known)}")
        return asked
    if found:
        return found
    if asked == PENDING and active:
        raise errors.Rejected(
            f"RayService {name} has no pending cluster, because no upgrade is in progress"
        )
    raise errors.Rejected(
        f"RayService {name} has no {asked or ACTIVE} cluster yet; see why with 'raybus explain "
        f"{name}'"
    )


def pods(found: Sequence[Pod], choice: Choice, of: str, target: Target) -> list[Pod]:
    """Return the selected pods of a RayCluster; raise `Rejected` if there are none or too many."""
    there = sorted(found, key=lambda each: (_kind(each) != labels.HEAD, each.metadata.name))
    if choice.pod is not None:
        chosen = [each for each in there if each.metadata.name == choice.pod]
        if not chosen:
            raise gone(choice.pod, of, target)
    elif choice.every:
        chosen = there
    elif choice.group is not None:
        chosen = [each for each in there if _group(each) == choice.group]
        if not chosen:
            groups = list(dict.fromkeys(map(_group, there)))
            raise errors.Rejected(
                f"RayCluster {of} has no pod of group {choice.group!r}; groups with pods: "
                f"{_listed(groups)}"
            )
    else:
        wanted = labels.WORKER if choice.workers else labels.HEAD
        chosen = [each for each in there if _kind(each) == wanted]
    if not chosen:
        what = "worker pod" if choice.workers else "pod" if choice.every else "head pod"
        raise errors.Rejected(f"RayCluster {of} has no {what} now; {_remedy(target)}")
    _bound(len(chosen), "pods", "--group, --pod or --head")
    return chosen


def gone(pod: str, of: str, target: Target) -> errors.Rejected:
    """Return the error for a pod that does not exist."""
    return errors.Rejected(
        f"RayCluster {of} has no pod {pod}: if it is gone, so is its log; {_remedy(target)}"
    )


def _remedy(target: Target) -> str:
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


def logs(
    namespace: str,
    chosen: Sequence[Pod],
    choice: Choice,
    extent: Extent,
    of: RayCluster | None = None,
) -> list[Log]:
    """Return one log for each pod: of the selected container, else of the Ray container.

    `of` is the RayCluster of the pods; without it the first container counts as the Ray container.
    """
    query = {
        "follow": "true" if extent.follow else "",
        "sinceSeconds": ""
        if extent.since is None
        else str(math.ceil(extent.since.total_seconds())),
        "tailLines": "" if extent.tail is None else str(extent.tail),
        "previous": "true" if extent.previous else "",
    }
    found: list[Log] = []
    for pod in chosen:
        name, container = pod.metadata.name, _container(pod, choice, of)
        if container is None:
            continue
        asked = {"container": container, **{key: value for key, value in query.items() if value}}
        path, is_placed = POD.path(namespace, name, "log"), bool(pod.spec.node_name)
        found.append(
            Log(source=Source(name, container), path=path, query=asked, is_placed=is_placed)
        )
    if not found:
        there = list(dict.fromkeys(name for pod in chosen for name in _containers(pod)))
        raise errors.Rejected(
            f"no container is named {choice.container!r}; containers: {_listed(there)}"
        )
    return found


def bounded(found: list[Log]) -> list[Log]:
    """Return the logs unchanged; raise `Rejected` if there are more than `MOST`."""
    _bound(len(found), "replicas", "--deployment or --pod")
    return found


def _bound(count: int, what: str, options: str) -> None:
    if count > MOST:
        raise errors.Rejected(
            f"{count} {what} are more than the {MOST} that one command reads: narrow them with "
            f"{options}"
        )


def _container(pod: Pod, choice: Choice, of: RayCluster | None) -> str | None:
    there = _containers(pod)
    if choice.container is None:
        found = traits.ray_container(of, pod)
        return None if found is None else found.name
    return choice.container if choice.container in there else None


def _containers(pod: Pod) -> list[str]:
    """Return the names of a pod's containers, including init containers that have a status."""
    return [
        *(each.name for each in pod.spec.containers),
        *(each.name for each in pod.status.init_container_statuses),
    ]


def _kind(pod: Pod) -> str:
    return pod.metadata.labels.get(labels.NODE_TYPE, "")


def _group(pod: Pod) -> str:
    return pod.metadata.labels.get(labels.GROUP, "")


def _there(known: Sequence[str]) -> str:
    return f"it has {_listed(known)}" if known else "it has none"


def _listed(found: Sequence[str]) -> str:
    return ", ".join(found[:SHOWN]) + (
        f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    )
