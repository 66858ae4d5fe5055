"""The version that raybus reports of itself is that of its packages."""

from importlib import metadata

import pytest

from common.version import OPERATOR_VERSION, VERSION

PACKAGES = [
    "raybus",
    "raybus-common",
    "raybus-crd-generator",
    "raybus-nats-admin",
    "raybus-localcluster",
    "raybus-watcher",
    "raybus-cluster-reconciler",
    "raybus-service-reconciler",
    "raybus-traffic-manager",
]


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_has_the_version(package: str) -> None:
    assert metadata.version(package) == VERSION


def test_the_operators_version_names_the_project() -> None:
    assert OPERATOR_VERSION == "raybus-v0.1.0"
