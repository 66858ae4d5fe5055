"""What `kubectl get rayservice` shows; spec rayservice §2.3, acceptance 91."""

from pathlib import Path
from typing import Any

import pytest

from support.manifests import parse

CRD = next((Path(__file__).parents[3] / "deploy" / "crds").glob("*rayservices*.yaml"))


@pytest.mark.acceptance("rayservice", 91)
def test_91_the_first_columns_are_kuberays() -> None:
    crd: dict[str, Any] = parse(CRD.read_text())[0]
    version = next(each for each in crd["spec"]["versions"] if each["name"] == "v1")
    shown = [(each["name"], each["jsonPath"]) for each in version["additionalPrinterColumns"]]
    assert shown[:2] == [
        ("service status", ".status.serviceStatus"),
        ("num serve endpoints", ".status.numServeEndpoints"),
    ]
