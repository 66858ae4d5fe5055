"""Where manifests come from: files, directories, a kustomization built by the user's own program."""

import os
from pathlib import Path

import pytest

from common import errors
from raybus_cli import manifests


def _manifest(name: str) -> str:
    return f"kind: RayService\nmetadata: {{name: {name}}}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "below").mkdir()
    files = {"b.yaml": "b", "a.yml": "a", "c.json": "c", "notes.txt": "no", "below/d.yaml": "d"}
    for file, name in files.items():
        (tmp_path / file).write_text(_manifest(name))
    return tmp_path


@pytest.mark.parametrize(
    ("recursive", "names"), [(False, ["a", "b", "c"]), (True, ["a", "b", "d", "c"])]
)
def test_a_directory_stands_for_its_manifests_in_the_order_of_their_paths(
    tree: Path, recursive: bool, names: list[str]
) -> None:
    found = manifests.read_all([str(tree)], None, recursive=recursive)
    assert [each.name for each in found] == names
    assert found[0].file == str(tree / "a.yml")


def test_a_directory_without_manifests_names_the_remedy(tree: Path) -> None:
    (tree / "only" / "below").mkdir(parents=True)
    with pytest.raises(errors.InvalidSpec, match=r"only has no file that ends in .* add -R"):
        manifests.read_all([str(tree / "only")], None)


@pytest.mark.parametrize(
    ("files", "kustomize", "text"),
    [
        pytest.param(None, None, "no manifest is given", id="nothing"),
        pytest.param(["a.yaml"], Path(), "-f and -k exclude each other", id="both"),
    ],
)
def test_exactly_one_source_is_needed(
    files: list[str] | None, kustomize: Path | None, text: str
) -> None:
    with pytest.raises(errors.InvalidSpec, match=text):
        manifests.read_all(files, kustomize)


def _install(folder: Path, program: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / program).write_text(f"#!/bin/sh\n{script}\n")
    (folder / program).chmod(0o755)


@pytest.mark.parametrize(
    ("program", "argument"),
    [pytest.param("kustomize", "build", id="kustomize"), ("kubectl", "kustomize")],
)
def test_a_kustomization_is_built_by_the_users_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, argument: str
) -> None:
    _install(
        tmp_path / "bin",
        program,
        f'[ "$1" = {argument} ] && echo "kind: RayService" && echo "metadata: {{name: $2}}"',
    )
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}")
    [found] = manifests.read_all(None, Path("overlay"))
    assert (found.name, found.file) == ("overlay", "overlay")


def test_a_kustomization_that_cannot_be_built_gives_the_programs_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path / "bin", "kustomize", "echo 'no kustomization.yaml in overlay' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}/bin")
    with pytest.raises(
        errors.InvalidSpec, match=r"kustomize build overlay: no kustomization\.yaml"
    ):
        manifests.read_all(None, Path("overlay"))


def test_without_a_program_the_remedy_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(errors.InvalidSpec, match="install one, or pipe its output into -f -"):
        manifests.read_all(None, Path("overlay"))
