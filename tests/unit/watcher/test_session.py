"""Which history the versions of a session are of."""

import pytest

from common.bus.feed import Synced
from watcher.session import history_of


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
