"""A demo ends with the commands that a user runs next, and this program accepts them."""

import shlex
from pathlib import Path

import pytest

from localcluster.demo.cli import format_next_steps
from support.manifests import ROOT
from unit.cli.test_help import parse


@pytest.mark.parametrize(
    ("name", "kubeconfig", "first"),
    [
        (None, None, "export KUBECONFIG=$(raybus cluster kubeconfig)"),
        ("my demo", None, "export KUBECONFIG=$(raybus cluster kubeconfig --name 'my demo')"),
        (None, Path("/a b/config"), "export KUBECONFIG='/a b/config'"),
    ],
)
def test_the_next_commands_are_those_of_the_cluster(
    name: str | None, kubeconfig: Path | None, first: str
) -> None:
    commands = [
        line.strip()
        for line in format_next_steps(name, kubeconfig, is_kept=True).splitlines()
        if line[:2] == "  "
    ]
    assert commands[:4] == [
        first,
        "raybus list -A",
        "raybus get rayservice greeter -n raybus-demo -w",
        "raybus dashboard -n raybus-demo",
    ]
    for command in commands[1:]:
        parse(shlex.split(command)[1:])
    assert any("cluster down" in each for each in commands) is (kubeconfig is None)


def test_a_cluster_with_a_gateway_is_upgraded_in_steps_next() -> None:
    shown = format_next_steps("a", None, is_kept=True, has_gateway=True)
    assert "  raybus cluster kubectl --name a -- apply -k deploy/demo/incremental-v1\n" in shown
    assert (ROOT / "deploy" / "demo" / "incremental-v1" / "kustomization.yaml").exists()
    assert "incremental" not in format_next_steps("a", None, is_kept=True, has_gateway=False)


def test_a_removed_cluster_is_not_offered() -> None:
    shown = format_next_steps(None, None, is_kept=False)
    assert "--keep" in shown
    assert "KUBECONFIG" not in shown
