"""What `raybus history` accepts."""

import pytest
from typer.testing import CliRunner

from raybus_cli import main, session
from raybus_cli.kubeconfig import KubeAccess


@pytest.mark.parametrize("target", ["raycronjob/nightly", "raycluster/demo", "rayjob/"])
def test_a_kind_without_a_history_is_refused(target: str) -> None:
    result = CliRunner().invoke(main.build("history"), ["history", target])
    assert result.exit_code == 2
    assert "is neither a name nor rayservice/NAME nor rayjob/NAME" in " ".join(
        result.output.replace("│", " ").split()
    )


def test_a_wrong_address_of_nats_is_an_error_of_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def select_place(*_: object) -> KubeAccess:
        return KubeAccess(kubeconfig=None, namespace="default")

    monkeypatch.setattr(session, "select_access", select_place)
    arguments = ["history", "rayjob/train", "--nats", "ftp://nats.example.com"]
    result = CliRunner().invoke(main.build("history"), arguments)
    assert result.exit_code == 2
    assert "error: " in result.output
    assert "Traceback" not in result.output
