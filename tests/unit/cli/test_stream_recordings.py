"""The verbs that print line by line, and the local ones, as they are typed: in a pipe, at three widths, without colours, and as data."""

import json
import shlex
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import jsonschema
import msgspec
import pytest
from rich.console import Group
from typer import rich_utils
from typer.testing import CliRunner, Result

from common.api.core import Pod
from common.api.meta import ObjectMeta
from common.api.opaque import Body
from common.bus.nats import StoredMessage
from common.kube.resources import POD, RAY_CLUSTER, RAY_JOB, RAY_SERVICE, Resource
from common.upgrade import events as upgrade_events
from generators.docs import outputs
from localcluster import driver, processes
from localcluster.demo import cli as demo
from localcluster.demo import view
from localcluster.demo.cluster_state import DemoState, ObservedService, ObservedStatus, ServeStatus
from localcluster.demo.tally import DemoReceipt, LoadFigures, PhaseFigures, StepDuration, render
from localcluster.driver import ClusterRecord
from localcluster.processes import ProcessId
from raybus_cli import kubeconfig, main, session
from raybus_cli.events import run
from raybus_cli.events.show import EventOptions, EventPrinter
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.up import cli
from raybus_cli.up.cli import LocalServices
from support.builders import snapshots
from support.builders.example_upgrade import an_example_upgrade
from support.builders.snapshots import BLUE, NOW, a_cluster, a_config, a_pod
from support.fakes.kube import FakeKube
from support.golden import Golden
from support.terminal import text_of

EVENTS: Final = Path(__file__).parents[3] / "docs" / "events"
WIDTHS: Final = (60, 80, 160)
LOG: Final = (
    b"2026-01-31 10:00:00 INFO serve: \x1b[32mready\x1b[0m\nERROR in a task: \x1b[2Jout of memory\n"
)
COMMANDS: Final = {
    "logs": (
        *("logs demo", "logs demo --all --tail 2", "logs demo -o json", "logs nobody"),
        *("logs rayjob/train --head", "logs rayjob/nothing", "logs demo --group cpu"),
    ),
    "events": (
        "events demo",
        "events demo --limit 2 -o json",
        "events demo -o jsonn",
        "events demo --since yesterday",
    ),
    "submit": (
        "submit --name train --workers 2 -- python train.py",
        "submit --name train -o json -- python train.py",
        "submit --name train --no-wait -- python train.py",
        "submit --name broken -- python train.py",
        "submit --name train",
        "submit python train.py",
        "submit --name Train -- python train.py",
        "submit --gpus 1 -f job.yaml",
        "submit --name train --runtime-env none.yaml -- python train.py",
    ),
    "cluster": (
        "cluster status",
        "cluster kubeconfig",
        "cluster status -o json",
        "cluster status --name other",
        "cluster exec",
    ),
    "demo": ("demo --keep", "demo -o json", "demo -o jsonn"),
    "up": (
        "up --kubeconfig config",
        "up --kubeconfig none",
        "up --kubeconfig config --replicas watcher=x",
    ),
}
TYPED: Final = [command for each in COMMANDS.values() for command in each]
KUBECONFIG: Final = """{clusters: [{name: c, cluster: {server: 'https://127.0.0.1:6443'}}], users: [{name: u, user: {}}],
contexts: [{name: c, context: {cluster: c, user: u}}], current-context: c}"""


class _Content:
    """The bytes of a log, in the form in which aiohttp reads them."""

    async def iter_any(self) -> AsyncGenerator[bytes]:
        yield LOG


class Server(FakeKube):
    """An API server with one RayService, its cluster, and the logs of two pods."""

    def __init__(self) -> None:
        super().__init__(now=lambda: NOW)
        self.put(RAY_SERVICE, snapshots.a_ready_service())
        self.put(RAY_CLUSTER, a_cluster(BLUE, a_config()))
        for pod in (a_pod(BLUE, "head"), a_pod(BLUE, "gpu", 1)):
            pod["spec"]["nodeName"] = "node"
            self.put(POD, pod)

    async def create(self, resource: Resource, namespace: str | None, body: Body) -> bytes:
        """Create a RayJob that runs at once; the one named `broken` fails."""
        made = await super().create(resource, namespace, body)
        if resource == RAY_JOB:
            name = body["metadata"]["name"]
            self.set_status(resource, namespace or "", name, _ended(is_failed=name == "broken"))
            pod = a_pod(BLUE, "submitter")
            pod["metadata"] |= {"name": f"{name}-b7zkq", "labels": {"job-name": name}}
            pod["spec"] = {"containers": [{"name": "ray-job-submitter"}], "nodeName": "n"}
            state = {"name": "ray-job-submitter", "state": {"terminated": {"exitCode": 0}}}
            self.put(POD, {**pod, "status": {"containerStatuses": [state]}})
        return made

    async def request(self, *_: Any, **__: Any) -> bytes:
        """Answer that there is no dashboard and no object in another namespace."""
        return b'{"items": []}'

    @asynccontextmanager
    async def stream(
        self, _path: str, *, query: Mapping[str, str], **_more: Any
    ) -> AsyncGenerator[_Content]:
        """Answer with the log of a pod."""
        assert query["container"]
        yield _Content()

    async def close(self) -> None:
        """Do nothing, since there is no connection."""


