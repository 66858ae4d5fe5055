"""The files of the Helm chart that need no Helm: its CRDs, its description and its page."""

import pytest

from support.manifests import DEPLOY, ROOT

CHART = DEPLOY / "helm" / "raybus"
CRDS = {path.name: path for path in (DEPLOY / "crds").glob("*_*.yaml")}


def test_the_chart_has_every_crd() -> None:
    assert {path.name for path in (CHART / "crds").iterdir()} == CRDS.keys()


@pytest.mark.parametrize("name", CRDS)
def test_a_crd_of_the_chart_is_the_file_of_the_repository(name: str) -> None:
    """A regular file with the path of a CRD as its text is no CRD: Helm refuses the chart."""
    assert (CHART / "crds" / name).resolve() == CRDS[name].resolve()


def test_the_licence_of_the_wheel_is_that_of_the_repository() -> None:
    assert (DEPLOY / "wheel" / "LICENSE").resolve() == (ROOT / "LICENSE").resolve()
