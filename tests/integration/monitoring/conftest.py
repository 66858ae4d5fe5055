"""Prometheus' programs, fetched once for a run."""

from pathlib import Path

import pytest

from support.servers import prometheus


@pytest.fixture(scope="session")
def promtool() -> Path:
    """Return Prometheus' tool for rules."""
    return prometheus.program("promtool")
