"""docs/kuberay-map.md lists the differences that `make parity` accepts; `make golden` rewrites the table."""

import re

import pytest

from generators.docs import kuberay_map
from parity import declared
from support.golden import Golden
from support.manifests import ROOT


def test_the_page_lists_every_declared_difference(request: pytest.FixtureRequest) -> None:
    pages = Golden(root=ROOT / "docs", update=bool(request.config.getoption("--update-golden")))
    pages.check("kuberay-map.md", kuberay_map.page())


def test_each_difference_has_a_topic_of_its_own_and_a_reason() -> None:
    entries = declared.entries()
    assert len({each.topic for each in entries}) == len(entries)
    assert [
        each.topic for each in entries if not (each.kuberay and each.raybus and each.reason)
    ] == []


def test_rules_are_about_a_place() -> None:
    for each in declared.entries():
        for rule in each.rules:
            assert re.search(r"[a-zA-Z]{4}", rule.place), each.topic
            assert rule.theirs or rule.ours or rule.rewrite or rule.beside or rule.cause, each.topic
