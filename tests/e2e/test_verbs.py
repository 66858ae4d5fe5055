"""A day with `raybus`: each verb at the moment when a user needs it, on a real cluster, with real Ray behind a real gateway.

The output in the terminal is compared with the API server. The terminal is recorded: `pytest --update-golden` makes docs/session.md of
it, and without that the commands of that page have to be those that were typed here.
"""

import re
import stat
import tarfile
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
import pytest_asyncio
import yaml

from common.api.gateway import HttpRoute
from common.api.opaque import Body, Json
from common.kube.resources import CONTROLLER_REVISION, HTTP_ROUTE, RAY_SERVICE
from localcluster.demo.cluster_state import NAMESPACE, SERVICE, DemoState
from localcluster.driver import ClusterRecord
from support.waiting import eventually_true

from .conftest import Rig
from .greeter import ROUTE, Greeter, Options
from .session import COLUMNS, Done, Session

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.ondemand]

PAGE: Final = Path(__file__).parents[2] / "docs" / "session.md"
OPTIONS: Final = Options(interval=30, replicas=1)
"""Slow enough to act between two steps; with one replica no step waits for Serve."""
HEAD: Final = f"""# An upgrade at the terminal

This page shows a whole upgrade at the terminal: inspect, plan, apply, abort, pause, resume, promote, and undo after the deletion of the old
cluster. `tests/e2e/test_verbs.py` recorded it on a real cluster and compares the output with the API server's state. The terminal has
{COLUMNS} columns. Suffixes of names are random; times are shifted. [Command line](cli.md) lists all verbs and options.
"""
INTERRUPTED: Final = 130
ENDS: Final = ["upgrade started", "promoted", "completed"]
"""The first and the last events of an upgrade."""
FORMATS: Final = ("json", "yaml", "name", "wide")


class Shell(msgspec.Struct, frozen=True, kw_only=True):
    """A terminal, and the RayService of its commands."""

    terminal: Session
    greeter: Greeter
    rig: Rig
    is_update: bool
    """Whether the page is made anew."""

    async def service(self) -> Body:
        """Read the RayService from the API server."""
        return msgspec.json.decode(await self.rig.kube.get(RAY_SERVICE, NAMESPACE, SERVICE))

    async def shares(self) -> list[int]:
        """Read the weights of the route, in the order of clusters: the active one first."""
        route = msgspec.json.decode(
            await self.rig.kube.get(HTTP_ROUTE, NAMESPACE, ROUTE), type=HttpRoute
        )
        state = await self.greeter.state()
        held = {
            each.target.place[1]: each.weight
            for rule in route.spec.rules
            for each in route.backends(rule)
        }
        return [held.get(f"{name}-serve-svc", 0) for name in (state.active, state.pending) if name]

    async def tree(self) -> Any:
        """Return the output of `raybus get -o json`."""
        return await self.terminal.read(f"raybus get rayservice {SERVICE} -o json")


def _write_manifest(shell: Shell, version: int) -> None:
    body = shell.greeter.manifest(version)
    (shell.terminal.folder / f"{SERVICE}-v{version}.yaml").write_text(
        yaml.safe_dump(body, sort_keys=False)
    )


