"""What somebody sees of a whole upgrade in a real browser, and of what goes wrong meanwhile.

`--update-pictures` writes the pictures of docs/images; without it they go with the test.
"""

import os
import re

import pytest

from integration.dashboard.seen import Told
from integration.story import heard
from support.manifests import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.story]

IMAGES = ROOT / "docs" / "images"
LIMIT_SECONDS = 1200


@pytest.fixture(scope="module")
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Run the story once, in a network of its own."""
    if os.geteuid() != 0:
        pytest.skip("the network of our own needs root")
    logs = tmp_path_factory.mktemp("logs")
    pictures = IMAGES if request.config.getoption("--update-pictures") else tmp_path_factory.mktemp("pictures")
    options = ("--pictures", str(pictures), "--logs", str(logs))
    return heard("integration.dashboard.seen", *options, kind=Told, within=LIMIT_SECONDS)


def test_the_list_begins_with_what_needs_attention(told: Told) -> None:
    words = told.list_before
    assert "3 RayServices" in words
    assert words.index("search") < words.index("chat") < words.index("embedder")


def test_before_the_upgrade(told: Told) -> None:
    for each in (
        "Ready",
        "NewClusterWithIncrementalUpgrade",
        "application app: RUNNING",
        "100 %",
        "No upgrade of this",
    ):
        assert each in told.before


def test_in_the_middle_both_clusters_have_their_share(told: Told) -> None:
    seen = told.middle
    assert "Paused" in seen.head
    assert re.search(r"Upgrade: step [456] of 12", seen.head)
    for each in ("active", "pending", "Traffic", "Capacity", "% ready of", "% wanted"):
        assert each in seen.clusters
    assert seen.curves >= 4, "two clusters in two panels"
    assert any(each.startswith("paused (") for each in seen.lines[:2]), "a step that was on its way may be told later"
    assert seen.lines[-1].startswith("upgrade started: ")
    assert sum(each.startswith("traffic: ") for each in seen.lines) >= 4


def test_afterwards_there_is_a_receipt(told: Told) -> None:
    for each in ("Outcome", "Promoted", "Peak surge", "Lowest capacity", "Requests cut", "shifting the traffic"):
        assert each in told.receipt
    assert "pending" not in told.after.clusters
    assert told.after.lines[0].startswith("completed: ")
    assert any(each.startswith("resumed: ") for each in told.after.lines)
    assert "100 % of the traffic" in told.after.chart


def test_a_reload_keeps_the_history(told: Told) -> None:
    assert told.reloaded.lines == told.after.lines


def test_a_dashboard_that_comes_later_knows_the_history(told: Told) -> None:
    assert told.elsewhere.lines == told.after.lines
    assert told.elsewhere.chart == told.after.chart


def test_a_bus_that_is_away_is_said(told: Told) -> None:
    assert "every few seconds" in told.without_bus


def test_an_api_server_that_is_away_is_said_with_what_is_still_shown(told: Told) -> None:
    assert "does not answer" in told.without_api_server
    assert "What you see is from" in told.without_api_server


def test_the_end_of_the_dashboard_is_said(told: Told) -> None:
    assert told.code == 0
    assert "start it again with: raybus dashboard" in told.when_ended


def test_nothing_needs_more_room_than_the_window_has(told: Told) -> None:
    assert {name for name, fits in told.is_wide_enough.items() if not fits} == set()


def test_the_page_asks_nobody_else_and_the_browser_has_no_complaint(told: Told) -> None:
    assert {each for each in told.asked if not each.startswith(told.address)} == set()
    assert told.complaints == []
