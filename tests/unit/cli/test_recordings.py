"""Every verb as it is typed: at 60, 80 and 160 columns, in a pipe, without colours, and in each form of `-o`, validated by its schema."""

import copy
import json
import platform
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

import jsonschema
import pytest
import yaml
from rich.cells import cell_len
from rich.console import Console
from typer.main import get_command
from typer.testing import CliRunner, Result

from common import errors
from common.api import ray_service
from common.api.opaque import Body
from common.bus.cloud_events import CloudEvent, Event
from common.feature_gates import BETA
from common.kube.resources import (
    POD,
    RAY_CLUSTER,
    RAY_CRON_JOB,
    RAY_JOB,
    RAY_SERVICE,
    UPGRADE_POLICY,
)
from common.ray import job_events
from common.ray.job_events import JobAttempt, JobEventData
from crd_generator import comparison, manifest
from generators.docs import outputs
from raybus_cli import kubeconfig, main, printing, session
from raybus_cli.changing import execute
from raybus_cli.changing.execute import Order
from raybus_cli.doctor import checks, survey
from raybus_cli.doctor.check import Category, Check, CheckState, Hint, categorize
from raybus_cli.doctor.survey import CRD
from raybus_cli.events import job_history
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.migrating import check as checking
from raybus_cli.migrating import findings as migrating
from raybus_cli.migrating import report as reports
from raybus_cli.migrating.report import MigrationReport, OperatorSummary
from raybus_cli.migrating.switches import Setting
from raybus_cli.planning import plan as plans
from raybus_cli.planning.plan import Sizing, UpgradePlan
from raybus_cli.policy import trial
from raybus_cli.reading import reader
from raybus_cli.reading.snapshot import Snapshot
from raybus_cli.show import version
from support.builders import snapshots
from support.builders.ray_job import FAILED_JOB, a_cluster_spec
from support.builders.snapshots import (
    BLUE,
    GREEN,
    NOW,
    READY,
    STEPS,
    UPGRADING,
    a_cluster,
    a_condition,
    a_config,
    a_goal,
    a_pod,
    a_side,
    an_event,
    at_rest,
    in_steps,
)
from support.builders.upgrade_policy import CAREFUL, a_policy
from support.fakes.kube import FakeKube
from support.fakes.prometheus import vector
from support.fakes.webhook import FakeServers, reaches
from support.golden import Golden
from support.terminal import svg_of
from unit.cli import test_stream_recordings

IMAGES: Final = Path(__file__).parents[3] / "docs" / "images"
WIDTHS: Final = (60, 80, 160)
CASES: Final = {
    "get-rayservice": ("get rayservice demo", "tree"),
    "get-raycluster": (f"get raycluster {BLUE}", "cluster-tree"),
    "get-rayjob": ("get rayjob score", "job-tree"),
    "get-raycronjob": ("get raycronjob nightly", "cron-job-tree"),
    "get-several": (f"get rayservice/demo raycluster/{BLUE}", "trees"),
    "get-rayservices": ("get rayservices -A", "listing"),
    "list": ("list -A", "listing"),
    "status": ("status demo --timeout 0", "status"),
    "status-rayjob": ("status rayjob/score", "job"),
    "history": ("history demo", "history"),
    "history-rayjob": ("history rayjob/score", "history-job"),
    "plan": ("plan -f demo.yaml", "plan"),
    "pause": ("pause demo", "action"),
    "resume": ("resume demo", "action"),
    "promote": ("promote demo", "action"),
    "abort": ("abort demo other", "action"),
    "retry": ("retry demo", "action"),
    "undo": ("undo demo --dry-run", "action"),
    "restart": ("restart demo --dry-run", "plan"),
    "set-image": ("set image demo head=rayproject/ray:2.53.0 --dry-run", "plan"),
    "stop": ("stop train", "action"),
    "stop-delete": ("stop rayjob/train --delete", "action"),
    "explain": ("explain demo", "explain"),
    "explain-rayjob": ("explain rayjob/score", "explain-job"),
    "explain-raycronjob": ("explain raycronjob/nightly", "explain-job"),
    "lint": ("lint -f demo.yaml", "lint"),
    "policy-lint": ("policy lint careful.yaml", "lint"),
    "policy-try": ("policy try careful --service demo", "policy-try"),
    "doctor": ("doctor", "doctor"),
    "crds-check": ("crds check", "crds-check"),
    "migrate-check": ("migrate check", "migrate-check"),
    "version": ("version", "version"),
}
"""By name of a recording: the command line, and the schema of its data."""
ELSEWHERE: Final = {*test_stream_recordings.COMMANDS, "dashboard", "bundle", "images", "completion"}
"""Verbs that print a stream, or produce a page, a file, an image or a script: their own tests
record them."""
STALLED: Final = a_condition(
    "UpgradeStalled", reason="InsufficientCapacity", message="No progress for 10m0s: no node"
)
NO_NODE: Final = {
    "conditions": [
        {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/3 nodes are available: 3 Insufficient nvidia.com/gpu.",
        }
    ]
}
PICTURES: Final = {"get-rayservice", "list", "explain", "plan", "doctor", "history"}
"""Cases with a picture in the documentation."""
PICTURE_WIDTH: Final = 100
SCORE_UID: Final = "3d1f6a80-5a0c-4b8e-9a3c-6b6c1d7f0e21"
METRIC: Final = (
    'ray_serve_num_http_requests_total{{application="app",route="/",status_code="{}"}} {}\n'
)


