"""Every `raybus …` on any page names an existing verb with options that it has."""

import re
import shlex
from functools import cache
from pathlib import Path

import pytest
import typer
from typer.core import TyperCommand, TyperGroup

from raybus_cli import main
from support.docs import commands
from support.manifests import ROOT

Command = TyperGroup | TyperCommand
pytestmark = pytest.mark.long  # it imports every verb

NOT_ABOUT_US = {"acceptance-raycluster.md", "acceptance-rayservice.md", "CHANGELOG.md"}
ALL = (
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted((ROOT / "examples").rglob("*.md")),
)
PAGES = [page for page in ALL if page.name not in NOT_ABOUT_US]
INLINE = re.compile(r"`(raybus [a-z][^`\n]*)`")
APART = re.compile(r"\s(?:\||&&|;|>|&)(?:\s|$)")
PLACE = re.compile(r"^[A-Z…<\[\"'$]")
"""Pattern of placeholders in inline code."""


@cache
def _command(verb: str) -> Command | None:
    built = typer.main.get_command(main.build(verb))
    return _below(built, verb) if isinstance(built, TyperGroup) else None


def _below(group: TyperGroup, name: str) -> Command | None:
    found = group.commands.get(name)
    return found if isinstance(found, Command) else None


def _fault(text: str) -> str:
    arguments = shlex.split(APART.split(text)[0])[1:]
    command = _command(arguments[0].partition("|")[0]) if arguments else None
    if command is None:
        return f"{text}: there is no such verb"
    for argument in arguments[1:]:
        if argument == "--":
            break
        if isinstance(command, TyperGroup) and not argument.startswith("-"):
            found = _below(command, argument)
            if found is None:
                return f"{text}: {command.name} has no {argument}"
            command = found
        elif argument.startswith("-") and argument not in _options(command):
            return f"{text}: {command.name} has no option {argument}"
    return ""


def _options(command: Command) -> set[str]:
    names = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    return {*names, "--help", "-"}


def _typed(page: Path) -> list[str]:
    texts = [each.text for each in commands.of(page)] + INLINE.findall(page.read_text())
    ours = (
        part for text in texts for part in re.split(r"\s\|\s", text) if part.startswith("raybus ")
    )
    return [
        text
        for text in ours
        if not PLACE.match(text.split()[1]) and "…" not in text and "|" not in text
    ]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_the_page_names_verbs_and_options_that_there_are(page: Path) -> None:
    assert [fault for text in _typed(page) if (fault := _fault(text))] == []


@pytest.mark.parametrize(
    "text",
    ["raybus gett rayservice demo", "raybus plan -f demo.yaml --steps 3", "raybus cluster upp"],
)
def test_what_there_is_not_is_found(text: str) -> None:
    assert _fault(text)
