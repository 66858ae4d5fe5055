"""docs/cli.md is generated from the code and from the tests' recordings, so it is always correct.

Rewrite it with `pytest --update-golden`.
"""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from raybus_cli import main
from support.golden import Golden

ROOT = Path(__file__).parents[3]
RECORDED = Path(__file__).parents[2] / "golden" / "cli"
WIDTH = "110"
HEAD = """# Command line

`raybus`, also as `kubectl raybus`: the same program under the name `kubectl-raybus`. It uses only the kubeconfig and the rights of its
caller. [An upgrade at the terminal](session.md) shows a whole upgrade with these verbs. This page lists the verbs for a running service;
`raybus cluster`, `images`, `up` and `demo` have their own `--help`.

- `-n`, `--context`, `--kubeconfig` have kubectl's meaning; verbs that show objects accept `-o json|yaml|wide|name`, those that
  report about objects the same without `name`.
- Forms of kubectl work: `rayservice/NAME` wherever a name is given; `help VERB`, `-h` and `--version`; those of `kubectl get` in `raybus get`.
- Standard output contains only results; a pipe gets no colors and whole lines.
- Exit codes: 0 success, 1 failure (of the command or of the object), 2 invalid command, 3 time limit of
  `raybus status` and of `--wait`.
- A missing prerequisite (kubeconfig, rights, CRDs, an answer) gives one line with the required action.
- Unreadable objects are omitted and listed: at the end of the tree with `-o wide`, in `explain`, in `doctor`, in a bundle.

This page is generated from the program's help texts and from the tests' recordings.
"""
TEXTS = {
    "get": "With names each object is a tree, without names the output is the table of that kind. The bar is the share of the traffic; capacity "
    "is the ready capacity (read from the dashboard through the API server) and the target capacity. `-w` shows a live view; in a pipe each "
    "change is one line, or one document. It watches the objects: an idle cluster costs no request, and a change is shown at once. A tree also "
    "reads Serve's dashboards, each 30 seconds, during an upgrade each 2. `-w` needs the right to `watch` the kind; where pods, Events or routes "
    "may not be watched, it lists them each 30 seconds and notes that. Kinds are `rayservice` and `raycluster` in either number, with or without "
    "`.ray.io`; the CRDs define no short names. `-l` is passed to the API server.",
    "list": "The columns of RayClusters are the same as in `kubectl get`. Each object is one line: a terminal that is too narrow gets fewer columns, a "
    "pipe gets all.",
    "status": "For CI. Progress goes to standard error. The command waits during a pause. It exits with 1 after a stall or an abort, and as soon as "
    "a cause is known that waiting cannot remove: an invalid spec, a Serve config that Serve refuses, an application in `DEPLOY_FAILED`, an image "
    "that cannot be pulled for 3 minutes. It exits with 3 after the time limit. "
    "For a RayJob it shows the state, the attempts, the reason and the durations; a suspended job has not ended.",
    "plan": "The forecast uses the services' own functions on the state of the cluster, and a dry run of the API server, "
    "which includes defaults and admission rules. It tests each field separately against the cluster spec hash. "
    "`--max-surge`, `--step`, `--interval` and `--max-unavailable` test other values. The time covers the traffic without delays; pods and images "
    "take additional time. Peaks during an upgrade in steps assume that Ray's autoscaler frees nodes in time; the figure in "
    "parentheses applies if it does not. With an [UpgradePolicy](reference/upgrade-policy.md) its steps, gates and shortest duration follow.",
    "lint": "The command needs no cluster. It checks RayServices, RayClusters and RayJobs. An unknown field is an error, because the API server would drop it. "
    "`serveConfigV2` is checked with the schema of Ray Serve; there an unknown field is advice, because Serve ignores it.",
    "pause": "[Upgrade controls](upgrade-controls.md) describes each control. `pause`, `resume`, `promote`, `abort`, `retry` and `undo` accept several "
    "names; `--wait` ends when raybus reports the effect: paused, not paused, promoted, rolled back, not aborted, the new generation observed.",
    "resume": "",
    "promote": "The command removes `raybus.io/pause`, and warns where the new cluster cannot become ready.",
    "abort": "",
    "retry": "",
    "undo": "The command works at any time, also after the deletion of the old cluster, because raybus keeps [earlier specs](upgrade-controls.md#undo). Without "
    "`--to-revision` it restores the previous serving spec, not an aborted one.",
    "restart": "A RayService without a change of its spec gets a new cluster of the same spec, and its traffic as at any upgrade; `raybus abort` and "
    "`raybus undo` roll back. A RayCluster of its own needs `spec.upgradeStrategy.type: Recreate`; without it the command is refused. The "
    "patch tests the generation: if the spec changes in between, it is read and planned again.",
    "set": "`head` is the head's group. A spec in which every named container has the image already is refused, and so is an unknown group, with the names of "
    "those that exist.",
    "logs": "Without `--raw` escapes for a terminal are removed. Without `-f` the logs follow one another, with `-f` their lines mix. The log of a pod "
    "that was deleted is gone: of a cluster that an upgrade left behind, the error names when, and `--bundle FILE` reads the last 2000 lines of each "
    "container that `raybus bundle` kept, without a cluster and with the same options but `-f`, `--since`, `-p`, `--app` and `--deployment`. The logs of replicas come from the files that Ray names; `-f` and `--tail` apply, `--since` and `-p` do "
    "not. [Security](how-to/security.md#check-the-rights-in-kubernetes) lists the rights.",
    "history": "A spec with the role `gone` has no cluster; `raybus undo --to-revision` can still restore it. The outcome is that of the upgrade to "
    "the spec, where the status, the receipt of the last upgrade or a later record has it; else `-`.",
    "events": "The history for external consumers ([upgrade events](events/README.md)); it stays after the deletion of the objects. "
    "The example has a line of each kind.",
    "submit": "The log is that of the container that submits the job, read through the API server. A retry prints its own log. "
    "In `HTTPMode` and `InteractiveMode` no container has it: see Ray's dashboard. Progress goes to standard error, and so does the log "
    "with `-o`. A local directory cannot be uploaded: put the code into the image, or give Ray an address in the runtime environment "
    "(`working_dir: https://example.com/code.zip`). [Run a batch job](how-to/batch-job.md) describes the manifest.",
    "stop": "The command does not wait for the end. A job of Kueue can only be deleted, because Kueue would resume it.",
    "explain": "One finding for each cause: its evidence, the remedy, a command to copy, and the section of [troubleshooting](troubleshooting.md) about it. "
    "Events that the present state of a pod contradicts are omitted. `-o json` has the fields `code`, `message`, `evidence`, `remedy`, `command` and `anchor`.",
    "dashboard": "[The dashboard page](dashboard.md) describes its contents and data sources.",
    "policy": "`lint` holds an [UpgradePolicy](reference/upgrade-policy.md) to the rules of the API server, without a cluster. `try` evaluates its gates with "
    "the requests that the nodes of a RayService have counted since they began, which an upgrade counts from its own begin; pods without metrics are "
    "left out, and named on standard error.",
    "doctor": "A category for each part, a mark for each check: `√` passed, `‼` warning, `×` failed, `?` unknown (`+`, `!`, `x`, `?` where the output "
    "is not UTF-8). A warning and a failure have a remedy and a page of this documentation. Only a failure yields exit code 1. In JSON each "
    "check has `name`, `state`, `text`, `remedy`, `category` and `hint`. If raybus has no pods, `doctor` looks for the Leases of services that "
    "`docker compose` or `raybus up` runs.",
    "crds": "`print` needs no cluster and no checkout: it prints what `deploy/crds` has. `check` reads the CRDs of a cluster, and lists the objects of a "
    "kind only if one of its fields is removed or changed.",
    "migrate": "[Migrate from KubeRay](migration.md) describes the next steps.",
    "bundle": "It keeps the logs of 40 Ray pods at most, heads first, the last 2000 lines and 2 MiB of each container; `unseen.txt` names the others.",
    "completion": "",
    "version": "",
}
"""Text of each verb in addition to its help."""
BELOW = {"dashboard": ["serve"]}
"""Subcommands of verbs that can also be used without a subcommand."""
INNER = {
    "crds": ["check", "print"],
    "migrate": ["check"],
    "set": ["image"],
    "policy": ["lint", "try"],
}
"""Subcommands of verbs that are always followed by one."""
SHOWN = {
    "get": [
        ("raybus get rayservice demo", "tree-in-steps.txt"),
        ("raybus get rayservice demo -w | cat", "line-in-steps.txt"),
        ("raybus get raycluster demo-blue", "cluster-160.txt"),
    ],
    "status": [("raybus status rayjob/score", "status-rayjob.txt")],
    "list": [("raybus list -A", "list-pipe.txt")],
    "plan": [
        ("raybus plan -f demo.yaml", "plan-new-cluster.txt"),
        ("raybus plan -f demo.yaml", "plan-in-place.txt"),
    ],
    "lint": [("raybus lint -f -", "lint.txt")],
    "restart": [
        ("raybus restart demo --dry-run", "restart.txt"),
        ("raybus restart raycluster/lone --dry-run", "restart-cluster.txt"),
    ],
    "set": [("raybus set image demo head=rayproject/ray:2.53.0 --dry-run", "set-image.txt")],
    "logs": [
        ("raybus logs demo --all --tail 2", "logs.txt"),
        ("raybus logs demo --app app -o json", "logs-json.txt"),
    ],
    "history": [
        ("raybus history demo", "history.txt"),
        ("raybus history demo -o wide | cat", "history-wide.txt"),
    ],
    "events": [("raybus events default/greeter", "events.txt")],
    "submit": [("raybus submit --name train --workers 2 -- python train.py", "submit.txt")],
    "explain": [("raybus explain demo", "explain.txt")],
    "policy": [
        ("raybus policy lint careful.yaml", "policy-lint.txt"),
        ("raybus policy try careful --service demo", "policy-try.txt"),
    ],
    "doctor": [("raybus doctor", "doctor.txt"), ("raybus doctor --pre", "doctor-pre.txt")],
    "migrate": [("raybus migrate check", "migrate-check.txt")],
}
"""Commands with their output, as recorded by the tests."""
PICTURES = {
    "get": (
        "get-rayservice",
        "The tree of a RayService during an upgrade in steps, with the share of the traffic as a bar",
    ),
    "list": ("list", "Tables of RayServices and RayClusters"),
    "plan": ("plan", "The cost of a change, by strategy"),
    "history": ("history", "The revisions of a RayService with image and outcome"),
    "explain": ("explain", "Three blocking issues, each with its remedy and a command"),
    "doctor": ("doctor", "The checks of an installation by category"),
}
"""Pictures of terminals, made by the tests, each with a text for readers without images."""