def metrics(*, failed: int) -> str:
    """Return the metrics of a node that answered 100 requests, of which `failed` failed."""
    return METRIC.format(200, 100 - failed) + METRIC.format(500, failed)


ESCAPE: Final = re.compile(r"\x1b\[([0-9;]*)m")


class Server(FakeKube):
    """An API server with RayServices in two namespaces, one of them during an upgrade."""

    def __init__(self, annotations: dict[str, str], definitions: Sequence[Body]) -> None:
        super().__init__(now=lambda: NOW)
        service = snapshots.a_service(
            READY,
            UPGRADING,
            active=a_side(BLUE),
            pending=a_side(GREEN),
            annotations=annotations,
            upgradeStrategy=STEPS,
        )
        self.put(RAY_SERVICE, service)
        for name, namespace in (
            ("other", "default"),
            ("recommender-of-the-second-team", "recommendations-production"),
        ):
            body = snapshots.a_service(endpoints=0)
            body["metadata"] |= {"name": name, "namespace": namespace}
            self.put(RAY_SERVICE, body)
        self.put(
            RAY_CLUSTER,
            a_cluster(BLUE, a_config(), desiredWorkerReplicas=4, availableWorkerReplicas=1),
        )
        job = {
            "entrypoint": "python train.py",
            "shutdownAfterJobFinishes": True,
            "rayClusterSpec": a_cluster_spec(),
        }
        self.put(RAY_JOB, {"metadata": {"name": "train"}, "spec": job})
        score = {"name": "score", "uid": SCORE_UID}
        self.put(RAY_JOB, {"metadata": score, "spec": job, "status": FAILED_JOB})
        cron_job = {"schedule": "0 3 * * *", "timeZone": "Europe/Paris", "jobTemplate": job}
        self.put(RAY_CRON_JOB, {"metadata": {"name": "nightly"}, "spec": cron_job})
        for definition in definitions:
            self.put(CRD, definition)
        self.put(
            UPGRADE_POLICY, a_policy(namespace="default", annotations={"raybus.io/default": "true"})
        )

    async def request(self, _method: str, path: str, **_: Any) -> bytes:
        """Answer with metrics for all pods but one; there is no dashboard."""
        if path.endswith("/metrics") and f"{GREEN}-gpu-worker-00002" not in path:
            return metrics(failed=9 if GREEN in path else 3).encode()
        raise errors.Unavailable("no dashboard")

    async def close(self) -> None:
        """Do nothing, since there is no connection."""