def _ended(*, is_failed: bool) -> Body:
    failure = {
        "jobStatus": "FAILED",
        "jobDeploymentStatus": "Failed",
        "reason": "AppFailed",
        "message": "Job entrypoint command failed with exit code 1",
        "failed": 1,
    }
    success = {"jobStatus": "SUCCEEDED", "jobDeploymentStatus": "Complete", "succeeded": 1}
    return {
        **(failure if is_failed else success),
        "jobId": "train-x7k2p",
        "rayClusterName": "train-x7k2p",
        "startTime": "2026-01-31T10:00:00Z",
        "endTime": "2026-01-31T10:04:10Z",
    }


async def _connect(_place: KubeAccess) -> Server:
    return Server()


async def _through(
    _place: KubeAccess, _namespace: str, read: Callable[[Any], Awaitable[None]]
) -> None:
    await read(None)


async def _show(
    _way: Any, options: EventOptions, write: Callable[[str], None], _report: Any
) -> int:
    show = EventPrinter(options, write)
    for number, event in enumerate(an_example_upgrade(), start=1):
        wire = upgrade_events.encode(event)
        show.receive(StoredMessage(wire.subject, number, wire.headers, wire.payload))
    show.finish_stored()
    return show.count


def _receipt(*_: Any, **__: Any) -> DemoReceipt:
    phases = [
        PhaseFigures(phase="before", requests=373, failed=0, retried=0, p50_ms=6.0, p99_ms=31.0),
        PhaseFigures(phase="during", requests=1783, failed=1, retried=9, p50_ms=7.2, p99_ms=494.1),
        PhaseFigures(phase="after", requests=873, failed=0, retried=0, p50_ms=None, p99_ms=None),
    ]
    traffic = LoadFigures(
        requests=3029,
        failed=1,
        retried=9,
        by_answer={"version 1, status 200": 2033, "version 2, status 200": 995, "status 503": 1},
        phases=phases,
        failures=["12.3 s: status 503: no healthy upstream"],
    )
    steps = [
        StepDuration(name="version 1 gets ready", seconds=50.64),
        StepDuration(name="start the load", seconds=2.1),
    ]
    return DemoReceipt(
        ok=False,
        problem=None,
        service="greeter",
        old_cluster="greeter-kfxkr",
        new_cluster="greeter-rxhr2",
        traffic=traffic,
        steps=steps,
        first_answer_seconds=64.2,
    )


def _known(layout: Any) -> ClusterRecord | None:
    if layout.name == "other":
        return None
    path = Path("/home/you/.local/state/raybus/demo/kubeconfig")
    return ClusterRecord(
        name="demo",
        driver="built",
        server="https://127.0.0.1:6443",
        kubeconfig=path,
        inner_kubeconfig=path,
        gateway=True,
        processes=(
            ProcessId(name="etcd", pid=100, started=1),
            ProcessId(name="kubelet", pid=101, started=2),
        ),
    )


def _is_alive(process: ProcessId) -> bool:
    return process.name != "kubelet"


async def _run_up(up: LocalServices) -> None:
    cli.report("starting: watcher http://127.0.0.1:40001, traffic-manager http://127.0.0.1:40002")
    up._print_ready()  # pyright: ignore[reportPrivateUsage]  (the one line of standard output)
    cli.report("stopping")


@pytest.fixture(autouse=True)
def surroundings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def find(
        _file: str | None, _context: str | None, namespace: str | None, *, env: Mapping[str, str]
    ) -> KubeAccess:
        assert env
        return KubeAccess(kubeconfig=None, namespace=namespace or "default")

    monkeypatch.setattr(
        rich_utils, "MAX_WIDTH", None
    )  # set where another test imported it with a width of its own
    monkeypatch.setattr(session, "connect", _connect)
    monkeypatch.setattr(session, "read_clock", lambda: NOW)
    monkeypatch.setattr(kubeconfig, "find", find)
    monkeypatch.setattr(run, "run_through_forward", _through)
    monkeypatch.setattr(run, "show", _show)
    monkeypatch.setattr(demo, "_run", _receipt)
    monkeypatch.setattr(driver, "read", _known)
    monkeypatch.setattr(processes, "is_alive", _is_alive)
    monkeypatch.setattr(LocalServices, "run", _run_up)
    monkeypatch.setenv("RAYBUS_CLUSTER", "demo")
    monkeypatch.chdir(tmp_path)
    Path("config").write_text(KUBECONFIG)


