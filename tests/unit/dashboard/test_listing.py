"""The list: each version of a RayService is computed once, and none of them hides another."""

from typing import Any

import msgspec
import pytest

from common.api.opaque import Body
from raybus_dashboard import model
from raybus_dashboard.listing import ListEntry, SharedListing
from support.builders.snapshots import READY, a_condition, a_service


def _service(name: str, version: str = "1", **metadata: Any) -> Body:
    body: Body = a_service(READY)
    body["metadata"] |= {"name": name, "namespace": "a", "uid": f"uid-{name}"}
    body["metadata"] |= {"resourceVersion": version, **metadata}
    return body


async def _entries(listing: SharedListing, *services: Body) -> dict[str, ListEntry]:
    versions = await listing.split("a", msgspec.json.encode({"items": services}))
    return await listing.update_entries(versions, {})


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []
    row = model.build_row

    def counted(service: Any, *arguments: Any, **more: Any) -> model.ListedService:
        names.append(service.metadata.name)
        return row(service, *arguments, **more)

    monkeypatch.setattr(model, "build_row", counted)
    return names


async def test_a_version_is_computed_once(computed: list[str]) -> None:
    listing = SharedListing()
    first = await _entries(listing, _service("x"), _service("y"))
    again = await _entries(listing, _service("x"), _service("y", version="2"))
    assert computed == ["x", "y", "y"]
    assert again["a/x"] is first["a/x"]
    await _entries(listing, _service("x", uid="another"))
    assert computed == ["x", "y", "y", "x"]
    listing.close()


async def test_a_version_without_a_number_is_not_kept(computed: list[str]) -> None:
    listing = SharedListing()
    for _ in range(2):
        await _entries(listing, _service("x", version=""))
    assert computed == ["x", "x"]
    listing.close()


async def test_an_object_that_cannot_be_read_does_not_hide_another() -> None:
    listing = SharedListing()
    wrong = {**_service("wrong"), "status": {"numServeEndpoints": "many"}}
    entries = await _entries(listing, wrong, _service("x"))
    assert entries["a/x"].row.phase == "Ready"
    row = entries["a/wrong"].row
    assert (row.tone, row.message[:21]) == ("bad", "it cannot be shown: E")
    listing.close()


async def test_a_message_of_the_list_is_short() -> None:
    listing = SharedListing()
    service = _service("x")
    service["status"]["conditions"] = [a_condition("Ready", "False", message="m" * 30_000)]
    entries = await _entries(listing, service)
    assert len(entries["a/x"].row.message) == model.MAX_ROW_MESSAGE
    listing.close()
