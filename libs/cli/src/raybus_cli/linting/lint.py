"""All findings about a document: its schema, then the rules of the services and of Serve, then advice. It sends no request to a cluster."""

from collections.abc import Sequence
from typing import Final

from common.feature_gates import Gates
from raybus_cli.linting import advice, rules, serve_schema, shape
from raybus_cli.linting.finding import Finding, Level
from raybus_cli.manifests.reading import Document, Place, path

KINDS: Final = ("RayService", "RayCluster")
API_VERSION: Final = "ray.io/v1"


def lint(document: Document, gates: Gates, *, beside: Sequence[Document] = ()) -> list[Finding]:
    """Return the findings about a document, among others; none for other kinds."""
    if document.kind not in KINDS:
        return []
    errors = [(place, "occurs twice; only the last value counts") for place in document.repeated]
    version = document.body.get("apiVersion")
    if version != API_VERSION:
        errors.append((("apiVersion",), f"{version} should be {API_VERSION}"))
    wrong = shape.problems(document.kind, document.body)
    errors += wrong or [*rules.problems(document, gates), *rules.problems_of_route(document, beside)]
    found = [_finding(document, Level.ERROR, place, text) for place, text in errors]
    if not wrong and document.kind == KINDS[0]:
        text = str(document.body["spec"].get("serveConfigV2") or "")
        place = ("spec", "serveConfigV2")
        found += [_finding(document, level, (*place, *below), why) for level, below, why in serve_schema.problems(text)]
    if not wrong:
        found += [_finding(document, Level.ADVICE, place, text) for place, text in advice.problems(document)]
    return sorted(found, key=lambda each: each.line)


def _finding(document: Document, level: Level, place: Place, text: str) -> Finding:
    return Finding(file=document.file, line=document.line(place), level=level, field=path(place), text=text)