def typed(command: str, **environment: str) -> Result:
    """Run a command line whose output is no terminal."""
    arguments = shlex.split(command)
    return CliRunner().invoke(
        main.build(arguments[0]), arguments, env={"COLUMNS": None, **environment}
    )


def _recorded(command: str, **environment: str) -> str:
    done = typed(command, **environment)
    typed_as = " ".join(
        [*(f"{name}={value}" for name, value in environment.items()), "raybus", command]
    )
    return f"$ {typed_as}\n{done.output}[exit code {done.exit_code}]\n"


@pytest.mark.parametrize("verb", COMMANDS)
def test_it_prints_as_recorded(verb: str, golden: Golden) -> None:
    found = [_recorded(command) for command in COMMANDS[verb]]
    if verb == "demo":
        found += [f"On a terminal of {width} columns\n{_live(width)}" for width in WIDTHS]
    golden.check(f"cli/recorded/{verb}.txt", "\n".join(found))


def _live(width: int) -> str:
    """Return the output of the live view of a demo, and its receipt."""
    receipt = _receipt()
    pods = msgspec.convert(
        (a_pod(BLUE, "head"), a_pod(BLUE, "gpu", 1, ready=False)), tuple[Pod, ...], strict=False
    )
    status = ObservedStatus(active_service_status=ServeStatus(ray_cluster_name=BLUE))
    service = ObservedService(metadata=ObjectMeta(name="demo"), status=status)
    state = DemoState(service=service, clusters=(BLUE,), pods=pods)
    frame = view.DemoFrame(
        step="version 2 gets ready",
        elapsed=77.9,
        state=state,
        share={"1": 0.7, "2": 0.3},
        figures=receipt.traffic,
    )
    shown = Group(view.draw(frame), render(receipt))
    return "\n".join(line.rstrip() for line in text_of(shown, width=width).split("\n"))


@pytest.mark.parametrize("command", [command for command in TYPED if not command.endswith("jsonn")])
def test_the_width_of_a_terminal_changes_no_line_of_a_pipe(command: str) -> None:
    assert {typed(command, COLUMNS=str(width)).output for width in WIDTHS} == {
        typed(command).output
    }


@pytest.mark.parametrize("command", TYPED)
def test_a_pipe_gets_no_escape_sequence_and_no_color_changes_nothing(command: str) -> None:
    done = typed(command)
    assert "\x1b" not in done.output
    assert done.exception is None or isinstance(done.exception, SystemExit)
    assert typed(command, NO_COLOR="1").output == done.output


def test_each_line_of_logs_has_the_schema_of_the_documentation() -> None:
    _validated("logs", typed("logs demo -o json").stdout.splitlines(), 2)


def test_a_submitted_job_prints_the_log_of_its_driver(golden: Golden) -> None:
    done = typed("submit --name train --workers 2 -- python train.py")
    assert (done.exit_code, done.stdout) == (0, typed("logs demo").stdout)
    golden.check("cli/submit.txt", done.output)


def test_the_report_of_a_job_has_the_schema_of_the_documentation() -> None:
    report = json.loads(typed("submit --name train -o json -- python train.py").stdout)
    _validated("job", [json.dumps(report)], 1)


def test_each_event_has_the_schema_of_the_documentation() -> None:
    lines = typed("events demo -o json").stdout.splitlines()
    assert len(lines) == len(an_example_upgrade())
    for line in lines:
        kind = json.loads(line)["type"].removeprefix("io.raybus.upgrade.").removesuffix(".v1")
        schema: Any = jsonschema.Draft202012Validator(
            json.loads((EVENTS / f"{kind}.json").read_text())
        )
        schema.validate(json.loads(line))


def _validated(schema: str, lines: list[str], count: int) -> None:
    validator: Any = jsonschema.Draft202012Validator(outputs.schema(schema))
    assert len(lines) == count
    for line in lines:
        validator.validate(json.loads(line))
        with pytest.raises(jsonschema.ValidationError):
            validator.validate({**json.loads(line), "unknown": 1})
