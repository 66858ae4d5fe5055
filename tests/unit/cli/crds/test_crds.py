"""`raybus crds` prints the CRDs without a checkout and without a cluster."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from raybus_cli import main
from raybus_cli.crds import cli
from support.manifests import DEPLOY

FILES = DEPLOY / "crds"


def run(*arguments: str) -> str:
    done = CliRunner().invoke(main.build("crds"), ["crds", *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


@pytest.mark.parametrize(
    "file", [path for path in FILES.glob("*.yaml") if path.stem != "kustomization"], ids=str
)
def test_a_crd_is_printed_as_its_file(file: Path) -> None:
    group, _, plural = file.stem.rpartition("_")
    assert run("print", f"{plural}.{group}") == file.read_text()


def test_several_are_documents_of_one_stream() -> None:
    names = ("upgradepolicies.raybus.io", "rayjobs.ray.io")
    assert run("print", *names) == "---\n".join(run("print", name) for name in names)


def test_an_unknown_name_is_refused_with_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.print_crds(["rayclusters"])
    assert ended.value.code == 2
    assert "there is no CRD rayclusters; name rayclusters.ray.io, " in capsys.readouterr().err


def test_names_are_completed() -> None:
    assert cli.complete_names("rayj") == ["rayjobs.ray.io"]