def _at_home(kubeconfig: Path, to: Path, *, token: str = "") -> Path:
    """Write a kubeconfig with a context that names the namespace of the service."""
    document = yaml.safe_load(kubeconfig.read_text())
    for each in document["contexts"]:
        each["context"]["namespace"] = NAMESPACE
    if token:
        document["users"][0]["user"] = {"token": token}
    to.write_text(yaml.safe_dump(document))
    to.chmod(stat.S_IRUSR | stat.S_IWUSR)
    return to


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def shell(
    rig: Rig,
    known: ClusterRecord,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> AsyncGenerator[Shell]:
    """Start version 1, sit down at the terminal, and keep what was recorded if all went well."""
    rig.need_gateway()
    folder = tmp_path_factory.mktemp("user")
    kubeconfig = _at_home(known.kubeconfig, folder / "kubeconfig")
    terminal = Session(folder, kubeconfig, known.binaries["kubectl"].parent)
    is_update = bool(request.config.getoption("--update-golden"))
    shell = Shell(terminal=terminal, greeter=Greeter(rig, OPTIONS), rig=rig, is_update=is_update)
    failed = request.session.testsfailed
    await shell.greeter.start()
    for version in (1, 2):
        _write_manifest(shell, version)
    yield shell
    await shell.greeter.stop()
    is_whole = is_update and request.session.testsfailed == failed
    terminal.write(PAGE if is_whole else Path("build/session.md"), HEAD)


async def test_at_rest(shell: Shell) -> None:
    at = shell.terminal
    at.paragraph("## A service without an upgrade")
    assert (await at.type("raybus version")).shown.startswith("raybus ")
    found = await at.type("raybus doctor")
    assert "×" not in found.shown
    listed = await at.type("raybus list")
    status = (await shell.service())["status"]
    active = status["activeServiceStatus"]["rayClusterName"]
    assert [line.split()[:4] for line in listed.lines[1:2]] == [
        [SERVICE, "Ready", str(status["numServeEndpoints"]), "100"]
    ]
    assert active in listed.shown
    shown = await at.type(f"raybus get rayservice {SERVICE}")
    assert f"{active}  active  " in shown.shown
    done = await at.type(f"raybus status {SERVICE} --timeout 2m")
    assert f"RayCluster {active} serves" in done.shown
    assert (
        "No blocking issues." in (await at.type(f"raybus explain {SERVICE}", is_shown=False)).shown
    )
    rows = [line.split() for line in (await at.type(f"raybus history {SERVICE}")).lines[1:]]
    assert [row[:4] for row in rows] == [["1", active, "active", "yes"]]


@pytest.mark.parametrize("verb", ["list", f"get rayservice {SERVICE}", f"history {SERVICE}"])
async def test_every_format_contains_the_same(shell: Shell, verb: str) -> None:
    texts = {output: await shell.terminal.pipe(f"raybus {verb} -o {output}") for output in FORMATS}
    data = yaml.safe_load(texts["json"])
    printed = yaml.safe_load(texts["yaml"])
    ages = re.compile(r"\d+")
    assert ages.sub("N", str(data)) == ages.sub("N", str(printed))
    active = (await shell.greeter.state()).active
    assert active in texts["wide"]
    assert active in str(data)
    assert texts["name"].splitlines()[0] in {"1", f"rayservice.ray.io/{SERVICE}"}


async def test_what_needs_no_upgrade(shell: Shell) -> None:
    at = shell.terminal
    linted = await at.type(f"raybus lint -f {SERVICE}-v2.yaml")
    assert "0 error(s)" in linted.shown
    assert (await at.pipe("kubectl raybus list -o name")).splitlines()[
        0
    ] == f"rayservice.ray.io/{SERVICE}"
    assert len((await at.type(f"raybus logs {SERVICE} --tail 2")).lines) == 2
    of_replicas = await at.pipe(f"raybus logs {SERVICE} --app {SERVICE} --tail 2 -o json")
    assert f'"container":"replica_{SERVICE}_' in of_replicas
    for change in (
        "restart {} --dry-run",
        "set image {} head=docker.io/rayproject/ray:2.60.1 --dry-run",
    ):
        planned = await at.type(f"raybus {change.format(SERVICE)}")
        assert planned.lines[0] == f"RayService {NAMESPACE}/{SERVICE}: new cluster"
        assert planned.lines[-1].endswith("(dry run: nothing is changed)")
    script = await at.pipe("raybus completion bash")
    typed = "COMP_WORDS=(raybus get rayservice gr) COMP_CWORD=3; _raybus_completion raybus; echo ${COMPREPLY[@]}"
    (at.folder / "complete.sh").write_text(f"{script}\n{typed}\n")

    async def is_completed() -> (
        bool
    ):  # where the API server takes too long there is nothing to complete with
        shells = (await at.pipe("bash complete.sh")).strip()
        return (
            shells == SERVICE
            and SERVICE in (await at.pipe("kubectl_complete-raybus status ''")).splitlines()
        )

    await eventually_true(is_completed, what="the name completed")
    refused = await at.type(f"raybus promote {SERVICE}", code=1, is_shown=False)
    assert refused.lines == [
        f"error: RayService {SERVICE} has no upgrade to promote; see 'raybus get rayservice {SERVICE}'"
    ]


async def test_plan_and_apply(shell: Shell) -> None:
    at = shell.terminal
    at.paragraph("## Plan, then apply")
    before = await shell.service()
    planned = await at.type(f"raybus plan -f {SERVICE}-v2.yaml")
    assert planned.lines[0] == f"RayService {NAMESPACE}/{SERVICE}: new cluster"
    data = await at.read(f"raybus plan -f {SERVICE}-v2.yaml -o json")
    assert [each["strategy"] for each in data["ways"] if each["isChosen"]] == [
        "NewClusterWithIncrementalUpgrade"
    ]
    assert (await shell.service())["metadata"]["generation"] == before["metadata"]["generation"]
    await at.type(f"kubectl apply -f {SERVICE}-v2.yaml")
    await shell.greeter.wait("a pending cluster with pods", _has_pods)
    why = await at.type(f"raybus explain {SERVICE}")
    assert why.lines[0] == f"RayService {NAMESPACE}/{SERVICE} is Upgrading"
    waiting = await at.type(f"raybus status {SERVICE} --timeout 3s", code=3)
    assert "not within 3 s" in waiting.shown


def _has_pods(state: DemoState) -> bool:
    return bool(state.pending) and any(
        pod.metadata.labels.get("ray.io/cluster") == state.pending for pod in state.pods
    )


async def test_take_back_and_try_again(shell: Shell) -> None:
    at = shell.terminal
    at.paragraph(
        "## Abort and retry\n\nAn abort moves the traffic back, and only the old cluster serves. A retry tries the same spec again."
    )
    await at.type(f"raybus abort {SERVICE}")
    await _until_phase(shell, "Aborted")
    failed = await at.type(f"raybus status {SERVICE}", code=1)
    assert f"RayService {NAMESPACE}/{SERVICE} Aborted" in failed.shown
    assert (await shell.greeter.state()).pending == ""
    await at.type(f"raybus retry {SERVICE}")
    await _until_phase(shell, "Upgrading")


async def _until_phase(shell: Shell, phase: str) -> None:
    async def is_so() -> bool:
        return (await shell.tree())["phase"] == phase

    await eventually_true(is_so, within=60, what=phase)


async def test_hold_let_go_and_hasten(shell: Shell) -> None:
    at = shell.terminal
    at.paragraph("## Pause, resume, promote\n\nThe new cluster has 25 percent of the traffic:")
    watch = f"raybus get rayservice {SERVICE} -w"
    old = (await shell.greeter.state()).active
    async with at.following(watch) as live, at.kept(watch, "Meanwhile, in another window:"):
        await shell.greeter.wait_for_share(25)
        await at.type(f"raybus pause {SERVICE}")
        await _until_phase(shell, "Paused")
        await _expect_the_state_of_the_api_server(
            shell, await at.type(f"raybus get rayservice {SERVICE}")
        )
        await at.type(f"raybus resume {SERVICE}")
        await shell.greeter.wait_for_share(50)
        await at.type(f"raybus promote {SERVICE}")
        done = await at.type(f"raybus status {SERVICE} --timeout 3m")
        code = await live.interrupt()
    picture, new = live.raw.decode(), (await shell.greeter.state()).active
    assert code == INTERRUPTED, picture[-2000:]
    assert ("█" in picture, "\x1b[?25h" in picture) == (True, True)
    assert new != old
    assert f"RayCluster {new} serves" in done.shown


async def _expect_the_state_of_the_api_server(shell: Shell, shown: Done) -> None:
    """Compare a picture with the weights on the route, and with capacities and step by the status."""
    found, shares = await shell.tree(), await shell.shares()
    assert [each["weight"] for each in found["clusters"]] == shares
    assert [int(each) for each in re.findall(r"[█░]{20} +(\d+) %", shown.shown)] == shares
    status = (await shell.service())["status"]
    sides = (status["activeServiceStatus"], status["pendingServiceStatus"])
    assert [each["targetCapacity"] for each in found["clusters"]] == [
        each["targetCapacity"] for each in sides
    ]
    assert (found["upgrade"]["step"], found["upgrade"]["steps"]) == (
        shares[1] // OPTIONS.step,
        100 // OPTIONS.step,
    )
    assert max(len(line) for line in shown.lines) <= COLUMNS


async def test_what_it_came_to(shell: Shell) -> None:
    at = shell.terminal
    at.paragraph("## Results")
    await shell.greeter.wait(
        "the old cluster going", lambda state: state.clusters == (state.active,)
    )
    receipt = await _receipt(shell, (await shell.greeter.state()).active)
    printed = await at.type(f"raybus events {SERVICE} --since 10m")
    kinds = [
        line.split("  ")[2].split(":")[0].split(" (")[0]
        for line in printed.lines
        if SERVICE in line
    ]
    assert [kind for kind in kinds if kind in ENDS][-len(ENDS) :] == ENDS
    shown = await at.type(f"raybus history {SERVICE}")
    assert [line.split()[:3] for line in shown.lines[1:3]] == [
        ["1", "-", "gone"],
        ["2", receipt["to"], "active"],
    ]
    assert f"Upgrade from {receipt['from']} to {receipt['to']}: Promoted" in shown.shown


async def _receipt(shell: Shell, cluster: str) -> Json:
    """Wait for the receipt of the upgrade to a cluster."""
    held: Json = {}

    async def is_written() -> bool:
        nonlocal held
        text = (await shell.service())["metadata"]["annotations"].get(
            "raybus.io/upgrade-receipt", "{}"
        )
        held = msgspec.json.decode(text)
        return held.get("to") == cluster

    await eventually_true(is_written, within=90, what="a receipt")
    return held


async def test_go_back_although_the_old_cluster_is_gone(shell: Shell) -> None:
    at = shell.terminal
    at.paragraph("## Undo after the deletion of the old cluster")
    before = await shell.service()
    tried = await at.type(f"raybus undo {SERVICE} --dry-run")
    assert tried.lines[0] == f"RayService {NAMESPACE}/{SERVICE}: new cluster"
    assert (await shell.service())["metadata"]["generation"] == before["metadata"]["generation"]
    await at.type(f"raybus undo {SERVICE}")
    await shell.greeter.wait("a pending cluster", lambda state: bool(state.pending))
    asked = (await shell.service())["spec"]
    config = shell.greeter.manifest(1)["spec"]
    assert asked["serveConfigV2"] == config["serveConfigV2"]
    assert _environment(asked) == _environment(config)
    await at.type(f"raybus promote {SERVICE}")
    await at.type(f"raybus status {SERVICE} --timeout 5m")
    shown = await at.type(f"raybus history {SERVICE}")
    assert [line.split()[0] for line in shown.lines[1:3]] == ["2", "3"]
    held = msgspec.json.decode(await shell.rig.kube.list(CONTROLLER_REVISION, NAMESPACE))["items"]
    assert sorted(each["revision"] for each in held if "spec" in each["data"]) == [2, 3]


def _environment(spec: Json) -> list[Json]:
    return spec["rayClusterConfig"]["headGroupSpec"]["template"]["spec"]["containers"][0]["env"]


async def test_when_something_is_wrong(shell: Shell, known: ClusterRecord) -> None:
    at = shell.terminal
    at.paragraph("## Errors")
    await at.type("raybus get rayservice nobody", code=1)
    await at.type("raybus list --context mars", code=1)
    token = await at.pipe(
        "kubectl create serviceaccount guest >/dev/null; kubectl create token guest"
    )
    _at_home(known.kubeconfig, at.folder / "guest", token=token.strip())
    refused = await at.type("raybus list --kubeconfig guest", code=1)
    assert "cannot list resource" in refused.shown
    assert (await at.type("raybus doctor --kubeconfig guest", code=1, is_shown=False)).shown.count(
        "\n? "
    ) > 3
    await at.type(f"raybus bundle {SERVICE}")
    with tarfile.open(at.folder / f"raybus-bundle-{SERVICE}.tar.gz") as tar:
        names = {Path(name).name for name in tar.getnames()}
        hidden = (
            tar.extractfile(f"raybus-bundle-{SERVICE}/unseen.txt")
            if "unseen.txt" in names
            else None
        )
        lines = hidden.read().decode().splitlines() if hidden is not None else []
    assert [each for each in lines if not each.startswith("log of ")] == []
    assert {"rayservice.yaml", "controllerrevisions.yaml", "httproute.yaml", "doctor.yaml"} <= names


async def test_the_page_shows_these_commands(shell: Shell) -> None:
    recorded = (
        "docs/session.md is not recorded: `pytest --update-golden tests/e2e/test_verbs.py` does it"
    )
    assert shell.is_update or PAGE.exists(), recorded
    typed = re.findall(
        r"^\$ (.*)$",
        shell.terminal.page if shell.is_update else PAGE.read_text(),
        flags=re.MULTILINE,
    )
    assert [each for each in typed if each != "echo $?"] == shell.terminal.commands
