"""docs/metrics.md lists every metric that the code declares; `make golden` rewrites it."""

import pytest

from generators.monitoring import catalogue
from support.golden import Golden
from support.manifests import ROOT


def test_the_page_lists_every_metric(request: pytest.FixtureRequest) -> None:
    pages = Golden(root=ROOT / "docs", update=bool(request.config.getoption("--update-golden")))
    pages.check("metrics.md", catalogue.page())


def test_every_metric_has_one_home_and_a_meaning() -> None:
    held = [each for part in catalogue.metrics().values() for each in part]
    assert sorted({each.name for each in held}) == sorted(each.name for each in held)
    assert [each.name for each in held if not each.text] == []
