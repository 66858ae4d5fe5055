"""A release names each image by the installer's registry and its digest."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from localcluster.errors import MisuseError
from localcluster.images import release
from localcluster.images.cli import app
from support import manifests
from support.manifests import BASE, DEPLOY

DIGESTS = {name: f"sha256:{number}{'0' * 63}" for number, name in enumerate(release.IMAGES)}


def test_it_holds_every_image_that_an_installation_runs() -> None:
    used = {container["image"] for container in manifests.containers(manifests.read(BASE)).values()}

    assert used == {f"{release.NAMES}/{name}:dev" for name in release.IMAGES}


def test_it_holds_every_image_that_a_component_runs() -> None:
    components = [
        path
        for path in (DEPLOY / "components").iterdir()
        if "resources" in (path / "kustomization.yaml").read_text()
    ]
    used = {
        container["image"]
        for path in components
        for container in manifests.containers(manifests.read(path)).values()
    }

    assert used == {f"{release.NAMES}/{name}:dev" for name in release.OPTIONAL}


def test_the_chart_accepts_the_digest_of_every_image() -> None:
    schema = json.loads((DEPLOY / "helm/raybus/values.schema.json").read_text())
    digests = schema["properties"]["image"]["properties"]["digests"]

    assert set(digests["propertyNames"]["enum"]) == set(release.IMAGES)


def test_the_component_replaces_each_name_by_the_registrys_and_a_digest() -> None:
    component: dict[str, Any] = yaml.safe_load(
        release.format_kustomization("reg.test:5000/team", DIGESTS)
    )

    assert component["kind"] == "Component"
    assert component["images"][0] == {
        "name": "registry.invalid/raybus/watcher",
        "newName": "reg.test:5000/team/watcher",
        "digest": DIGESTS["watcher"],
    }
    assert len(component["images"]) == len(release.IMAGES)


@pytest.mark.parametrize("registry", ["reg.test", "localhost:5000", "ghcr.io/a/b-c_d.e"])
def test_a_registry_is_a_host_with_a_path(registry: str) -> None:
    release.check_registry(registry)


@pytest.mark.parametrize(
    "registry", ["", "https://reg.test/x", "reg.test/x/", "reg.test/x:1", "reg.test/X", "a b"]
)
def test_anything_else_is_refused(registry: str) -> None:
    with pytest.raises(MisuseError, match="write HOST"):
        release.check_registry(registry)


def test_the_command_refuses_it_as_misuse(tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app, ["release", "--registry", "https://reg.test", "--to", str(tmp_path / "release")]
    )

    assert (done.exit_code, (tmp_path / "release").exists()) == (2, False)
    assert "without a scheme" in done.stderr


def test_the_command_makes_no_release_of_uncommitted_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deploy/crds").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["release", "--registry", "reg.test"])

    assert done.exit_code == 1
    assert "git status" in done.stderr
