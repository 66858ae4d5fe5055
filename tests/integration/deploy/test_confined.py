"""raybus with the rights of the overlay `namespaced`: enough to work in its namespace, none outside, and nothing left afterwards."""

from pathlib import Path

import pytest

from integration.deploy.confined import Told
from integration.story import heard
from support.manifests import SERVICES

pytestmark = [pytest.mark.integration, pytest.mark.story]

LIMIT_SECONDS = 600
IDENTITY = "get /api/v1/namespaces/kube-system"
"""What every service tries once, to tell clusters apart; where it may not, it asks for its own namespace."""


@pytest.fixture(scope="module")
def told(kubectl_binary: Path) -> Told:
    """Run the story once, in a network of its own."""
    return heard("integration.deploy.confined", str(kubectl_binary), kind=Told, within=LIMIT_SECONDS)


def test_its_rights_are_enough_for_a_cluster_and_for_an_upgrade_in_steps(told: Told) -> None:
    assert told.upgraded
    assert (told.watched, told.accounts) == ("default", sorted(SERVICES))


def test_it_asks_for_nothing_outside_and_is_refused_nothing_inside(told: Told) -> None:
    once = sorted(f"{service}: {IDENTITY}" for service in SERVICES)
    assert told.refused == once
    assert [each for each in told.outside if each not in once] == [
        f"cluster-reconciler: {verb}" for verb in ("get /apis",)
    ]
    assert told.strangers == []


def test_taking_it_away_takes_nothing_of_the_users(told: Told) -> None:
    assert told.lost == []


def test_it_leaves_nothing_behind(told: Told) -> None:
    assert told.left == []


def test_no_finalizer_of_ours_holds_what_users_delete_afterwards(told: Told) -> None:
    assert told.held == []
