"""The command line: bad input ends in one line with the remedy, and the right exit code."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from localcluster import settings
from localcluster.cli import app
from support.tables import cases

_EXISTING_UNNAMED = ["up", "--kubeconfig", "config"]


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")


@cases(
    ("arguments", "code", "complaint"),
    {
        "existing cluster, not named": (_EXISTING_UNNAMED, 2, "needs --driver kubeconfig"),
        "named, no file": (["up", "--driver", "kubeconfig"], 2, "needs --kubeconfig FILE"),
        "unknown driver": (["up", "--driver", "other"], 2, "not one of"),
        "bad name": (["up", "--name", "A B"], 2, "cluster name 'A B'"),
        "no CRDs": (["up", "--crds", "/none"], 2, "the folder does not exist"),
        "no Docker": (["up", "--driver", "kind"], 1, "start Docker, or use --driver built"),
        "no cluster": (["status"], 1, "start it with 'raybus cluster up'"),
        "no cluster, no kubeconfig": (["kubeconfig"], 1, "start it with 'raybus cluster up'"),
        "nothing to run": (["exec"], 2, "name a program to run"),
    },
)
def test_bad_input_is_answered_in_one_line(arguments: list[str], code: int, complaint: str) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code
    assert complaint in " ".join(result.stderr.split())
    assert result.stdout == ""


def test_a_node_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "is_root", lambda: False)
    result = CliRunner().invoke(app, ["up", "--driver", "built"])
    assert (result.exit_code, result.stdout) == (1, "")
    assert "run it as root" in result.stderr


def test_removing_what_is_not_there_is_fine() -> None:
    assert CliRunner().invoke(app, ["down", "--name", "never-made"]).exit_code == 0


def test_the_image_store_that_stays_is_named_with_its_size_and_its_removal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    images = settings.LocalSettings.from_environment().layout("kept").images
    (images / "blobs").mkdir(parents=True)
    with (images / "blobs" / "layer").open("wb") as file:
        file.truncate(2_200_000_000)

    kept = CliRunner().invoke(app, ["down", "--name", "kept"])
    assert kept.exit_code == 0
    assert f"kept 2.2 GB of images for the next start in {images}" in kept.stderr
    assert "raybus cluster down --name kept --purge" in kept.stderr

    removed = CliRunner().invoke(app, ["down", "--name", "kept", "--purge"])
    assert removed.exit_code == 0
    assert "of images" not in removed.stderr
    assert not images.exists()
