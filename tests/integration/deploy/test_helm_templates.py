"""The templates of the Helm chart are generated from the overlays; `--update-golden` writes them.

test_helm.py renders them, which needs Helm.
"""

from collections.abc import Callable

import pytest

from generators.helm import chart
from support import manifests
from support.golden import Golden
from support.manifests import DEPLOY, Document

pytestmark = [pytest.mark.integration]

TEMPLATES = DEPLOY / "helm" / "raybus" / "templates"


def test_the_templates_are_made_from_the_overlays(
    overlays: Callable[[str], list[Document]], request: pytest.FixtureRequest
) -> None:
    golden = Golden(root=TEMPLATES, update=bool(request.config.getoption("--update-golden")))
    extras = {
        ".Values.watchNamespace": manifests.parse(
            (DEPLOY / "overlays/namespaced/own_namespace.yaml").read_text()
        ),
        ".Values.kuberayNamespace": manifests.parse(
            (DEPLOY / "components/beside-kuberay/lease.yaml").read_text()
        ),
        'include "raybus.gate" (list . "RayClusterMTLS")': manifests.parse(
            (DEPLOY / "rights/mtls/cluster_reconciler.yaml").read_text()
        ),
    }
    made = chart.templates(overlays("overlays/production"), extras)
    for name, text in made.items():
        golden.check(name, text)
    by_hand = {"crds.yaml", "monitoring.yaml"}
    assert {path.name for path in golden.root.glob("*.yaml")} == made.keys() | by_hand
