"""Shells and kubectl complete verbs and options; scripts name the program."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from common.kube.resources import NAMESPACE, RAY_CLUSTER, RAY_CRON_JOB, RAY_JOB
from raybus_cli import completion, main, session
from support.fakes.kube import FakeKube


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "")
    monkeypatch.setenv("COMP_CWORD", "")


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        pytest.param(["hist"], ["history"], id="a verb"),
        pytest.param(["get", "rays"], ["rayservice"], id="a kind"),
        pytest.param(["status", "--time"], ["--timeout"], id="an option"),
        pytest.param(["list", "-o", "js"], ["json"], id="a value"),
    ],
)
def test_arguments_are_completed(arguments: list[str], found: list[str]) -> None:
    assert completion.list_candidates(main.build, arguments) == found


CONTEXTS = "{contexts: [{name: kind-a}, {name: kind-b}, {name: prod}], current-context: prod}"


@pytest.mark.usefixtures("clean")
def test_contexts_of_the_kubeconfig_are_completed(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(CONTEXTS)
    typed = ["list", "--kubeconfig", str(tmp_path / "config"), "--context", "kind"]
    assert completion.list_candidates(main.build, typed) == ["kind-a", "kind-b"]


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("option", ["--context", "--namespace"])
def test_without_a_cluster_nothing_is_completed(tmp_path: Path, option: str) -> None:
    assert (
        completion.list_candidates(
            main.build, ["list", "--kubeconfig", str(tmp_path / "none"), option, "k"]
        )
        == []
    )


@pytest.mark.usefixtures("clean")
def test_namespaces_are_completed_from_the_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config").write_text(CONTEXTS)
    kube = FakeKube()
    for name in ("ml-a", "ml-b", "default"):
        kube.put(NAMESPACE, {"metadata": {"name": name, "namespace": ""}})

    async def connect(_place: object) -> FakeKube:
        return kube

    monkeypatch.setattr(kube, "close", _close, raising=False)
    monkeypatch.setattr(session, "connect", connect)
    typed = ["list", "--kubeconfig", str(tmp_path / "config"), "-n", "ml"]
    assert completion.list_candidates(main.build, typed) == ["ml-a", "ml-b"]


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize(
    ("typed", "found"),
    [
        (["history", "rayjob/tr"], ["rayjob/train"]),
        (["history", "raycronjob/ni"], []),
        (["status", "raycronjob/ni"], ["raycronjob/nightly"]),
        (["logs", "raycluster/sh"], ["raycluster/shared"]),
    ],
)
def test_only_kinds_that_a_verb_takes_are_completed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, typed: list[str], found: list[str]
) -> None:
    (tmp_path / "config").write_text(CONTEXTS)
    kube = FakeKube()
    for kind, name in ((RAY_JOB, "train"), (RAY_CRON_JOB, "nightly"), (RAY_CLUSTER, "shared")):
        kube.put(kind, {"metadata": {"name": name, "namespace": "default"}})

    async def connect(_place: object) -> FakeKube:
        return kube

    monkeypatch.setattr(kube, "close", _close, raising=False)
    monkeypatch.setattr(session, "connect", connect)
    verb, name = typed
    options = ["--kubeconfig", str(tmp_path / "config"), "-n", "default"]
    assert completion.list_candidates(main.build, [verb, *options, name]) == found


async def _close() -> None:
    pass


@pytest.mark.parametrize("shell", list(completion.Shell))
def test_a_script_is_printed_for_each_shell(shell: completion.Shell) -> None:
    done = CliRunner().invoke(main.build("completion"), ["completion", shell])
    assert done.exit_code == 0
    assert "_RAYBUS_COMPLETE" in done.stdout
    assert "raybus" in done.stdout


@pytest.mark.parametrize(
    ("env", "verb"),
    [
        ({"COMP_WORDS": "raybus status de"}, "status"),
        ({"_TYPER_COMPLETE_ARGS": "raybus -n x"}, "x"),
        ({}, None),
    ],
)
def test_the_verb_is_found_in_what_a_shell_gives(env: dict[str, str], verb: str | None) -> None:
    assert completion.find_verb(env) == verb


def test_zsh_loads_the_script_from_a_file_and_completes_at_once() -> None:
    """A file on the `fpath` must begin with `#compdef`, and is called, not sourced."""
    lines = completion.build_script(completion.Shell.ZSH).splitlines()
    assert lines[0] == "#compdef raybus"
    assert '  _raybus_completion "$@"' in lines[lines.index("}") :]