@cache
def installed_definitions() -> list[Body]:
    """Return CRDs of another version: a field less, a field more, and one of another type."""
    found = copy.deepcopy(manifest.list_definitions())
    del found["ray.io_raycronjobs.yaml"]
    schema = comparison.find_schema(found["ray.io_rayclusters.yaml"])
    fields = schema["properties"]["spec"]["properties"]
    del fields["upgradeStrategy"]
    fields |= {"rayVersion": {"type": "integer"}, "retired": {"type": "string"}}
    return [
        {**definition, "metadata": {**definition["metadata"], "namespace": ""}}
        for definition in found.values()
    ]


def _after_an_upgrade() -> Snapshot:
    new = a_config(snapshots.NEW_IMAGE)
    service = snapshots.a_ready_service(config=new)
    service["status"]["activeServiceStatus"] = snapshots.a_side(GREEN)
    serve = snapshots.a_ready_service()["spec"]["serveConfigV2"]
    goals = [a_goal(a_config(), serve, 1), a_goal(new, serve, 2, replaces=1)]
    return at_rest(service=service, clusters=[a_cluster(GREEN, new, age=300)], goals=goals)


def _stalled() -> Snapshot:
    pods = [a_pod(GREEN, "gpu", 1, ready=False, age=150, **NO_NODE)]
    about = ("Pod", pods[0]["metadata"]["name"])
    events = [an_event("FailedMount", 'secret "hf-token" not found', kind="Warning", about=about)]
    return in_steps(UPGRADING, STALLED, pods=pods, events=events, serve={})


def _planned() -> UpgradePlan:
    before = at_rest(service=snapshots.a_ready_service(upgradeStrategy=STEPS))
    goal = ray_service.decode(
        snapshots.a_service(config=a_config(snapshots.NEW_IMAGE), upgradeStrategy=STEPS)
    )
    wanted = snapshots.with_spec(before.service, goal.spec_json, generation=3)
    return plans.build(before, wanted, BETA, Sizing(), now=NOW)


SNAPSHOTS: Final[dict[str, Callable[[], Snapshot]]] = {
    "history": _after_an_upgrade,
    "undo": _after_an_upgrade,
    "explain": _stalled,
    "plan": lambda: at_rest(service=snapshots.a_ready_service(upgradeStrategy=STEPS)),
}
PODS: Final = {
    "policy-try": [a_pod(cluster, "gpu", number) for cluster in (BLUE, GREEN) for number in (1, 2)]
}
ANNOTATED: Final = {"resume": {"raybus.io/pause": "true"}, "retry": {"raybus.io/abort": "true"}}
CHECKS: Final = [
    *categorize(
        Category.KUBERNETES,
        Hint.INSTALL,
        Check(name="Kubernetes", state=CheckState.OK, text="v1.34.2"),
    ),
    *categorize(
        Category.SERVICES,
        Hint.SERVICES,
        Check(
            name="watcher",
            state=CheckState.OK,
            text="1 of 1 ready, registry.invalid/raybus/watcher:0.1.0",
        ),
        Check(
            name="service-reconciler",
            state=CheckState.FAILED,
            text="0 of 1 ready, registry.invalid/raybus/service-reconciler:0.1.0",
            remedy="'kubectl -n raybus describe deployment service-reconciler' names the cause",
        ),
    ),
    *categorize(
        Category.RIGHTS,
        Hint.RIGHTS,
        Check(name="your rights", state=CheckState.UNKNOWN, text="may not be read"),
    ),
]
BAD_MANIFEST: Final = """apiVersion: ray.io/v1
kind: RayService
metadata: {name: demo}
spec:
  serveConfigV2: |
    applications: [{name: app}]
  rayClusterConfig:
    rayVersions: 2.53.0
    headGroupSpec:
      template: {spec: {containers: [{name: ray-head, image: rayproject/ray:2.53.0}]}}
"""


