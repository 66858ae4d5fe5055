"""The gateway of a demo is added by a command that runs at the same time: its progress is shown,
its failure raised, and it never outlives the demo.
"""

import sys

import pytest
from typer.testing import CliRunner

from common import errors
from localcluster.demo import cli, demo_cluster
from localcluster.demo.demo_cluster import GatewayTiming, LateGateway
from raybus_cli import main
from support.tables import cases
from support.waiting import eventually
from unit.cli.test_help import parse


async def _until(late: LateGateway, *, shown: str) -> None:
    await eventually(lambda: shown in late.activity, within=20, what=shown)


async def _ended(late: LateGateway) -> None:
    await eventually(lambda: late.has_ended, within=20, what="the end of the command")


async def test_the_last_line_of_progress_is_shown_without_its_mark() -> None:
    script = "printf '  … building a\\n  ✓ building a: done in 1.0 s\\n  … building b: 4 s\\n' >&2; exec sleep 60"
    async with demo_cluster.add_gateway(["sh", "-c", script]) as late:
        await _until(late, shown="building b")
        assert late.activity == "building b: 4 s"
        assert not late.has_ended


async def test_a_failure_is_raised_with_its_last_line() -> None:
    async with demo_cluster.add_gateway(
        ["sh", "-c", "echo 'error: no space left' >&2; exit 1"]
    ) as late:
        await _ended(late)
        with pytest.raises(errors.Rejected, match="no space left"):
            late.expect_success()


async def test_success_raises_nothing() -> None:
    async with demo_cluster.add_gateway(["true"]) as late:
        await _ended(late)
        late.expect_success()


async def test_a_command_that_still_runs_is_interrupted_and_can_clean_up() -> None:
    script = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGINT, lambda *_: (print('cleaned up', flush=True), sys.exit(3)))\n"
        "print('runs', flush=True)\ntime.sleep(60)\n"
    )
    async with demo_cluster.add_gateway([sys.executable, "-c", script]) as late:
        await _until(late, shown="runs")
        await late.end()
        assert late.activity == "cleaned up"
        assert late.has_ended


async def test_a_command_that_ignores_the_interrupt_is_killed() -> None:
    async with demo_cluster.add_gateway(
        ["sh", "-c", "trap '' INT; echo runs; sleep 5 & wait"]
    ) as late:
        await _until(late, shown="runs")
        await late.end(within=0.2)
        assert late.has_ended


def test_the_command_is_one_that_a_user_can_type() -> None:
    _, _, _, *arguments = demo_cluster.build_gateway_command("built", "demo")
    parse(arguments)


@cases(
    ("in_steps", "is_kept", "wanted", "expected"),
    {
        "a cluster that is removed at the end needs none": (False, False, True, GatewayTiming.NONE),
        "one that is kept has it for the user": (False, True, True, GatewayTiming.LATER),
        "unless it is left out": (False, True, False, GatewayTiming.NONE),
        "an upgrade in steps": (True, False, True, GatewayTiming.LATER),
    },
)
def test_the_cluster_gets_its_gateway(
    in_steps: bool, is_kept: bool, wanted: bool, expected: GatewayTiming
) -> None:
    assert (
        demo_cluster.decide_gateway(in_steps=in_steps, is_kept=is_kept, wanted=wanted) is expected
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--keep"], GatewayTiming.LATER),
        ([], GatewayTiming.NONE),
        (["--keep", "--no-gateway"], GatewayTiming.NONE),
        (["--keep", "--driver", "kubeconfig", "--kubeconfig", "x"], GatewayTiming.NONE),
        (["--strategy", "incremental"], GatewayTiming.LATER),
    ],
)
def test_the_options_select_the_gateway(
    options: list[str], expected: GatewayTiming, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[GatewayTiming] = []

    def run(*_: object, gateway: GatewayTiming, **__: object) -> None:
        found.append(gateway)
        raise errors.Rejected("it ends here")

    monkeypatch.setattr(cli, "_run", run)
    assert CliRunner().invoke(main.build("demo"), ["demo", *options]).exit_code == 1
    assert found == [expected]


def test_an_upgrade_in_steps_without_a_gateway_is_a_misuse() -> None:
    done = CliRunner().invoke(
        main.build("demo"), ["demo", "--strategy", "incremental", "--no-gateway"]
    )
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --no-gateway excludes --strategy incremental")


class _Scenario:
    """A demo with a gateway that cannot be added."""

    async def wait_for_gateway(self, _late: object) -> None:
        raise errors.Rejected("adding Envoy Gateway to the cluster failed: no space left")


async def test_a_gateway_that_cannot_be_added_after_the_upgrade_is_a_note(
    capsys: pytest.CaptureFixture[str],
) -> None:
    await cli._wait_for_gateway(_Scenario(), None)  # pyright: ignore[reportArgumentType, reportPrivateUsage]  (all that it asks for)
    assert "no space left; 'raybus cluster up --gateway' adds one" in capsys.readouterr().err
