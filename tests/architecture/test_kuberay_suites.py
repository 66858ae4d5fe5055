"""docs/kuberay-suites.md lists the patches of KubeRay's suites; `make golden` rewrites the list."""

import pytest

from kuberay_e2e import declarations, page
from support.golden import Golden
from support.manifests import ROOT


def test_the_page_lists_every_patch_and_variable(request: pytest.FixtureRequest) -> None:
    pages = Golden(root=ROOT / "docs", update=bool(request.config.getoption("--update-golden")))
    text = (ROOT / "docs" / "kuberay-suites.md").read_text()
    pages.check("kuberay-suites.md", page.describe(text, declarations.load()))