def _help(*verbs: str, monkeypatch: pytest.MonkeyPatch) -> str:
    command_line, verb = [*verbs, "--help"], verbs[0]
    for name, value in (
        ("COLUMNS", WIDTH),
        ("TERMINAL_WIDTH", WIDTH),
        ("NO_COLOR", "1"),
        ("TERM", "dumb"),
    ):
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(main.build(verb), command_line, prog_name="raybus")
    assert done.exit_code == 0, verb
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def _section(verb: str, monkeypatch: pytest.MonkeyPatch) -> str:
    parts = [f"## raybus {verb}\n"]
    if TEXTS[verb]:
        parts.append(f"{TEXTS[verb]}\n")
    if verb in PICTURES:
        name, text = PICTURES[verb]
        parts.append(f"![{text}](images/cli-{name}.svg)\n")
    inner = [[verb, each] for each in INNER.get(verb, [])] or [[verb]]
    inner += [[verb, each] for each in BELOW.get(verb, [])]
    parts += [f"```text\n{_help(*each, monkeypatch=monkeypatch)}\n```\n" for each in inner]
    for command, file in SHOWN.get(verb, []):
        parts.append(f"```console\n$ {command}\n{(RECORDED / file).read_text().strip()}\n```\n")
    return "\n".join(parts)


def test_the_page_matches_the_output_of_the_program(
    golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = "\n".join([HEAD, *(_section(verb, monkeypatch) for verb in TEXTS)])
    Golden(root=ROOT / "docs", update=golden.update).check("cli.md", page)


def test_every_verb_is_on_the_page_or_named_in_its_head() -> None:
    assert [
        name
        for name in main.PARTS
        if name not in TEXTS and f"`{name}`" not in HEAD and f"raybus {name}" not in HEAD
    ] == []


def test_every_verb_about_a_running_service_was_typed_at_a_real_one() -> None:
    """docs/session.md is the record of `make e2e-all`; part 4 of the tutorial, which `make e2e` types, has `policy`."""
    elsewhere = {
        *("cluster", "images", "up", "demo", "dashboard", "migrate", "completion", "policy"),
        *("submit", "stop", "crds"),
    }
    typed = re.findall(
        r"^\$ raybus (\w+)", (ROOT / "docs" / "session.md").read_text(), flags=re.MULTILINE
    )
    assert {*typed} == {*main.PARTS, "version"} - elsewhere
