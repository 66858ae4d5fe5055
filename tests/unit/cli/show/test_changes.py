"""The changes that a watch reports: each change once, a deletion, and nothing that a repeated list
only repeats.
"""

import asyncio
from typing import Any

import msgspec
import pytest

from common.kube.watch import WatchSink
from raybus_cli.show.changes import EventSignal, ObjectStore, Signal


class _Named(msgspec.Struct, frozen=True):
    metadata: dict[str, str]


def _an_object(name: str = "demo", version: str = "1", **more: Any) -> bytes:
    return msgspec.json.encode(
        {"metadata": {"namespace": "n", "name": name, "resourceVersion": version}, **more}
    )


def _changes(changed: asyncio.Event) -> bool:
    is_set = changed.is_set()
    changed.clear()
    return is_set


def _list_again(sink: WatchSink, *keys: tuple[str, str]) -> None:
    sink.listed(set(keys), "9")


def test_a_signal_notes_each_version_once() -> None:
    changed = asyncio.Event()
    signal = Signal(changed)
    signal.present(_an_object())
    assert _changes(changed)
    signal.present(_an_object())
    _list_again(signal, ("n", "demo"))
    assert not _changes(changed)
    signal.present(_an_object(version="2"))
    assert _changes(changed)


def test_a_signal_notes_a_deletion_that_only_a_list_shows() -> None:
    changed = asyncio.Event()
    signal = Signal(changed)
    signal.present(_an_object())
    _changes(changed)
    _list_again(signal)
    assert _changes(changed)
    signal.present(_an_object())
    assert _changes(changed), "it is there again, in the version that was known"
    signal.gone(_an_object())
    assert _changes(changed)
    signal.present(_an_object())
    assert _changes(changed)


def test_a_store_keeps_what_there_is() -> None:
    changed = asyncio.Event()
    store = ObjectStore(_Named, changed)
    for name in ("a", "b", "c"):
        store.present(_an_object(name))
    assert not store.is_listed
    _list_again(store, ("n", "a"), ("n", "b"))
    assert store.is_listed
    assert [each.metadata["name"] for each in store.objects] == ["a", "b"]
    store.gone(_an_object("a"))
    store.present(_an_object("d"), "it nests too deep")
    assert [each.metadata["name"] for each in store.objects] == ["b", "d"]
    assert _changes(changed)


@pytest.mark.parametrize(
    ("kind", "name", "is_noted"), [("Pod", "a", True), ("Pod", "b", False), ("Node", "a", False)]
)
def test_an_event_is_noted_if_its_object_is_shown(kind: str, name: str, is_noted: bool) -> None:
    changed = asyncio.Event()
    signal = EventSignal(changed)
    signal.objects = frozenset({("Pod", "a")})
    signal.present(_an_object(regarding={"kind": kind, "name": name}))
    assert _changes(changed) is is_noted