def _report() -> MigrationReport:
    kuberay = OperatorSummary(
        namespace="ray-system", name="kuberay-operator", version="v1.5.1", replicas=1, ready=1
    )
    job = migrating.report_change(
        "the gate RayCronJob is off in raybus, so no run would start",
        "set RAYBUS_FEATURE_GATES=RayCronJob=true on job-reconciler",
    )
    objects = [
        migrating.build_subject("RayService", "shop", "demo", []),
        migrating.build_subject(
            "RayCronJob", "recommendations-production", "recommender-of-the-second-team", [job]
        ),
    ]
    settings = [
        Setting(kuberay="--enable-leader-election", value="true", here="needs nothing here")
    ]
    return MigrationReport(
        verdict=reports.decide_verdict([], objects),
        kuberay=[kuberay],
        raybus=[],
        settings=settings,
        environment={},
        findings=[],
        objects=objects,
    )


async def _connect(name: str, _place: KubeAccess) -> Server:
    """Return the server of a case. Only one case reads CRDs, which are large."""
    definitions = installed_definitions() if name == "crds-check" else []
    server = Server(ANNOTATED.get(name, {}), definitions)
    for each in PODS.get(name, []):
        server.put(POD, each)
    return server


async def _answer(value: Any, *_: Any, **__: Any) -> Any:
    return value


async def _change(
    _kube: Any, _namespace: str, _order: Order, show: Callable[[UpgradePlan], None]
) -> UpgradePlan:
    plan = _planned()
    show(plan)
    return plan


def _always(value: Any) -> Callable[..., Any]:
    def answer(*_: Any, **__: Any) -> Any:
        return value

    return answer


def _find(
    _file: str | None, _context: str | None, namespace: str | None, *, env: Mapping[str, str]
) -> KubeAccess:
    assert env
    return KubeAccess(kubeconfig=None, namespace=namespace or "default")


def _score_events() -> list[CloudEvent[JobEventData]]:
    """Return the events of the two attempts of RayJob score that failed before the last one."""
    events: list[CloudEvent[JobEventData]] = []
    for number, hour, cluster in ((1, 8, "score-m4v9q"), (2, 9, "score-t2h6c")):
        began = datetime(2026, 1, 1, hour, tzinfo=UTC)
        attempt = JobAttempt(
            id=job_events.identify_attempt(SCORE_UID, began, number),
            number=number,
            started=began,
            cluster=cluster,
            submission_id=cluster,
        )
        retried = job_events.JobRetried(attempt=attempt, reason="AppFailed", exit_code=137)
        event = Event(
            namespace="default",
            name="score",
            id=str(number),
            time=began + timedelta(minutes=3, seconds=20),
            data=retried,
        )
        events.append(job_events.FAMILY.decode(job_events.FAMILY.encode(event).payload))
    return events


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    name: str = request.param
    snapshot = SNAPSHOTS.get(name, in_steps)()
    monkeypatch.setattr(session, "connect", partial(_connect, name))
    monkeypatch.setattr(session, "read_clock", _always(NOW))
    monkeypatch.setattr(trial, "reached_within", reaches(FakeServers(vector("0.93"))))
    monkeypatch.setattr(kubeconfig, "find", _find)
    monkeypatch.setattr(reader, "read", partial(_answer, snapshot))
    monkeypatch.setattr(checks, "check_all", _always(CHECKS))
    monkeypatch.setattr(survey, "read_installation", partial(_answer, None))
    monkeypatch.setattr(checking, "check", partial(_answer, _report()))
    monkeypatch.setattr(execute, "change", _change)
    monkeypatch.setattr(job_history, "read_events", _always((_score_events(), None)))
    goal = ray_service.decode(
        snapshots.a_service(config=a_config(snapshots.NEW_IMAGE), upgradeStrategy=STEPS)
    )
    for verb in ("replace", "patch"):
        monkeypatch.setattr(reader, verb, partial(_answer, goal))
    monkeypatch.setattr(version, "VERSION", "0.1.0")
    monkeypatch.setattr(platform, "python_version", lambda: "3.11.0")
    monkeypatch.chdir(tmp_path)
    Path("demo.yaml").write_text(BAD_MANIFEST)
    careless = a_policy(
        "careless", {**CAREFUL, "bake": "soon", "gates": [{"metric": "errorRate", "max": "1 %"}]}
    )
    Path("careful.yaml").write_text(yaml.safe_dump_all([a_policy(), careless], sort_keys=False))
    return name


