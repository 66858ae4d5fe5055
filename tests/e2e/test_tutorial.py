"""The README and the five parts of the tutorial as a new user follows them.

Every command is run in order, in one shell, in the checkout, except the commands that each run
of the CI runs elsewhere (`support.docs.proven`). The cluster is that of all end-to-end tests. The
output of each command is written to `build/tutorial.txt`, from which the tutorial quotes it.
"""

import asyncio
import os
import re
import shlex
import signal
import subprocess
from typing import Final

import msgspec
import pytest

from localcluster.demo.cluster_state import SERVICE, observe
from localcluster.driver import ClusterRecord
from support.docs import proven
from support.docs.commands import Command
from support.manifests import ROOT

from .conftest import Rig

pytestmark = pytest.mark.asyncio(loop_scope="session")

LIMIT: Final = 2100
"""Seconds for all of it."""
SHOWN: Final = ROOT / "build" / "tutorial.txt"
MARK: Final = "\x1e"


class Shown(msgspec.Struct, frozen=True, kw_only=True):
    """A command and what it printed."""

    command: str
    text: str


async def test_every_command_of_the_readme_and_the_tutorial_works(
    rig: Rig, known: ClusterRecord
) -> None:
    rig.need_gateway()
    commands = proven.typed()
    await _forget_jobs(rig)
    try:
        code, shown = await asyncio.to_thread(_type, commands, known)
        SHOWN.parent.mkdir(exist_ok=True)
        SHOWN.write_text("".join(f"$ {each.command}\n{each.text}\n" for each in shown))
    finally:
        await _forget_jobs(rig)
        await (
            rig.scenario().install()
        )  # as the other tests have it: the demo installs the overlay of its user
    assert code == 0, f"$ {shown[-1].command}\n{shown[-1].text}"
    assert [each.command for each in shown] == [each.text for each in commands]
    assert "RayService raybus-demo/greeter: new cluster" in _of(shown, "raybus plan")[0]
    at_first, held, failing, gated = _of(shown, "raybus get rayservice")
    assert re.search(r"pending .* 25 %", held)
    assert _active(at_first) == _active(held)
    assert re.search(rf"^{_active(failing)} +active .* 100 %", failing, re.MULTILINE)
    assert _active(held) != _active(failing) == _active(gated) != (await observe(rig.kube)).active
    _expect_the_messages_of_a_failed_upgrade(shown, serving=_active(failing))
    _expect_the_verdicts_of_gates(
        shown, serving=_active(gated), promoted=(await observe(rig.kube)).active
    )
    _expect_the_ends_of_jobs(shown)


def _expect_the_messages_of_a_failed_upgrade(shown: list[Shown], *, serving: str) -> None:
    completed, stalled, restored, *_ = _of(shown, "raybus status greeter")
    why, aborted, *_ = (" ".join(each.split()) for each in _of(shown, "raybus explain"))
    undone, tried = (" ".join(each.split()) for each in _of(shown, "raybus undo"))
    assert f"RayCluster {serving} serves" in completed
    assert ("greeter Stalled: " in stalled, "exit code 1" in stalled) == (True, True), stalled
    assert 'cannot pull image "raybus.invalid/ray:none"' in why
    assert "check the image's name and tag, imagePullSecrets" in why
    assert f"the service stays on RayCluster {serving}" in aborted
    assert "spec.rayClusterConfig is restored from revision" in undone
    assert f"RayCluster {serving} serves" in restored
    assert "dry run: nothing is changed" in tried


def _expect_the_verdicts_of_gates(shown: list[Shown], *, serving: str, promoted: str) -> None:
    *_, aborted, completed = _of(shown, "raybus status greeter")
    *_, why = (" ".join(each.split()) for each in _of(shown, "raybus explain"))
    *_, failed, counted = map(int, _of(shown, "grep -vc")[0].split())
    assert f"the service stays on RayCluster {serving}" in why
    assert re.search(r"errorRate: \d+ of \d+ requests failed", why)
    assert "exit code 1" in aborted
    assert 0 < failed < counted / 10
    assert f"RayCluster {promoted} serves" in completed
    assert "Gates at 10 %" in _of(shown, "raybus get rayservice")[-1]
    receipt = _of(shown, "raybus history")[-1]
    assert re.search(r"^Upgrade from .*: Promoted after", receipt, re.MULTILINE)
    assert re.search(r"^  10 % since .*: Pass: errorRate: ", receipt, re.MULTILINE)


def _expect_the_ends_of_jobs(shown: list[Shown]) -> None:
    submitted, created = _of(shown, "raybus submit")
    succeeded, failed = _of(shown, "raybus status rayjob/")
    assert "the sum is 285" in submitted
    assert "RayJob raybus-demo/sum Complete: SUCCEEDED" in submitted
    assert "fails created" in created
    assert ("Complete" in succeeded, "exit code" in succeeded) == (True, False), succeeded
    assert ("Failed" in failed, "exit code 1" in failed) == (True, True), failed
    assert _of(shown, "get rayjob fails") == ["2 attempts: AppFailed\n"]
    runs = _of(shown, "get rayjobs -l")[0].splitlines()[1:]
    assert runs
    assert all("every-minute-" in run and "SUCCEEDED" in run for run in runs), runs


async def _forget_jobs(rig: Rig) -> None:
    """Make room for another overlay's Jobs: a Job cannot be changed, and that of the end-to-end tests has a gate of its own in its configuration."""
    await rig.kubectl.run("delete", "job", "-n", "raybus", "--all")


def _of(shown: list[Shown], command: str) -> list[str]:
    return [each.text for each in shown if command in each.command]


def _active(tree: str) -> str:
    found = re.search(rf"^({SERVICE}-\w+) +active ", tree, re.MULTILINE)
    assert found is not None, tree
    return found[1]


def _type(commands: list[Command], known: ClusterRecord) -> tuple[int, list[Shown]]:
    """Type commands into one shell that ends at the first failure; return its exit code, and what each showed."""
    script = "".join(
        f"printf '{MARK}%s\\n' {shlex.quote(each.text)}\n{each.text}\n" for each in commands
    )
    settings = {
        "RAYBUS_CLUSTER": known.name,
        "KUBECONFIG": str(known.kubeconfig),
        "NO_COLOR": "1",
        "COLUMNS": "110",
        "RAYBUS_DEMO_RATE": "20",  # two cores carry all of Kubernetes, too; a slow machine answers 40 a second too late
        "TERM": "dumb",
    }
    path = f"{known.binaries['kubectl'].parent}:{os.environ['PATH']}"
    process = subprocess.Popen(
        ["bash", "-eo", "pipefail", "-c", script],
        cwd=ROOT,
        env={**os.environ, **settings, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGTERM)
        out, _ = process.communicate()
    parts = (part.partition("\n") for part in out.split(MARK)[1:])
    return process.returncode, [Shown(command=text, text=shown) for text, _, shown in parts]
