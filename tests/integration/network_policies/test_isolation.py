"""NetworkPolicies that isolate: connections between pods, with the policies of raybus in force (spec raycluster §21)."""

import os
import shutil
from collections.abc import Iterable

import pytest

from integration.isolated import result_of
from integration.network_policies.isolating import Attempt, Report

pytestmark = [pytest.mark.integration]

OWN = frozenset({"head", "worker", "other-group"})
"""The pods of the cluster that has policies."""
LIMIT_SECONDS = 300


@pytest.fixture(scope="module")
def report() -> Report:
    """Try all connections once."""
    if os.geteuid() != 0:
        pytest.skip("the network of our own needs root")
    assert shutil.which("nft"), "nft is not installed: run `make prepare`"
    return result_of("integration.network_policies.isolating", kind=Report, within=LIMIT_SECONDS)


def pairs(found: Iterable[Attempt], *, into: bool, out: bool) -> set[tuple[str, str, int]]:
    """Return connections from outside into the cluster, or out of it."""
    return {
        (each.source, each.target, each.port)
        for each in found
        if (into and each.source not in OWN and each.target in OWN)
        or (out and each.source in OWN and each.target not in OWN)
    }


def among(found: Iterable[Attempt]) -> list[Attempt]:
    """Return connections among the pods of the cluster."""
    return [each for each in found if {each.source, each.target} <= OWN]


def test_without_policies_every_connection_passes(report: Report) -> None:
    assert len(report.passed["None"]) == report.tried
    assert report.tried == 8 * 7 * 4


@pytest.mark.parametrize("mode", ["DenyAll", "DenyAllIngress", "DenyAllEgress"])
def test_the_pods_of_a_cluster_reach_one_another(report: Report, mode: str) -> None:
    assert among(report.passed[mode]) == among(report.passed["None"])


@pytest.mark.parametrize("mode", ["DenyAll", "DenyAllIngress"])
def test_from_outside_only_what_a_rule_of_the_user_admits_gets_in(
    report: Report, mode: str
) -> None:
    assert pairs(report.passed[mode], into=True, out=False) == {("raybus", "head", 8265)}


@pytest.mark.parametrize("mode", ["DenyAll", "DenyAllEgress"])
def test_to_the_outside_only_what_a_rule_of_the_user_admits_gets_out(
    report: Report, mode: str
) -> None:
    assert pairs(report.passed[mode], into=False, out=True) == {
        ("worker", "dns", 53),
        ("other-group", "dns", 53),
    }


def test_a_direction_that_the_mode_does_not_deny_is_open(report: Report) -> None:
    free = report.passed["None"]
    assert pairs(report.passed["DenyAllIngress"], into=False, out=True) == pairs(
        free, into=False, out=True
    )
    assert pairs(report.passed["DenyAllEgress"], into=True, out=False) == pairs(
        free, into=True, out=False
    )


@pytest.mark.parametrize("mode", ["DenyAll", "DenyAllIngress", "DenyAllEgress"])
def test_pods_of_others_are_not_touched(report: Report, mode: str) -> None:
    def outside(found: Iterable[Attempt]) -> list[Attempt]:
        return [each for each in found if OWN.isdisjoint({each.source, each.target})]

    assert outside(report.passed[mode]) == outside(report.passed["None"])
