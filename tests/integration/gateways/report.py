"""What a run measures with one gateway, and the table of all of them."""

import statistics
from collections.abc import Sequence

import msgspec

from common.api.opaque import Json


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """The requests that a cluster got while the route had one weight for it."""

    weight: int
    """Percent."""
    measured: float
    """Percent of the requests."""
    requests: int


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """The requests of one upgrade."""

    name: str
    seconds: float
    requests: int
    failed: int
    errors: list[str]
    """The first errors."""
    shares: list[Share] = []


class Delays(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds from the write of a weight, one entry for each write."""

    first: list[float]
    """Until the first request went to the new backend."""
    last: list[float]
    """Until the last request went to the old backend."""
    status: list[float]
    """Until the status of the route named the new generation."""
    failed: int
    """Requests that failed meanwhile."""


class FirstUse(msgspec.Struct, frozen=True, kw_only=True):
    """Backends that had weight 0 and get their first requests, one entry for each."""

    failed: list[int]
    """Requests that failed."""
    last: list[float]
    """Milliseconds between the first and the last failed request."""
    errors: list[str]
    """The different errors."""


class Copies(msgspec.Struct, frozen=True, kw_only=True):
    """The mirror of a route that raybus does not write."""

    asked_percent: int
    requests: int
    failed: int
    copies: int
    is_accepted: bool
    """Whether the controller accepted the route."""


class Preview(msgspec.Struct, frozen=True, kw_only=True):
    """Requests with and without the header of the preview."""

    with_header: int
    with_header_at_new: int
    without_header: int
    without_header_at_new: int


class Mirroring(msgspec.Struct, frozen=True, kw_only=True):
    """The copies of requests that the new cluster got."""

    asked_percent: int
    requests: int
    """Requests while the route of the mirror existed; 0 if raybus made none."""
    copies: int
    reasons: list[str]
    """Reasons of the Events that raybus wrote about the mirror."""


class Session(msgspec.Struct, frozen=True, kw_only=True):
    """Session persistence of a rule with two backends."""

    is_kept_by_crd: bool
    cookies: list[str]
    backends: int
    """Number of backends that answered 20 requests with the cookie."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The whole result with one gateway."""

    gateway: str
    version: str
    phases: list[Phase]
    delays: Delays
    first_use: FirstUse
    copies: Copies
    preview: Preview
    mirroring: Mirroring
    session: Session
    statuses: dict[str, Json]
    """Objects with their status, as the controller wrote it, by the situation."""


def middle(values: Sequence[float]) -> str:
    """Return median and maximum in milliseconds."""
    return f"{statistics.median(values):.0f} / {max(values):.0f}"


def format_table(reports: Sequence[Report]) -> str:
    """Return the table of measurements in Markdown."""
    head = ["measured", *(f"{report.gateway} {report.version}" for report in reports)]
    rows = [
        *(
            [f"failed requests: {name}", *(_format_phase(report, name) for report in reports)]
            for name in dict.fromkeys(phase.name for report in reports for phase in report.phases)
        ),
        ["share at weight 25, 50, 75", *map(_format_shares, reports)],
        [
            "weight to first request (ms, median / max)",
            *(middle(report.delays.first) for report in reports),
        ],
        [
            "weight to last old request (ms, median / max)",
            *(middle(report.delays.last) for report in reports),
        ],
        [
            "weight to status (ms, median / max)",
            *(middle(report.delays.status) for report in reports),
        ],
        ["failed at the first use of a backend", *map(_format_first_use, reports)],
        ["preview by header", *map(_format_preview, reports)],
        ["mirror of the gateway", *map(_format_copies, reports)],
        ["mirror of raybus", *map(_format_mirror, reports)],
        ["session persistence", *map(_format_session, reports)],
    ]
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _format_phase(report: Report, name: str) -> str:
    phase = next((phase for phase in report.phases if phase.name == name), None)
    return "-" if phase is None else f"{phase.failed} of {phase.requests}"


def _format_shares(report: Report) -> str:
    shares = report.phases[0].shares
    return ", ".join(f"{share.measured:.0f}" for share in shares)


def _format_preview(report: Report) -> str:
    preview = report.preview
    return f"{preview.with_header_at_new} of {preview.with_header}"


def _format_first_use(report: Report) -> str:
    first_use = report.first_use
    times = sum(count > 0 for count in first_use.failed)
    longest = max(first_use.last, default=0.0)
    return f"{times} of {len(first_use.failed)} backends, for {longest:.0f} ms"


def _format_copies(report: Report) -> str:
    copies = report.copies
    accepted = "accepted" if copies.is_accepted else "rejected"
    percent = 100 * copies.copies / copies.requests
    return f"{accepted}; {percent:.0f} % copied, {copies.failed} of {copies.requests} failed"


def _format_mirror(report: Report) -> str:
    mirroring = report.mirroring
    if not mirroring.requests:
        return f"none ({', '.join(mirroring.reasons)})"
    return f"{100 * mirroring.copies / mirroring.requests:.0f} % copied"


def _format_session(report: Report) -> str:
    session = report.session
    if not session.is_kept_by_crd:
        return "field not in the CRD"
    return f"cookie, {session.backends} backend(s)" if session.cookies else "ignored"
