"""The files of deploy/monitoring.

Some are written by hand, and the others are generated from them.
"""

from pathlib import Path
from typing import Any, Final

import yaml

from support.manifests import DEPLOY

MONITORING: Final = DEPLOY / "monitoring"
RULES: Final = MONITORING / "rules.yaml"
SCRAPE: Final = MONITORING / "scrape.yaml"
_HEAD: Final = "# Made from ../rules.yaml by `make golden`, for the Prometheus operator.\n"

Json = dict[str, Any]


def groups() -> list[Json]:
    """Read the alert groups."""
    return yaml.safe_load(RULES.read_text())["groups"]


def alerts() -> list[Json]:
    """Read all alerts."""
    return [rule for group in groups() for rule in group["rules"]]


def prometheus_rule() -> str:
    """Return the alerts as a PrometheusRule."""
    body = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "raybus", "labels": {"app.kubernetes.io/part-of": "raybus"}},
        "spec": {"groups": groups()},
    }
    return _HEAD + yaml.safe_dump(body, sort_keys=False, width=200)


def written(folder: Path) -> dict[str, str]:
    """Return the text of each file in a folder, by name."""
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.is_file()}
