"""Reads a pod from protobuf, with the same result as `common.api.core.Pod` from JSON.

Labels, owners, containers and conditions repeat in the states of a pod and among the pods of a
cluster. So their decoded values are cached by their bytes, which saves half of the time.
"""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final

from common.api import core
from common.api.meta import ObjectMeta, OwnerReference
from common.kube.protobuf import (
    Field,
    boolean,
    build_reader,
    cache_results,
    integer,
    message,
    read_bytes,
    read_fields,
    read_text,
    text,
)

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DEFAULTS: Final = core.PodSpec()
SMALL: Final = 512
"""Maximum bytes of an owner, condition or container state whose decoded value is cached."""


class UnreadablePod(ValueError):
    """The pod has a value that Python cannot hold, such as a time in the year 10000."""

    def __init__(self, metadata: ObjectMeta, reason: str) -> None:
        super().__init__(reason)
        self.metadata = metadata


def _build_time(seconds: int | None = None) -> datetime | None:
    """Return a time; None for the zero time, which Kubernetes writes without seconds."""
    return None if seconds is None else EPOCH + timedelta(seconds=seconds)


def _build_entry(*, key: str = "", value: str = "") -> tuple[str, str]:
    return key, value


def _build_meta(
    *,
    labels: Iterable[tuple[str, str]] = (),
    annotations: Iterable[tuple[str, str]] = (),
    **values: Any,
) -> ObjectMeta:
    return ObjectMeta(labels=dict(labels), annotations=dict(annotations), **values)


def _read_restart_policy(data: bytes) -> str:
    return read_text(data) or DEFAULTS.restart_policy


def _struct(build: Any, *fields: tuple[int, Field], **defaults: Any) -> Any:
    return cache_results(build_reader(build, *fields, **defaults), entries=256, max_size=SMALL)


_time: Final = lru_cache(256)(build_reader(_build_time, integer(1, "seconds")))
_annotation: Final = build_reader(_build_entry, text(1, "key"), text(2, "value"))
# The API server limits the size of a label, so its size is not checked again.
_label: Final = lru_cache(1024)(_annotation)
_owner: Final = _struct(
    OwnerReference,
    text(1, "kind"),
    text(3, "name"),
    text(4, "uid"),
    text(5, "api_version"),
    boolean(6, "controller"),
    boolean(7, "block_owner_deletion"),
)
_meta: Final = build_reader(
    _build_meta,
    text(1, "name"),
    text(2, "generate_name"),
    text(3, "namespace"),
    text(5, "uid"),
    text(6, "resource_version"),
    integer(7, "generation"),
    message(8, "creation_timestamp", _time),
    message(9, "deletion_timestamp", _time),
    message(11, "labels", _label, repeated=True),
    message(12, "annotations", _annotation, repeated=True),
    message(13, "owner_references", _owner, repeated=True),
    text(14, "finalizers", repeated=True),
)
_port: Final = build_reader(core.ContainerPort, text(1, "name"), integer(3, "container_port"))
_container: Final = cache_results(
    build_reader(
        core.Container,
        text(1, "name"),
        text(2, "image"),
        message(6, "ports", _port, repeated=True),
        name="",
    ),
    entries=128,
    max_size=8192,
)
_spec: Final = build_reader(
    core.PodSpec,
    message(2, "containers", _container, repeated=True),
    message(3, "restart_policy", _read_restart_policy),
    integer(4, "termination_grace_period_seconds"),
    text(10, "node_name"),
)
_condition: Final = _struct(
    core.PodCondition,
    text(1, "type"),
    text(2, "status"),
    message(4, "last_transition_time", _time),
    text(5, "reason"),
    text(6, "message"),
    type="",
    status="",
)
_waiting: Final = build_reader(core.StateWaiting, text(1, "reason"), text(2, "message"))
_terminated: Final = build_reader(
    core.StateTerminated,
    integer(1, "exit_code"),
    text(3, "reason"),
    text(4, "message"),
    message(6, "finished_at", _time),
)
_state: Final = _struct(
    core.ContainerState, message(1, "waiting", _waiting), message(3, "terminated", _terminated)
)
_container_status: Final = build_reader(
    core.ContainerStatus,
    text(1, "name"),
    message(2, "state", _state),
    message(3, "last_state", _state),
    boolean(4, "ready"),
    integer(5, "restart_count"),
    name="",
)
_status: Final = build_reader(
    core.PodStatus,
    text(1, "phase"),
    message(2, "conditions", _condition, repeated=True),
    text(3, "message"),
    text(4, "reason"),
    text(6, "pod_ip"),
    message(7, "start_time", _time),
    message(8, "container_statuses", _container_status, repeated=True),
    message(10, "init_container_statuses", _container_status, repeated=True),
)
_pod: Final = dict(
    [
        message(1, "metadata", read_bytes),
        message(2, "spec", read_bytes),
        message(3, "status", read_bytes),
    ]
)


def read_pod(content: bytes) -> core.Pod:
    """Read a pod.

    Raises `UnreadablePod` if only its metadata can be read, and `MalformedMessage` if the bytes are
    not a pod.
    """
    parts = read_fields(content, _pod)
    metadata = _meta(parts.get("metadata", b""))
    try:
        spec, status = _spec(parts.get("spec", b"")), _status(parts.get("status", b""))
    except OverflowError as problem:
        raise UnreadablePod(metadata, str(problem)) from None
    return core.Pod(metadata=metadata, spec=spec, status=status)
