"""Which history the versions of a session are of, and which of its lists come first."""

import asyncio
from contextlib import suppress

import pytest

from common.bus.feed import Synced
from common.kube.watch import Watch
from watcher import published, session
from watcher.session import history_of, run_in_turn


@pytest.mark.parametrize(
    ("before", "version", "expected"),
    [
        pytest.param(None, 100, "", id="an empty stream"),
        pytest.param(Synced(epoch="old", version=90), 100, "", id="versions went on"),
        pytest.param(Synced(epoch="old", version=100), 100, "", id="nothing happened"),
        pytest.param(Synced(epoch="old", version=101), 100, "new", id="versions began again at a lower one"),
        pytest.param(Synced(epoch="old", version=90, history="h"), 100, "h", id="versions went on after a restore"),
        pytest.param(Synced(epoch="old", version=101, history="h"), 100, "new", id="a second restore"),
    ],
)
def test_a_history_ends_when_versions_begin_again_below(before: Synced | None, version: int, expected: str) -> None:
    assert history_of(before, version, "new") == expected


class FakeWatch(Watch):
    """A collection that is listed some time after it is asked for; None: never."""

    def __init__(self, seconds: float | None) -> None:
        self.known = asyncio.Event()
        self.asked_at: float | None = None
        self._seconds = seconds

    async def run(self) -> None:
        self.asked_at = asyncio.get_running_loop().time()
        if self._seconds is not None:
            await asyncio.sleep(self._seconds)
            self.known.set()
        await asyncio.Event().wait()


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("seconds", "begins"),
    [
        pytest.param((1.0, 2.0), 2.0, id="once both are listed"),
        pytest.param((1.0, None), session.FIRST_SECONDS, id="a list that fails delays the others for a while only"),
    ],
)
async def test_what_users_create_is_listed_before_all_else(seconds: tuple[float | None, ...], begins: float) -> None:
    first, other = [FakeWatch(each) for each in seconds], FakeWatch(1.0)
    began = asyncio.get_running_loop().time()
    with suppress(TimeoutError):
        async with asyncio.timeout(10), asyncio.TaskGroup() as group:
            for each in (*first, other):
                group.create_task(run_in_turn(each, first))
    assert [each.asked_at for each in first] == [began, began]
    assert other.asked_at == began + begins


def test_the_first_lists_are_of_kinds_that_are_followed() -> None:
    assert not session.FIRST - {kind for kind, _ in published.REQUIRED}
