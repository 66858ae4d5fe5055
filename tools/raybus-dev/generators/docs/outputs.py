"""JSON schemas of what `raybus … -o json` and `-o yaml` print, for docs/reference/outputs.

The schemas are generated from the types that the commands print.
"""

from typing import Any, Final

import msgspec

from common.api.opaque import Json
from generators.docs.schema_file import format_schema
from raybus_cli.control.history import HistoryEntry
from raybus_cli.control.performing import CommandResult
from raybus_cli.crds.check import DefinitionReport
from raybus_cli.doctor.check import Check
from raybus_cli.events.attempts import Attempt
from raybus_cli.explaining.findings import Explanation
from raybus_cli.explaining.job_findings import JobExplanation
from raybus_cli.linting.serve_schema import LintFinding
from raybus_cli.logs.selection import LogRecord
from raybus_cli.migrating.report import MigrationReport
from raybus_cli.planning.job_plan import JobPlan
from raybus_cli.planning.plan import UpgradePlan
from raybus_cli.policy.trial import Trial
from raybus_cli.show.frame import ClusterRow, ListOutput, ServiceRow
from raybus_cli.show.job_report import JobReport
from raybus_cli.show.job_rows import CronJobRow, JobRow
from raybus_cli.show.job_tree import CronJobTree, JobTree
from raybus_cli.show.rollout_status import RolloutStatus
from raybus_cli.show.tree import ClusterTree, Tree
from raybus_cli.show.version import VersionInfo


class Printed(msgspec.Struct, frozen=True):
    """Types that the commands `verbs` print, and their description on the page of schemas."""

    types: tuple[Any, ...]
    verbs: tuple[str, ...]
    text: str


SEVERAL: Final = ("get rayservice NAME NAME",)
HEAD: Final = """# Output of the command line for programs

`-o json` and `-o yaml` print the same data. The schemas are generated from the types of the
program, and the tests validate the output of every verb against them. Every field is always
present, even if it is empty or null.

`raybus events -o json` prints events of [upgrades](../events/README.md) and
[jobs](../events/jobs.md), which have their own schemas. `-o name` prints names such as
`rayservice.ray.io/NAME`, as kubectl does; `raybus history -o name` prints the numbers of revisions
or attempts.

"""
OUTPUTS: Final = {
    "tree": Printed((Tree,), ("get rayservice NAME",), "One RayService; with `-w`, each line."),
    "cluster-tree": Printed(
        (ClusterTree,), ("get raycluster NAME",), "One RayCluster; with `-w`, each line."
    ),
    "job-tree": Printed((JobTree,), ("get rayjob NAME",), "One RayJob; with `-w`, each line."),
    "cron-job-tree": Printed(
        (CronJobTree,), ("get raycronjob NAME",), "One RayCronJob; with `-w`, each line."
    ),
    "trees": Printed(
        (Tree, ClusterTree, JobTree, CronJobTree), SEVERAL, "Several objects with names."
    ),
    "listing": Printed(
        (ListOutput,),
        ("list", "get rayservices", "get rayclusters", "get rayjobs", "get raycronjobs"),
        "Tables of all objects.",
    ),
    "row": Printed(
        (ServiceRow | ClusterRow | JobRow | CronJobRow,),
        ("list -w", "get rayservices -w", "get rayclusters -w", "get rayjobs -w"),
        "One object: each line of a watched table.",
    ),
    "status": Printed((RolloutStatus,), ("status",), "The end of a rollout."),
    "history": Printed(
        (list[HistoryEntry],), ("history",), "The revisions of a RayService, oldest first."
    ),
    "history-job": Printed(
        (list[Attempt],), ("history rayjob/NAME",), "The attempts of a RayJob, oldest first."
    ),
    "logs": Printed((LogRecord,), ("logs",), "Each line of a log; JSON only."),
    "plan": Printed(
        (UpgradePlan | list[UpgradePlan],),
        ("plan", "restart", "set image"),
        "One plan, or a list for several manifests.",
    ),
    "plan-job": Printed(
        (JobPlan | list[JobPlan],), ("plan -f job.yaml",), "Plans of RayJobs and RayCronJobs."
    ),
    "action": Printed(
        (CommandResult | list[CommandResult],),
        ("pause", "resume", "promote", "abort", "retry", "undo", "stop"),
        "The result of an action; a list for several names.",
    ),
    "job": Printed((JobReport,), ("submit", "status rayjob/NAME"), "The state of a RayJob."),
    "explain": Printed((Explanation,), ("explain NAME",), "The blocking issues of a RayService."),
    "explain-job": Printed(
        (JobExplanation,),
        ("explain rayjob/NAME", "explain raycronjob/NAME"),
        "Why a RayJob does not start or failed, or why a RayCronJob starts no run.",
    ),
    "lint": Printed((list[LintFinding],), ("lint", "policy lint"), "Errors and advice."),
    "policy-try": Printed(
        (Trial,), ("policy try",), "The outcome of each gate of an UpgradePolicy."
    ),
    "doctor": Printed(
        (list[Check],), ("doctor",), "The checks of an installation and their results."
    ),
    "crds-check": Printed(
        (list[DefinitionReport],), ("crds check",), "What new CRDs would change, by CRD."
    ),
    "migrate-check": Printed(
        (MigrationReport,), ("migrate check",), "What a take-over from KubeRay would change."
    ),
    "version": Printed((VersionInfo,), ("version",), "The version of the program."),
}


def schema(name: str) -> Json:
    """Return the JSON schema of an output.

    All fields are required, and no other fields are allowed.
    """
    printed = OUTPUTS[name]
    schemas, defined = msgspec.json.schema_components(printed.types)
    for definition in defined.values():
        if "properties" in definition:
            definition |= {"required": [*definition["properties"]], "additionalProperties": False}
    body = schemas[0] if printed.verbs != SEVERAL else _several(list(schemas))
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"raybus {', '.join(printed.verbs)}",
        "description": printed.text,
    }
    return {**head, **body, "$defs": defined}


def text(name: str) -> str:
    """Return the content of the file with the schema of an output."""
    return format_schema(schema(name))


def page() -> str:
    """Return the text of the page that lists all schemas."""
    lines = ["| verb | schema | content |", "|---|---|---|"]
    for name, output in OUTPUTS.items():
        verbs = ", ".join(f"`{verb}`" for verb in output.verbs)
        lines.append(f"| {verbs} | [{name}.json](outputs/{name}.json) | {output.text} |")
    return HEAD + "\n".join(lines) + "\n"


def _several(kinds: list[Json]) -> Json:
    items = {"type": "array", "items": {"anyOf": kinds}}
    return {
        "type": "object",
        "properties": {"items": items},
        "required": ["items"],
        "additionalProperties": False,
    }
