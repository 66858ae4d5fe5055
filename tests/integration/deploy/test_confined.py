"""raybus with the rights of the overlay `namespaced`.

They suffice to work in its namespace, permit nothing outside, and nothing is left afterwards.
"""

from pathlib import Path

import pytest

from integration.deploy.confined import Report
from integration.isolated import result_of
from support.manifests import SERVICES

pytestmark = [pytest.mark.integration, pytest.mark.long_running]

LIMIT_SECONDS = 600
IDENTITY = "get /api/v1/namespaces/kube-system"
"""Request by which every service first tries to identify the cluster.

Without the right to it, a service reads its own namespace."""


@pytest.fixture(scope="module")
def reported(kubectl_binary: Path) -> Report:
    """Carry out the run once, in its own network."""
    return result_of(
        "integration.deploy.confined", str(kubectl_binary), kind=Report, within=LIMIT_SECONDS
    )


def test_its_rights_are_enough_for_a_cluster_and_for_an_upgrade_in_steps(reported: Report) -> None:
    assert reported.upgraded
    assert (reported.watched, reported.accounts) == ("default", sorted(SERVICES))


def test_it_asks_for_nothing_outside_and_is_refused_nothing_inside(reported: Report) -> None:
    once = sorted(f"{service}: {IDENTITY}" for service in SERVICES)
    assert reported.refused == once
    assert [each for each in reported.outside if each not in once] == [
        f"cluster-reconciler: {verb}" for verb in ("get /apis",)
    ]
    assert reported.strangers == []


def test_taking_it_away_takes_nothing_of_the_users(reported: Report) -> None:
    assert reported.lost == []


def test_it_leaves_nothing_behind(reported: Report) -> None:
    assert reported.left == []


def test_no_finalizer_of_ours_holds_what_users_delete_afterwards(reported: Report) -> None:
    assert reported.held == []
