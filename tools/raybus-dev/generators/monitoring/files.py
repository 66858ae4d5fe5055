"""The files of deploy/monitoring.

The alerts and the scrape configuration are written by hand; the other files are generated.
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
    """Read the groups of alerts from `RULES`."""
    return yaml.safe_load(RULES.read_text())["groups"]


def alerts() -> list[Json]:
    """Return the alerts of all groups."""
    return [rule for group in groups() for rule in group["rules"]]


def prometheus_rule() -> str:
    """Return the text of a PrometheusRule with all alerts."""
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
