"""JSON schemas of the output of `-o json` and `-o yaml`, for docs/reference/outputs.

The schemas are generated from the types that the verbs print.
"""

from typing import Any, Final

import msgspec

from common.api.opaque import Json
from raybus_cli.control.history import Entry
from raybus_cli.control.performing import Result
from raybus_cli.doctor.check import Check
from raybus_cli.explaining.findings import Explanation
from raybus_cli.linting.serve_schema import Finding
from raybus_cli.logs.selection import Document
from raybus_cli.migrating.report import Report
from raybus_cli.planning.plan import Plan
from raybus_cli.policy.trial import Trial
from raybus_cli.show.frame import ClusterRow, Listing, ServiceRow
from raybus_cli.show.rollout_status import RolloutStatus
from raybus_cli.show.tree import ClusterTree, Tree
from raybus_cli.show.version import Version


class Printed(msgspec.Struct, frozen=True):
    """The types that some verbs print, and their description on the page."""

    types: tuple[Any, ...]
    verbs: tuple[str, ...]
    text: str


SEVERAL: Final = ("get rayservice NAME NAME",)
HEAD: Final = """# Output of the command line for programs

`-o json` and `-o yaml` print the same data. The schemas are generated from the types of the
program, and the tests validate the output of every verb against them. Every field is always
present, even if it is empty or null.

`raybus events -o json` prints [upgrade events](../events/README.md), which have their own schemas.
`-o name` prints names such as `rayservice.ray.io/NAME`, as kubectl does; `raybus history -o name`
prints the numbers of revisions.

"""
OUTPUTS: Final = {
    "tree": Printed((Tree,), ("get rayservice NAME",), "One RayService; with `-w`, each line."),
    "cluster-tree": Printed(
        (ClusterTree,), ("get raycluster NAME",), "One RayCluster; with `-w`, each line."
    ),
    "trees": Printed((Tree, ClusterTree), SEVERAL, "Several objects with names."),
    "listing": Printed(
        (Listing,), ("list", "get rayservices", "get rayclusters"), "Tables of all objects."
    ),
    "row": Printed(
        (ServiceRow | ClusterRow,),
        ("list -w", "get rayservices -w", "get rayclusters -w"),
        "One object: each line of a watched table.",
    ),
    "status": Printed((RolloutStatus,), ("status",), "The end of a rollout."),
    "history": Printed(
        (list[Entry],), ("history",), "The revisions of a RayService, oldest first."
    ),
    "logs": Printed((Document,), ("logs",), "Each line of a log; JSON only."),
    "plan": Printed(
        (Plan | list[Plan],),
        ("plan", "restart", "set image"),
        "One plan, or a list for several manifests.",
    ),
    "action": Printed(
        (Result | list[Result],),
        ("pause", "resume", "promote", "abort", "retry", "undo"),
        "The result of an action; a list for several names.",
    ),
    "explain": Printed((Explanation,), ("explain",), "The blocking issues of a RayService."),
    "lint": Printed((list[Finding],), ("lint", "policy lint"), "Errors and advice."),
    "policy-try": Printed(
        (Trial,), ("policy try",), "The outcome of each gate of an UpgradePolicy."
    ),
    "doctor": Printed(
        (list[Check],), ("doctor",), "The checks of an installation and their results."
    ),
    "migrate-check": Printed(
        (Report,), ("migrate check",), "What a take-over from KubeRay would change."
    ),
    "version": Printed((Version,), ("version",), "The version of the program."),
}


def schema(name: str) -> Json:
    """Return the schema of an output, with all fields required and no other fields allowed."""
    printed = OUTPUTS[name]
    found, defined = msgspec.json.schema_components(printed.types)
    for each in defined.values():
        if "properties" in each:
            each |= {"required": [*each["properties"]], "additionalProperties": False}
    body = found[0] if printed.verbs != SEVERAL else _several(list(found))
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"raybus {', '.join(printed.verbs)}",
        "description": printed.text,
    }
    return {**head, **body, "$defs": defined}


def text(name: str) -> str:
    """Return the content of a schema's file."""
    return msgspec.json.format(msgspec.json.encode(schema(name)), indent=2).decode() + "\n"


def page() -> str:
    """Return the page that lists the schemas."""
    lines = ["| verb | schema | content |", "|---|---|---|"]
    for name, each in OUTPUTS.items():
        verbs = ", ".join(f"`{verb}`" for verb in each.verbs)
        lines.append(f"| {verbs} | [{name}.json](outputs/{name}.json) | {each.text} |")
    return HEAD + "\n".join(lines) + "\n"


def _several(kinds: list[Json]) -> Json:
    items = {"type": "array", "items": {"anyOf": kinds}}
    return {
        "type": "object",
        "properties": {"items": items},
        "required": ["items"],
        "additionalProperties": False,
    }
