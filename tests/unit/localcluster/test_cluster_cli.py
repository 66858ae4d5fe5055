"""The command line: bad input ends in one line with the remedy, and the right exit code."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from localcluster import settings
from localcluster.cli import app

_EXISTING_UNNAMED = ["up", "--kubeconfig", "config"]


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        pytest.param(
            _EXISTING_UNNAMED, 2, "needs --driver kubeconfig", id="existing cluster, not named"
        ),
        pytest.param(
            ["up", "--driver", "kubeconfig"], 2, "needs --kubeconfig FILE", id="named, no file"
        ),
        pytest.param(["up", "--driver", "other"], 2, "not one of", id="unknown driver"),
        pytest.param(["up", "--name", "A B"], 2, "cluster name 'A B'", id="bad name"),
        pytest.param(["up", "--crds", "/none"], 2, "the folder does not exist", id="no CRDs"),
        pytest.param(
            ["up", "--driver", "kind"], 1, "start Docker, or use --driver built", id="no Docker"
        ),
        pytest.param(["status"], 1, "start it with 'raybus cluster up'", id="no cluster"),
        pytest.param(
            ["kubeconfig"], 1, "start it with 'raybus cluster up'", id="no cluster, no kubeconfig"
        ),
        pytest.param(["exec"], 2, "name a program to run", id="nothing to run"),
    ],
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
    images = settings.Settings.from_environment().layout("kept").images
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
