"""Shells and kubectl complete verbs and options; scripts name the program."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from common.kube.resources import NAMESPACE
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
    assert completion.candidates(main.build, arguments) == found


CONTEXTS = "{contexts: [{name: kind-a}, {name: kind-b}, {name: prod}], current-context: prod}"


@pytest.mark.usefixtures("clean")
def test_contexts_of_the_kubeconfig_are_completed(tmp_path: Path) -> None:
    (tmp_path / "config").write_text(CONTEXTS)
    typed = ["list", "--kubeconfig", str(tmp_path / "config"), "--context", "kind"]
    assert completion.candidates(main.build, typed) == ["kind-a", "kind-b"]


@pytest.mark.usefixtures("clean")
@pytest.mark.parametrize("option", ["--context", "--namespace"])
def test_without_a_cluster_nothing_is_completed(tmp_path: Path, option: str) -> None:
    assert (
        completion.candidates(
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
    assert completion.candidates(main.build, typed) == ["ml-a", "ml-b"]


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
    assert completion.verb(env) == verb
