"""The wire form of each message, compared with a golden file, and the messages that a reader
refuses.
"""

import msgspec
import pytest

from common.bus import messages, subjects
from common.bus.messages import (
    Message,
    ObjectState,
    Quarantined,
    Synced,
    Tombstone,
    UndecodableMessage,
)
from common.bus.subjects import TreeKind, TreeLocation
from support.golden import Golden
from support.tables import cases

POD = subjects.build_state_subject(TreeLocation(17, TreeKind.SERVICE), "Pod", "team-a", "demo.head")
STATE = ObjectState(
    kind="Pod",
    namespace="team-a",
    name="demo.head",
    uid="0b7c",
    version="4711",
    form="1-deadbeef",
    body=b'{"metadata":{"name":"demo.head"}}',
)
LARGE = msgspec.structs.replace(STATE, body=b'{"ballast":"' + b"x" * 100_000 + b'"}')
DELETED = Tombstone(kind="Pod", namespace="team-a", name="demo.head", version="4712")
MOVED = Tombstone(
    kind="Pod",
    namespace="team-a",
    name="demo.head",
    version="4712",
    moved_to=TreeLocation(5, TreeKind.CLUSTER),
)
HELD = Quarantined(
    kind="Pod",
    namespace="team-a",
    name="demo.head",
    uid="0b7c",
    version="4711",
    body=b'{"metadata":{"name":"demo.head"}}',
    why="it nests too deep",
)
PLACE = TreeLocation(63, TreeKind.CLUSTER)
MARKER = Synced(epoch="8f1e", version=4713)

CASES = {
    "state": ("state", POD, STATE),
    "state above 64 KiB": ("state-compressed", POD, LARGE),
    "in quarantine": ("quarantined", POD, HELD),
    "tombstone": ("deleted", POD, DELETED),
    "moved to another partition": ("moved", POD, MOVED),
    "the sync marker of the watcher": ("synced", subjects.build_marker_subject(17), MARKER),
}


@cases(("name", "subject", "message"), CASES)
def test_the_wire_form_is_pinned(golden: Golden, name: str, subject: str, message: Message) -> None:
    wire = messages.encode(message)

    payload = (
        wire.payload.decode()
        if len(wire.payload) < 1000 and name != "state-compressed"
        else "(zlib)"
    )
    lines = [
        subject,
        *(f"{header}: {value}" for header, value in wire.headers.items()),
        "",
        payload,
    ]
    golden.check(f"messages/{name}.txt", "\n".join(lines) + "\n")


@cases(("name", "subject", "message"), CASES)
def test_what_is_written_can_be_read(name: str, subject: str, message: Message) -> None:
    wire = messages.encode(message)

    assert (
        messages.decode(subject, wire.headers | {"X-Unknown": "ignored"}, wire.payload) == message
    )


def test_only_large_objects_are_compressed() -> None:
    assert len(messages.encode(LARGE).payload) < 1000
    assert messages.encode(STATE).payload == STATE.body


@cases(
    ("change", "payload", "problem"),
    {
        "no kind": ({messages.KIND: ""}, b"{}", "Raybus-Kind is missing"),
        "no version": ({messages.VERSION: ""}, b"{}", "Raybus-Version is missing"),
        "unknown encoding": ({messages.ENCODING: "lzma"}, b"{}", "'lzma' is unknown"),
        "broken payload": ({messages.ENCODING: "zlib"}, b"not zlib", "does not decompress"),
        "unknown way to be gone": ({messages.GONE: "perhaps"}, b"", "neither"),
        "moved to an unknown kind of tree": ({messages.GONE: "moved 5 pods"}, b"", "neither"),
        "broken marker": ({messages.KIND: "Synced"}, b"{", "does not decode"),
    },
)
def test_what_is_none_of_ours_is_refused(
    change: dict[str, str], payload: bytes, problem: str
) -> None:
    headers = messages.encode(STATE).headers | change

    with pytest.raises(UndecodableMessage, match=problem):
        messages.decode(POD, headers, payload)


def test_a_subject_that_names_no_object_is_refused() -> None:
    with pytest.raises(UndecodableMessage, match="no subject of an object"):
        messages.decode("ray.state.x.pod", messages.encode(STATE).headers, b"{}")


def test_a_trace_belongs_to_one_change() -> None:
    assert messages.derive_trace("u", "1") == messages.derive_trace("u", "1")
    assert messages.derive_trace("u", "1") != messages.derive_trace("u", "2")
    assert len(messages.derive_trace("u", "1")) == len("00-") + 32 + 1 + 16 + len("-01")


@pytest.mark.parametrize("name", ["simple", "with.dots", "a.b.c"])
def test_a_name_survives_its_subject(name: str) -> None:
    where = subjects.parse_state(subjects.build_state_subject(PLACE, "RayCluster", "ns", name))

    assert where == subjects.StateSubject(PLACE, "raycluster", "ns", name)
