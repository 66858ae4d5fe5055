"""The same upgrades through each Gateway controller: no request fails, and weights are followed.

`make e2e-gateways` prints a table of all results. With `--update-golden` the statuses that the
controllers wrote become the fixtures of tests/contract/common/api.
"""

import os
import sys
from collections.abc import Generator
from typing import Final

import msgspec
import pytest

from integration.gateways.report import Report, format_table
from integration.isolated import result_of
from support.gateways import catalogue
from support.gateways.program import GatewayProgram
from support.manifests import ROOT

BUILD: Final = ROOT / "build" / "gateways"
STATUSES: Final = ROOT / "tests" / "golden" / "gateways"
SECONDS: Final = 900.0
PHASES: Final = ("in steps", "rollback at 50 %", "preview and mirror", "blue/green")
TOLERANCE: Final = 15.0
"""Percentage points by which a share of some hundred requests may differ from its weight."""


@pytest.fixture(scope="module", params=catalogue.selected(os.environ), ids=lambda each: each.name)
def program(request: pytest.FixtureRequest) -> GatewayProgram:
    """One controller after the other."""
    return request.param


@pytest.fixture(scope="module")
def report(program: GatewayProgram, request: pytest.FixtureRequest) -> Report:
    """Run everything with one controller."""
    logs = BUILD / program.name
    logs.mkdir(parents=True, exist_ok=True)
    for log in logs.glob("*.log"):
        log.unlink()
    options = ("--gateway", program.name, "--logs", str(logs))
    report = result_of("integration.gateways.run", *options, kind=Report, within=SECONDS)
    (BUILD / f"{program.name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    if request.config.getoption("--update-golden"):
        STATUSES.mkdir(parents=True, exist_ok=True)
        written = msgspec.json.format(msgspec.json.encode(report.statuses), indent=1)
        (STATUSES / f"{program.name}.json").write_bytes(written + b"\n")
    return report


@pytest.fixture(scope="module", autouse=True)
def table() -> Generator[None]:
    """Print the table of the newest results of all controllers."""
    yield
    paths = [BUILD / f"{name}.json" for name in catalogue.GATEWAYS]
    reports = [
        msgspec.json.decode(path.read_bytes(), type=Report) for path in paths if path.exists()
    ]
    text = format_table(reports) if reports else ""
    (BUILD / "table.md").write_text(text)
    sys.stdout.write(f"\n{text}")


@pytest.mark.parametrize("name", PHASES)
def test_no_request_fails(report: Report, name: str) -> None:
    (phase,) = (phase for phase in report.phases if phase.name == name)
    assert phase.errors == []
    assert phase.failed == 0
    assert phase.requests > 300


def test_the_shares_of_the_requests_are_the_weights(report: Report) -> None:
    shares = report.phases[0].shares
    assert [share.weight for share in shares] == [25, 50, 75]
    assert all(abs(share.measured - share.weight) < TOLERANCE for share in shares), shares


def test_a_weight_takes_effect_and_the_status_names_its_generation(report: Report) -> None:
    delays = report.delays
    assert delays.failed == 0
    assert max(delays.last) < 5000
    assert min(delays.status) >= 0


def test_the_header_selects_the_preview(report: Report) -> None:
    preview = report.preview
    assert preview.with_header_at_new == preview.with_header
    assert preview.without_header_at_new < preview.without_header


def test_the_mirror_copies_what_was_asked_or_raybus_reports_that_there_is_none(
    report: Report,
) -> None:
    mirroring = report.mirroring
    if not mirroring.requests:
        assert mirroring.reasons == ["MirrorUnsupported"]
        return
    copied = 100 * mirroring.copies / mirroring.requests
    assert abs(copied - mirroring.asked_percent) < TOLERANCE


def test_all_situations_have_a_status(report: Report) -> None:
    routes = [body for body in report.statuses.values() if body["kind"] == "HTTPRoute"]
    assert len(routes) >= 5
    assert all(body.get("status", {}).get("parents") for body in routes)