def typed(name: str, *more: str) -> Result:
    """Run the command line of a case with its output in a pipe."""
    arguments = [*shlex.split(CASES[name][0]), *more]
    return CliRunner().invoke(main.build(arguments[0]), arguments)


def on_terminal(
    name: str, monkeypatch: pytest.MonkeyPatch, width: int, *, colours: bool = True
) -> str:
    """Run the command line of a case on a terminal."""

    def console(**_: Any) -> Console:
        return printing.PlainConsole(
            width=width,
            force_terminal=True,
            color_system="256",
            no_color=not colours,
            highlight=False,
            emoji=False,
            markup=False,
        )

    with monkeypatch.context() as patch:
        patch.setattr(printing, "create_console", console)
        return typed(name).output


def forms(name: str) -> list[str]:
    """Return the values that `-o` of a verb accepts."""
    verbs = CASES[name][0].split()
    command: Any = get_command(main.build(verbs[0]))
    command = command.commands[verbs[0]]
    while hasattr(command, "commands"):
        verbs = verbs[1:]
        command = command.commands[verbs[0]]
    (option,) = [each for each in command.params if each.name == "output"]
    return option.metavar.strip("<>").split("|")


def test_every_verb_is_recorded_here_or_by_tests_of_its_own() -> None:
    assert {command.split()[0] for command, _ in CASES.values()} | ELSEWHERE == set(main.PARTS)


def test_it_prints_as_recorded(case: str, golden: Golden, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [f"$ raybus {CASES[case][0]} | cat\n{typed(case).output}"]
    for width in WIDTHS:
        text = "\n".join(
            line.rstrip()
            for line in ESCAPE.sub("", on_terminal(case, monkeypatch, width)).split("\n")
        )
        found.append(f"$ COLUMNS={width} raybus {CASES[case][0]}\n{text}")
    for form in forms(case):
        if form != "text":
            found += [f"$ raybus {CASES[case][0]} -o {form}\n{typed(case, '-o', form).output}"]
    golden.check(f"cli/recorded/{case}.txt", "\n".join(found))


def test_its_picture_is_that_of_the_documentation(
    case: str, golden: Golden, monkeypatch: pytest.MonkeyPatch
) -> None:
    if case not in PICTURES:
        return
    found = svg_of(
        f"raybus {CASES[case][0]}",
        on_terminal(case, monkeypatch, PICTURE_WIDTH),
        width=PICTURE_WIDTH,
    )
    assert set(re.findall(r"https?://[^\s\"')]+", found)) == {"http://www.w3.org/2000/svg"}, (
        "it loads nothing"
    )
    Golden(root=IMAGES, update=golden.update).check(f"cli-{case}.svg", found)


def test_its_data_has_the_schema_of_the_documentation(case: str) -> None:
    schema = outputs.schema(CASES[case][1])
    validator: Any = jsonschema.Draft202012Validator(schema)
    data = json.loads(typed(case, "-o", "json").stdout)
    validator.validate(data)
    assert yaml.safe_load(typed(case, "-o", "yaml").stdout) == data
    with pytest.raises(jsonschema.ValidationError):
        validator.validate([{"unknown": 1}] if isinstance(data, list) else {**data, "unknown": 1})


def test_a_pipe_gets_no_escape_sequence_and_no_colour_is_none(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "\x1b" not in typed(case).output
    coloured, plain = (on_terminal(case, monkeypatch, 100, colours=each) for each in (True, False))
    codes = {code for found in ESCAPE.findall(plain) for code in found.split(";") if code}
    assert codes <= {"0", "1", "2", "3"}, "bold, dim and italic only"
    assert ESCAPE.sub("", coloured) == ESCAPE.sub("", plain)


def test_no_line_of_a_table_or_tree_is_longer_than_the_terminal(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for width in WIDTHS:
        text = ESCAPE.sub("", on_terminal(case, monkeypatch, width))
        drawn = [
            line
            for line in text.splitlines()
            if line.startswith(("├", "└", "│")) or "   " in line.strip()
        ]
        assert [line for line in drawn if cell_len(line) > width] == []
