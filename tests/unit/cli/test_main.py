"""The command line finds its parts and survives a broken one."""

import os
import platform
import subprocess
import sys

import msgspec
import pytest
from typer.testing import CliRunner

from raybus_cli import main
from raybus_cli.main import PARTS, HelpPanel, Subcommand


def test_help_names_every_part_without_importing_any(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        PARTS, "demo", Subcommand(HelpPanel.LOCAL, "raybus_cli.missing", "app", "Broken.")
    )
    done = CliRunner().invoke(main.build(None), ["--help"])
    assert done.exit_code == 0
    assert all(name in done.stdout for name in PARTS)


def test_a_broken_part_ends_with_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(
        PARTS, "demo", Subcommand(HelpPanel.LOCAL, "raybus_cli.missing", "app", "Broken.")
    )
    with pytest.raises(SystemExit) as end:
        main.build("demo")
    assert end.value.code == 1
    assert capsys.readouterr().err == (
        "error: raybus demo cannot be loaded: No module named 'raybus_cli.missing'; install raybus again, in a checkout with 'make setup'\n"
    )


def test_a_part_of_a_package_that_is_not_installed_is_not_offered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(
        PARTS, "demo", Subcommand(HelpPanel.LOCAL, "no_such_package.cli", "app", "Demo.")
    )
    help_text = CliRunner().invoke(main.build(None), ["--help"]).stdout
    assert "demo" not in help_text
    assert "doctor" in help_text


def test_version_is_one_line() -> None:
    done = CliRunner().invoke(main.build("version"), ["version", "--short"])
    assert (done.exit_code, done.stdout) == (0, "0.1.0\n")


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        (["help"], ["--help"]),
        (["help", "get"], ["get", "--help"]),
        (["--version"], ["version"]),
        (["get", "rayservice", "demo"], ["get", "rayservice", "demo"]),
        (["plan", "-f", "a/b.yaml"], ["plan", "-f", "a/b.yaml"]),
        ([], []),
    ],
)
def test_forms_of_kubectl_are_understood(given: list[str], ours: list[str]) -> None:
    assert main.translate_arguments(given) == ours


@pytest.mark.parametrize("arguments", [["-h"], ["get", "-h"], ["status", "-h"]])
def test_the_short_option_for_help_is_understood_everywhere(arguments: list[str]) -> None:
    verb = next((each for each in arguments if not each.startswith("-")), None)
    done = CliRunner().invoke(main.build(verb), arguments)
    assert (done.exit_code, "Usage:" in done.stdout) == (0, True)


def test_version_as_data() -> None:
    done = CliRunner().invoke(main.build("version"), ["version", "-o", "json"])
    assert msgspec.json.decode(done.stdout) == {
        "version": "0.1.0",
        "python": platform.python_version(),
        "platform": sys.platform,
    }


@pytest.mark.parametrize("name", ["rayservice/", "pod/demo", "/demo"])
def test_a_name_with_another_kind_is_a_misuse(name: str) -> None:
    done = CliRunner().invoke(main.build("status"), ["status", name])
    assert done.exit_code == 2
    assert "nor rayservice/NAME nor rayjob/NAME" in " ".join(done.stderr.replace("│", " ").split())


def test_an_unknown_command_is_a_misuse() -> None:
    assert CliRunner().invoke(main.build("nothing"), ["nothing"]).exit_code == 2


def test_a_reader_that_leaves_early_is_no_failure() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "raybus_cli.main"]
    done = subprocess.run([*command, "version"], stdout=writer, stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert (
        subprocess.run(
            [*command, "nothing"], stdout=writer, stderr=subprocess.DEVNULL, check=False
        ).returncode
        == 2
    )
    os.close(writer)
