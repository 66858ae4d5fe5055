"""docs/cli.md is made from the code and from what the tests recorded, so it cannot say what is not so.

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
HEAD = """# The command line

`raybus`, also as `kubectl raybus`: the same program under the name `kubectl-raybus`. It uses the kubeconfig and the rights of whoever
calls it, and nothing else. A whole upgrade with these verbs: [an upgrade at the terminal](session.md). Verbs for a running service are
on this page; `raybus cluster`, `images`, `up` and `demo` have a
`--help` of their own.

- `-n`, `--context`, `--kubeconfig` mean what they mean to kubectl; `-o json|yaml|wide|name` where a verb shows something.
- Standard output carries results only; in a pipe there are no colours and no cut lines.
- Exit codes: 0 done, 1 it could not be done (or what was asked about has failed), 2 the command makes no sense as written.
- Where something is missing (no kubeconfig, no rights, no CRDs, no answer) there is one line that says what to do.
- What the caller may not see is left out and named: last in the tree with `-o wide`, in `explain`, in `doctor`, in a bundle.

This page is generated: the help texts are the program's, the pictures are what the tests recorded.
"""
TEXTS = {
    "get": "A tree. The bar is the share of the traffic; capacity is what is seen to run (asked of the dashboard through the API "
    "server) of what Serve was told to have. With `-w` the picture is live; in a pipe each change is one line, or one document.",
    "list": "The columns of RayClusters are those of `kubectl get`.",
    "status": "For CI. Progress goes to standard error. A pause is waited for; a stall, an abort, an invalid spec and the time limit end "
    "it with 1.",
    "plan": "The answer is that of the services: the same functions decide, fed with what the cluster holds, and the API server is asked "
    "for a dry run, so defaults and admission rules count. Each field is tried alone against the hash that decides on new clusters. "
    "`--max-surge`, `--step`, `--interval` and `--max-unavailable` try other values; the time is that of the traffic where nothing is in its way, what pods and images "
    "take comes on top. Peaks while traffic moves in steps assume that Ray's autoscaler frees nodes as capacity goes; the figure in "
    "brackets is what is asked for when it does not in time.",
    "lint": "Without a cluster. An unknown field is an error, since the API server would drop it.",
    "pause": "What each control does is on [another page](upgrade-controls.md).",
    "resume": "",
    "promote": "",
    "abort": "",
    "retry": "",
    "undo": "At any time, also when the old cluster is gone: raybus keeps the [specs that a RayService had](upgrade-controls.md#undo). Without "
    "`--to-revision` it goes back to the spec that served before this one, not to one that was given up on the way.",
    "history": "A spec whose role is `gone` has no cluster any more; `raybus undo --to-revision` brings it back all the same.",
    "events": "The history that outsiders may read ([upgrade events](events/README.md)): it stays when the objects are gone. "
    "Below, a line of each kind.",
    "explain": "",
    "dashboard": "What it shows and where from, with pictures: [the dashboard](dashboard.md).",
    "doctor": "",
    "migrate": "[Coming from KubeRay](migration.md) says what to do with the answer, step by step.",
    "bundle": "",
    "completion": "",
}
"""What is to be said of each verb beyond its help."""
INNER = {"get": ["rayservice"], "migrate": ["check"]}
"""Verbs that are followed by another word."""
SHOWN = {
    "get": [
        ("raybus get rayservice demo", "tree-in-steps.txt"),
        ("raybus get rayservice demo -w | cat", "line-in-steps.txt"),
    ],
    "list": [("raybus list -A", "list.txt")],
    "plan": [("raybus plan -f demo.yaml", "plan-new-cluster.txt"), ("raybus plan -f demo.yaml", "plan-in-place.txt")],
    "lint": [("raybus lint -f -", "lint.txt")],
    "history": [("raybus history demo -o wide", "history.txt")],
    "events": [("raybus events default/greeter", "events.txt")],
    "explain": [("raybus explain demo", "explain.txt")],
    "doctor": [("raybus doctor", "doctor.txt")],
    "migrate": [("raybus migrate check", "migrate-check.txt")],
}
"""Commands and what they print, as recorded by the tests."""


def _help(verb: str, monkeypatch: pytest.MonkeyPatch) -> str:
    words = [verb, *INNER.get(verb, ()), "--help"]
    for name, value in (("COLUMNS", WIDTH), ("TERMINAL_WIDTH", WIDTH), ("NO_COLOR", "1"), ("TERM", "dumb")):
        monkeypatch.setenv(name, value)
    done = CliRunner().invoke(main.build(verb), words, prog_name="raybus")
    assert done.exit_code == 0, verb
    assert verb == "version" or "Example: " in re.sub(r"\s+", " ", done.stdout), f"the help of {verb} has no example"
    return "\n".join(line.rstrip() for line in done.stdout.strip().splitlines())


def _section(verb: str, monkeypatch: pytest.MonkeyPatch) -> str:
    parts = [f"## raybus {verb}\n"]
    if TEXTS[verb]:
        parts.append(f"{TEXTS[verb]}\n")
    parts.append(f"```text\n{_help(verb, monkeypatch)}\n```\n")
    for command, file in SHOWN.get(verb, []):
        parts.append(f"```console\n$ {command}\n{(RECORDED / file).read_text().strip()}\n```\n")
    return "\n".join(parts)


def test_the_page_says_what_the_program_says(golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    page = "\n".join([HEAD, *(_section(verb, monkeypatch) for verb in TEXTS)])
    Golden(root=ROOT / "docs", update=golden.update).check("cli.md", page)


def test_every_verb_is_on_the_page_or_named_in_its_head() -> None:
    assert [
        name for name in main.PARTS if name not in TEXTS and f"`{name}`" not in HEAD and f"raybus {name}" not in HEAD
    ] == []
