"""The input that `raybus up` refuses before it starts anything, and the messages."""

from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from common import errors
from raybus_cli import main
from raybus_cli.up.programs import (
    check_credentials,
    check_gates,
    check_level,
    check_nats,
    check_replicas,
)
from support.tables import cases

KUBECONFIG = """
apiVersion: v1
kind: Config
current-context: one
contexts: [{name: one, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


def test_gates_are_read_as_kuberay_reads_them() -> None:
    assert check_gates("RayClusterMTLS=true, AllBeta=false") == {
        "RayClusterMTLS": True,
        "AllBeta": False,
    }


def test_any_service_may_have_several_replicas() -> None:
    assert check_replicas("watcher=2, cluster-reconciler=64") == {
        "watcher": 2,
        "cluster-reconciler": 64,
    }


@cases(
    ("check", "text", "part"),
    {
        "unknown gate": (check_gates, "Nope=true", "unrecognized feature gate 'Nope'; known: "),
        "gate without a value": (check_gates, "AllBeta", "expected Name=true or Name=false"),
        "more replicas than partitions": (check_replicas, "watcher=65", "name at most 64 replicas"),
        "no number": (check_replicas, "watcher=x", "expected watcher=N with N of 1 or more"),
        "none": (check_replicas, "watcher=0", "expected watcher=N with N of 1 or more"),
        "no such service": (
            check_replicas,
            "nobody=1",
            "there is no service 'nobody'; name one of",
        ),
        "NATS by another protocol": (check_nats, "http://x", "expected nats://HOST:PORT"),
        "unknown level": (check_level, "loud", "expected one of DEBUG, INFO, WARNING, ERROR"),
    },
)
def test_what_makes_no_sense_is_refused_by_name(
    check: Callable[[str], object], text: str, part: str
) -> None:
    with pytest.raises(errors.InvalidSpec) as refusal:
        check(text)
    assert part in str(refusal.value)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        pytest.param(None, "cannot read kubeconfig", id="no such file"),
        pytest.param("{", "is not YAML; name another file", id="not YAML"),
        pytest.param("\x00\x01", "is not YAML; name another file", id="binary"),
        pytest.param("a: 1", "has no usable current-context; choose one", id="no context"),
    ],
)
def test_an_unusable_kubeconfig_ends_with_code_2_and_one_line(
    content: str | None, part: str, tmp_path: Path
) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_text(content)
    done = CliRunner().invoke(main.build("up"), ["up", "--kubeconfig", str(path)])
    assert done.exit_code == 2
    assert done.stdout == ""
    assert part in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_file_in_the_place_of_the_log_folder_is_refused(tmp_path: Path) -> None:
    kubeconfig, wrong = tmp_path / "kubeconfig", tmp_path / "file"
    kubeconfig.write_text(KUBECONFIG)
    wrong.touch()
    arguments = ["up", "--kubeconfig", str(kubeconfig), "--log-dir", str(wrong)]
    done = CliRunner().invoke(main.build("up"), arguments)
    assert done.exit_code == 2
    assert done.stderr.endswith("name a folder that you may write to\n")


def test_a_folder_without_credentials_is_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidSpec, match=r"there is no ca\.crt; make the folder with"):
        check_credentials(tmp_path)
