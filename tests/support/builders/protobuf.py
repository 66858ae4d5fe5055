"""Protobuf as the API server writes it, built from the JSON of an object.

The numbers are those of `generated.proto` in `k8s.io/api`. A shape has more fields than raybus
reads.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias, cast

Shape: TypeAlias = Mapping[str, tuple[int, "str | Shape"]]
"""The fields of a message: the number and the kind of each (`text`, `int`, `time`, `map`, a shape).
"""

OWNER: Final[Shape] = {
    "apiVersion": (5, "text"),
    "kind": (1, "text"),
    "name": (3, "text"),
    "uid": (4, "text"),
    "controller": (6, "int"),
    "blockOwnerDeletion": (7, "int"),
}
MANAGED_FIELDS: Final[Shape] = {"manager": (1, "text"), "time": (4, "time"), "raw": (7, "text")}
META: Final[Shape] = {
    "name": (1, "text"),
    "generateName": (2, "text"),
    "namespace": (3, "text"),
    "selfLink": (4, "text"),
    "uid": (5, "text"),
    "resourceVersion": (6, "text"),
    "generation": (7, "int"),
    "creationTimestamp": (8, "time"),
    "deletionTimestamp": (9, "time"),
    "deletionGracePeriodSeconds": (10, "int"),
    "labels": (11, "map"),
    "annotations": (12, "map"),
    "ownerReferences": (13, OWNER),
    "finalizers": (14, "text"),
    "managedFields": (17, MANAGED_FIELDS),
}
PORT: Final[Shape] = {
    "name": (1, "text"),
    "hostPort": (2, "int"),
    "containerPort": (3, "int"),
    "protocol": (4, "text"),
}
ENV: Final[Shape] = {"name": (1, "text"), "value": (2, "text")}
CONTAINER: Final[Shape] = {
    "name": (1, "text"),
    "image": (2, "text"),
    "command": (3, "text"),
    "ports": (6, PORT),
    "env": (7, ENV),
    "terminationMessagePolicy": (20, "text"),
}
SPEC: Final[Shape] = {
    "containers": (2, CONTAINER),
    "restartPolicy": (3, "text"),
    "terminationGracePeriodSeconds": (4, "int"),
    "nodeSelector": (7, "map"),
    "nodeName": (10, "text"),
    "hostNetwork": (11, "int"),
    "initContainers": (20, CONTAINER),
    "enableServiceLinks": (30, "int"),
}
CONDITION: Final[Shape] = {
    "type": (1, "text"),
    "status": (2, "text"),
    "lastProbeTime": (3, "time"),
    "lastTransitionTime": (4, "time"),
    "reason": (5, "text"),
    "message": (6, "text"),
    "observedGeneration": (7, "int"),
}
STATE: Final[Shape] = {
    "waiting": (1, {"reason": (1, "text"), "message": (2, "text")}),
    "running": (2, {"startedAt": (1, "time")}),
    "terminated": (
        3,
        {
            "exitCode": (1, "int"),
            "signal": (2, "int"),
            "reason": (3, "text"),
            "message": (4, "text"),
            "startedAt": (5, "time"),
            "finishedAt": (6, "time"),
        },
    ),
}
CONTAINER_STATUS: Final[Shape] = {
    "name": (1, "text"),
    "state": (2, STATE),
    "lastState": (3, STATE),
    "ready": (4, "int"),
    "restartCount": (5, "int"),
    "image": (6, "text"),
    "started": (9, "int"),
}
STATUS: Final[Shape] = {
    "phase": (1, "text"),
    "conditions": (2, CONDITION),
    "message": (3, "text"),
    "reason": (4, "text"),
    "hostIP": (5, "text"),
    "podIP": (6, "text"),
    "startTime": (7, "time"),
    "containerStatuses": (8, CONTAINER_STATUS),
    "qosClass": (9, "text"),
    "initContainerStatuses": (10, CONTAINER_STATUS),
    "observedGeneration": (17, "int"),
}
POD: Final[Shape] = {"metadata": (1, META), "spec": (2, SPEC), "status": (3, STATUS)}
CAUSE: Final[Shape] = {"reason": (1, "text"), "message": (2, "text")}
FAILURE: Final[Shape] = {
    "status": (2, "text"),
    "message": (3, "text"),
    "reason": (4, "text"),
    "details": (5, {"name": (1, "text"), "causes": (4, CAUSE), "retryAfterSeconds": (5, "int")}),
    "code": (6, "int"),
}


def varint(value: int) -> bytes:
    """Encode a number; a negative one as 64 bits."""
    value &= (1 << 64) - 1
    encoded = bytearray()
    while value > 127:
        encoded.append(value & 127 | 128)
        value >>= 7
    return bytes([*encoded, value])


def sized(number: int, content: bytes) -> bytes:
    """Encode a field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def encode(value: Mapping[str, Any], shape: Shape) -> bytes:
    """Encode the JSON of a message."""
    fields = ((*shape[name], content) for name, content in value.items())
    return b"".join(
        _encode_field(number, kind, content)
        for number, kind, content in sorted(fields, key=lambda field: field[0])
    )


def _encode_field(number: int, kind: str | Shape, content: Any) -> bytes:
    items = cast("list[Any]", content) if isinstance(content, list) else [content]
    return b"".join(_encode_value(number, kind, item) for item in items if item is not None)


def _encode_value(number: int, kind: str | Shape, content: Any) -> bytes:
    if not isinstance(kind, str):
        return sized(number, encode(content, kind))
    if kind == "int":
        return varint(number << 3) + varint(int(content))
    if kind == "time":
        seconds = int(datetime.fromisoformat(content).timestamp())
        return sized(number, varint(1 << 3) + varint(seconds) + varint(2 << 3) + varint(0))
    if kind == "map":
        entries = (sized(1, _bytes(key)) + sized(2, _bytes(content[key])) for key in content)
        return b"".join(sized(number, entry) for entry in entries)
    return sized(number, _bytes(content))


def _bytes(content: str | bytes) -> bytes:
    return content if isinstance(content, bytes) else content.encode()


def envelope(kind: str, content: bytes, *, encoding: str = "") -> bytes:
    """Return an object as the body of an answer."""
    type_meta = sized(1, b"v1") + sized(2, kind.encode())
    return (
        b"k8s\0"
        + sized(1, type_meta)
        + sized(2, content)
        + sized(3, encoding.encode())
        + sized(4, b"")
    )


def frame(event_type: str, kind: str, content: bytes) -> bytes:
    """Return an event of a watch."""
    event = sized(1, event_type.encode()) + sized(2, sized(1, envelope(kind, content)))
    return len(event).to_bytes(4) + event


def page(kind: str, items: Sequence[bytes], version: str, go_on: str = "") -> bytes:
    """Return a page of a list."""
    meta = sized(2, version.encode()) + sized(3, go_on.encode())
    content = sized(1, meta) + b"".join(sized(2, item) for item in items)
    return envelope(f"{kind}List", content)


def failure(**status: Any) -> bytes:
    """Return the message of a `Status`."""
    return encode({"status": "Failure", **status}, FAILURE)
