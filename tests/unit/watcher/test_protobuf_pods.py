"""A pod in protobuf gives the same message as the same pod in JSON."""

from contextlib import suppress
from random import Random
from typing import Any

import msgspec
import pytest

from common.api.opaque import Body
from common.bus.messages import ObjectState, Quarantined
from common.kube import resources
from common.kube.pod_protobuf import UnreadablePod, read_pod
from common.kube.protobuf import MalformedMessage
from support.builders.protobuf import META, POD, STATUS, encode, sized, varint
from support.tables import cases
from watcher import publish_filter
from watcher.relay import Relay, RelaySource

TEXTS = ("", "a", "Always", "naïve", "🦊\u2028", '"\\\n\0', "é" * 200, "</script>", "\ufeff")
TIMES = ("2026-11-30T00:50:00Z", "1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z", "0001-01-01T00:00:01Z", "9999-12-31T23:59:59Z")  # fmt: skip
NUMBERS = (0, 1, -1, 127, 128, 2**31 - 1, -(2**31), 2**62)
KEEPS_EMPTY = frozenset(
    {"type", "status", "name", "exitCode", "ready", "restartCount", "state", "lastState"}
)
"""Fields that the API server writes even when they are empty."""
POINTERS = frozenset({"controller", "blockOwnerDeletion", "terminationGracePeriodSeconds"})


def draw(random: Random, name: str, kind: Any) -> Any:
    """Return a random value of a field as the API server writes it as JSON."""
    match kind:
        case "text":
            return random.choice(TEXTS)
        case "int" if name in {"controller", "blockOwnerDeletion", "ready", "started"}:
            return random.random() < 0.5
        case "int":
            return random.choice(NUMBERS)
        case "time":
            return random.choice((None, *TIMES))
        case "map":
            keys = sorted({f"{random.choice(TEXTS)}{random.randrange(9)}" for _ in range(4)})
            return {key: random.choice(TEXTS) for key in keys}
        case _:
            return draw_message(random, kind)


def draw_message(random: Random, shape: Any) -> Body:
    value: Body = {}
    for name, (_, kind) in shape.items():
        content = draw(random, name, kind)
        if name in {"ownerReferences", "finalizers", "managedFields", "containers", "ports", "env", "conditions", "containerStatuses", "initContainerStatuses", "initContainers", "command"}:  # fmt: skip
            content = [draw(random, name, kind) for _ in range(random.randrange(3))]
        if name in {"waiting", "running", "terminated"}:
            content = random.choice((None, content))
        if content or name in KEEPS_EMPTY or (name in POINTERS and random.random() < 0.5):
            value[name] = content
    return value


def as_json(pod: Body) -> bytes:
    return publish_filter.trim(resources.POD, msgspec.json.encode(pod))


def as_protobuf(pod: Body) -> bytes:
    return publish_filter.trim(resources.POD, read_pod(encode(pod, POD)))


@pytest.mark.parametrize("seed", range(20))
def test_both_encodings_give_the_same_body(seed: int) -> None:
    random = Random(seed)
    for _ in range(20):
        pod = draw_message(random, POD)
        assert as_protobuf(pod) == as_json(pod)


def test_kubectls_annotation_is_left_out() -> None:
    annotations = {publish_filter.LAST_APPLIED: "{}"}
    pod = {"metadata": {"name": "x", "annotations": annotations}, "spec": {}, "status": {}}
    assert as_protobuf(pod) == as_json(pod)


def test_an_empty_message_is_an_empty_pod() -> None:
    assert read_pod(b"") == read_pod(encode({"metadata": {}, "spec": {}, "status": {}}, POD))
    condition = publish_filter.trim(resources.POD, read_pod(sized(3, sized(2, b""))))
    assert msgspec.json.decode(condition)["status"] == {"conditions": [{"type": "", "status": ""}]}


def test_a_megabyte_of_annotations_is_read() -> None:
    annotations = {f"key-{number:06}": "x" * 10 for number in range(40_000)}
    pod = {"metadata": {"name": "x", "annotations": annotations}, "spec": {}, "status": {}}
    assert as_protobuf(pod) == as_json(pod)


def test_no_damaged_pod_raises_another_error() -> None:
    random = Random(5)
    data = encode(draw_message(random, POD), POD)
    for end in range(0, len(data), 7):
        _read(data[:end])
    for _ in range(3000):
        damaged = bytearray(data)
        for _ in range(random.randrange(1, 4)):
            damaged[random.randrange(len(data))] = random.randrange(256)
        _read(bytes(damaged))
    with pytest.raises(MalformedMessage):
        read_pod(data[:-1])


def _read(data: bytes) -> None:
    with suppress(MalformedMessage, UnreadablePod):
        read_pod(data)


class Outbox:
    """Keeps what the relay publishes; implements what it needs of an outbox."""

    def __init__(self) -> None:
        self.puts: list[tuple[Any, float]] = []

    def put(self, _subject: str, message: Any, *, received: int = 0, wait: float = 0.0) -> None:
        self.puts.append((message, wait))

    def list_stored(self) -> dict[str, str]:
        return {}


def _published(pod: Body | bytes) -> list[tuple[Any, float]]:
    """Return what a relay publishes for a pod in JSON or in protobuf, and then for its deletion."""
    outbox = Outbox()
    relay = Relay(outbox, pytest.fail)  # pyright: ignore[reportArgumentType]
    source = RelaySource(relay, 0, resources.POD)
    relay.everything_is_listed()
    if isinstance(pod, bytes):
        assert source.protobuf is not None
        source.protobuf.present(pod)
        source.protobuf.gone(pod)
    else:
        source.present(msgspec.json.encode(pod))
        source.gone(msgspec.json.encode(pod))
    return outbox.puts


@cases("phase", {"pending": "Pending", "running": "Running"})
def test_the_relay_publishes_the_same_messages(phase: str) -> None:
    metadata = {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    owner = {"kind": "RayCluster", "name": "demo", "uid": "o", "controller": True}
    pod = {
        "metadata": {**metadata, "ownerReferences": [owner]},
        "spec": {"nodeName": "n"},
        "status": {"phase": phase},
    }
    published = _published(pod)
    assert published == _published(encode(pod, POD))
    (state, wait), _ = published
    assert isinstance(state, ObjectState)
    assert wait == (publish_filter.PENDING_SECONDS if phase == "Pending" else 0.0)


def test_a_time_that_python_cannot_hold_puts_the_pod_into_quarantine() -> None:
    metadata = {"name": "x", "namespace": "ns", "uid": "u", "resourceVersion": "7"}
    year_10000 = sized(7, varint(1 << 3) + varint(253402300800))
    content = sized(1, encode(metadata, META)) + sized(3, encode({}, STATUS) + year_10000)
    (message, _), _ = _published(content)
    assert isinstance(message, Quarantined)
    assert (message.name, message.version) == ("x", "7")
    assert "cannot be read" in message.why


def test_only_pods_are_read_as_protobuf() -> None:
    relay = Relay(Outbox(), pytest.fail)  # pyright: ignore[reportArgumentType]
    assert RelaySource(relay, 0, resources.SERVICE).protobuf is None
