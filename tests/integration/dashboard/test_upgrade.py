"""What somebody sees of a whole upgrade in a real browser, and of what goes wrong meanwhile.

`--update-pictures` writes the pictures of docs/images; without it they go with the test.
"""

import os
import re

import pytest

from integration.dashboard.seen import Report
from integration.isolated import result_of
from support.manifests import ROOT

pytestmark = [pytest.mark.integration, pytest.mark.long_running]

IMAGES = ROOT / "docs" / "images"
LIMIT_SECONDS = 1200


@pytest.fixture(scope="module")
def reported(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Report:
    """Run the upgrade once, in a network of its own."""
    if os.geteuid() != 0:
        pytest.skip("the network of our own needs root")
    logs = tmp_path_factory.mktemp("logs")
    pictures = (
        IMAGES
        if request.config.getoption("--update-pictures")
        else tmp_path_factory.mktemp("pictures")
    )
    options = ("--pictures", str(pictures), "--logs", str(logs))
    return result_of("integration.dashboard.seen", *options, kind=Report, within=LIMIT_SECONDS)


def test_the_list_begins_with_what_needs_attention(reported: Report) -> None:
    text = reported.list_before
    assert "3 RayServices" in text
    assert text.index("search") < text.index("chat") < text.index("embedder")


def test_before_the_upgrade(reported: Report) -> None:
    for each in (
        "Ready",
        "NewClusterWithIncrementalUpgrade",
        "application app: RUNNING",
        "100 %",
        "No upgrade of this",
    ):
        assert each in reported.before


def test_in_the_middle_both_clusters_have_their_share(reported: Report) -> None:
    seen = reported.middle
    assert "Paused" in seen.head
    assert re.search(r"Upgrade: step [456] of 12", seen.head)
    for each in ("active", "pending", "Traffic", "Capacity", "% ready of", "% target"):
        assert each in seen.clusters
    assert seen.curves >= 4, "two clusters in two panels"
    assert any(each.startswith("paused (") for each in seen.lines[:2]), (
        "a step that was on its way may be shown later"
    )
    assert seen.lines[-1].startswith("upgrade started: ")
    assert sum(each.startswith("traffic: ") for each in seen.lines) >= 4


def test_afterwards_there_is_a_receipt(reported: Report) -> None:
    for each in (
        *("Outcome", "Promoted", "Peak surge", "Lowest capacity", "Requests cut"),
        "shifting the traffic",
    ):
        assert each in reported.receipt
    assert "pending" not in reported.after.clusters
    assert reported.after.lines[0].startswith("completed: ")
    assert any(each.startswith("resumed: ") for each in reported.after.lines)
    assert "100 % of the traffic" in reported.after.chart


def test_a_reload_keeps_the_history(reported: Report) -> None:
    assert reported.reloaded.lines == reported.after.lines


def test_a_dashboard_that_comes_later_knows_the_history(reported: Report) -> None:
    assert reported.elsewhere.lines == reported.after.lines
    assert reported.elsewhere.chart == reported.after.chart


def test_an_unreachable_bus_is_shown(reported: Report) -> None:
    assert "every few seconds" in reported.without_bus


def test_an_unreachable_api_server_is_reported_with_what_is_still_shown(reported: Report) -> None:
    assert "does not answer" in reported.without_api_server
    assert "Last update:" in reported.without_api_server


def test_the_end_of_the_dashboard_is_shown(reported: Report) -> None:
    assert reported.code == 0
    assert "restart it with: raybus dashboard" in reported.when_ended


def test_nothing_needs_more_room_than_the_window_has(reported: Report) -> None:
    assert {name for name, fits in reported.is_wide_enough.items() if not fits} == set()


def test_the_page_asks_nobody_else_and_the_browser_has_no_complaint(reported: Report) -> None:
    assert {each for each in reported.asked if not each.startswith(reported.address)} == set()
    assert reported.complaints == []
