"""`raybus get` and `raybus list` as a user types them, on an API server in memory."""

import json
from collections.abc import Mapping
from io import StringIO
from typing import Any

import msgspec
import pytest
import yaml
from rich.console import Console
from typer.testing import CliRunner, Result

from common import errors
from common.api.opaque import Json
from common.kube.resources import EVENT, POD, RAY_CLUSTER, RAY_SERVICE
from raybus_cli import completion, kubeconfig, main, session
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.reading.snapshot import ClusterSnapshot
from raybus_cli.show import frame, picture, tree
from support.builders import snapshots
from support.builders.snapshots import (
    BLUE,
    NOW,
    a_cluster,
    a_config,
    a_gpu_group,
    a_pod,
    an_event,
    at_rest,
    in_steps,
)
from support.fakes.kube import FakeKube
from support.golden import Golden
from support.tables import cases
from support.terminal import text_of


class Server(FakeKube):
    """An API server with two RayServices, one of them with a cluster."""

    def __init__(self) -> None:
        super().__init__(now=lambda: NOW)
        self.put(RAY_SERVICE, snapshots.a_ready_service())
        other = snapshots.a_service(endpoints=0)
        other["metadata"] |= {"name": "other", "labels": {"team": "b"}}
        self.put(RAY_SERVICE, other)
        far = snapshots.a_service(endpoints=0)
        far["metadata"] |= {"name": "far", "namespace": "elsewhere"}
        self.put(RAY_SERVICE, far)
        config = a_config(snapshots.NEW_IMAGE)
        self.put(
            RAY_CLUSTER, a_cluster(BLUE, config, desiredWorkerReplicas=4, availableWorkerReplicas=1)
        )
        for pod in (a_pod(BLUE, "head"), a_pod(BLUE, "gpu", 1), a_pod(BLUE, "gpu", 2, ready=False)):
            self.put(POD, pod)
        event = an_event(
            "CreatedWorkerPod", "Created worker Pod", about=("RayCluster", BLUE), at=12
        )
        self.put(EVENT, event)

    async def request(
        self, _method: str, path: str, *, query: Mapping[str, str] | None = None, **_more: Any
    ) -> bytes:
        """Answer a list of all namespaces with a field selector; there is no dashboard."""
        if query is None:
            raise errors.Unavailable("no dashboard")
        resource = RAY_SERVICE if RAY_SERVICE.plural in path else RAY_CLUSTER
        name = query["fieldSelector"].removeprefix("metadata.name=")
        found = [
            each
            for (kind, _, own), each in self.objects.items()
            if (kind, own) == (resource.kind, name)
        ]
        return msgspec.json.encode({"items": found})

    async def close(self) -> None:
        """Do nothing, since there is no connection."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    found = Server()

    async def connect(_place: KubeAccess) -> Server:
        return found

    def find(
        _file: str | None, _context: str | None, namespace: str | None, *, env: Mapping[str, str]
    ) -> KubeAccess:
        assert env
        return KubeAccess(kubeconfig=None, namespace=namespace or "default")

    monkeypatch.setattr(session, "connect", connect)
    monkeypatch.setattr(session, "read_clock", lambda: NOW)
    monkeypatch.setattr(kubeconfig, "find", find)
    return found


def _type(command: str) -> Result:
    arguments = main.translate_arguments(command.split())
    return CliRunner().invoke(main.build(arguments[0]), arguments)


def _first_cells(text: str) -> list[str]:
    return [line.split()[0] for line in text.splitlines() if line]


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("get rayservices", ["NAME", "demo", "other"]),
        ("get rayservice", ["NAME", "demo", "other"]),
        ("get -n default rayclusters", ["NAME", BLUE]),
        ("get rayservices,rayclusters", ["NAME", "demo", "other", "NAME", BLUE]),
        ("get rayservices -l team=b", ["NAME", "other"]),
        ("list -l team=b", ["NAME", "other"]),
        (
            "get rayservices -A -o name",
            [f"rayservice.ray.io/{name}" for name in ("demo", "other", "far")],
        ),
        (
            "get rayservice/demo raycluster/demo-blue -o name",
            ["rayservice.ray.io/demo", f"raycluster.ray.io/{BLUE}"],
        ),
        (
            "list -o name",
            ["rayservice.ray.io/demo", "rayservice.ray.io/other", f"raycluster.ray.io/{BLUE}"],
        ),
    ],
)
@pytest.mark.usefixtures("server")
def test_it_shows(command: str, names: list[str]) -> None:
    done = _type(command)
    assert (done.exit_code, done.stderr) == (0, "")
    assert _first_cells(done.stdout) == names


@pytest.mark.usefixtures("server")
def test_several_names_are_several_trees() -> None:
    done = _type("get rayservice demo other")
    assert (done.exit_code, done.stderr) == (0, "")
    assert [line.split()[1] for line in done.stdout.splitlines() if line.startswith("Name:")] == [
        "demo",
        "other",
    ]


@pytest.mark.parametrize("output", ["json", "yaml"])
@pytest.mark.usefixtures("server")
def test_data_of_one_object_is_the_object_and_of_several_a_list(output: str) -> None:
    read = json.loads if output == "json" else yaml.safe_load
    assert read(_type(f"get raycluster {BLUE} -o {output}").stdout)["service"] == "demo"
    several = read(_type(f"get rayservice demo other -o {output}").stdout)
    assert [each["name"] for each in several["items"]] == ["demo", "other"]
    table = read(_type(f"get rayservices -o {output}").stdout)
    assert [(each["kind"], each["name"]) for each in table["services"]] == [
        ("RayService", "demo"),
        ("RayService", "other"),
    ]


@pytest.mark.usefixtures("server")
def test_what_there_is_is_shown_before_what_is_missing() -> None:
    done = _type("get rayservice demo nobody far -o name")
    assert (done.exit_code, done.stdout) == (1, "rayservice.ray.io/demo\n")
    assert done.stderr.splitlines() == [
        'error: rayservices.ray.io "nobody" not found in namespace "default"; see what there is with \'raybus list -A\'',
        'error: rayservices.ray.io "far" not found in namespace "default"; found in elsewhere: add -n elsewhere',
    ]


@cases(
    ("command", "message"),
    {
        "another kind": (
            "get pods",
            "'pods' is none of rayservice, raycluster, rayjob, raycronjob",
        ),
        "a name in all namespaces": ("get rayservice demo -A", "a name and -A exclude each other"),
        "a name and a selector": ("get rayservice demo -l a=b", "a name and -l exclude each other"),
        "a name that cannot be": ("get raycluster No_Name", "is not the name of a RayCluster"),
        "nothing": ("get", "Missing argument"),
    },
)
@pytest.mark.usefixtures("server")
def test_a_misuse_is_refused(command: str, message: str) -> None:
    done = _type(command)
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in " ".join(done.stderr.split())


@pytest.mark.parametrize("verb", ["list", "get rayclusters"])
def test_a_selector_that_the_api_server_refuses_is_a_misuse(verb: str, server: Server) -> None:
    server.faults.append(
        lambda request: (
            errors.Rejected("found '=', expected: ')'") if request.verb == "list" else None
        )
    )
    done = _type(f"{verb} -l a=(")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "error: --selector 'a=(' is no label selector (found '=', expected: ')'); "
        "write for example app=demo, 'tier in (a,b)' or '!canary'\n"
    )


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("get rayclusters -n none", "No RayCluster in namespace none; -A shows all namespaces.\n"),
        (
            "list -n none -l a=b",
            "No RayService, RayCluster, RayJob or RayCronJob with labels a=b in namespace none; "
            "-A shows all namespaces.\n",
        ),
        (
            "list -A -l a=b",
            "No RayService, RayCluster, RayJob or RayCronJob with labels a=b in any namespace.\n",
        ),
    ],
)
@pytest.mark.usefixtures("server")
def test_nothing_is_reported(command: str, message: str) -> None:
    done = _type(command)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", message)


@pytest.mark.parametrize(
    ("arguments", "found"),
    [
        (["get", "rayc"], ["raycluster", "raycronjob"]),
        (["get", "rayservice", ""], ["demo", "other"]),
        (["get", "rayservices", "demo", ""], ["other"]),
        (["get", "raycluster", "de"], [BLUE]),
        (["get", "-n", "elsewhere", "rayservice", ""], ["far"]),
        (["get", "raycluster/"], [f"raycluster/{BLUE}"]),
        (["get", "rayservice/demo", "rayservice/o"], ["rayservice/other"]),
        (["get", "pods", ""], []),
    ],
)
@pytest.mark.usefixtures("server")
def test_names_of_both_kinds_are_completed(
    arguments: list[str], found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("COMP_WORDS", "COMP_CWORD"):
        monkeypatch.setenv(name, "")
    assert completion.list_candidates(main.build, arguments) == found


def _a_snapshot(*groups: Json, **fields: Any) -> ClusterSnapshot:
    config = a_config(snapshots.NEW_IMAGE, *groups, **fields)
    rest = at_rest(service=snapshots.a_ready_service(), clusters=[a_cluster(BLUE, config)])
    return ClusterSnapshot(
        cluster=rest.clusters[0], service=rest.service, pods=rest.pods, events=rest.events
    )


@cases(
    ("groups", "desired"),
    {
        "at least": ([a_gpu_group(replicas=0, minReplicas=2)], 2),
        "at most": ([a_gpu_group(replicas=9)], 8),
        "several hosts": ([a_gpu_group(replicas=2, numOfHosts=3)], 6),
        "0 hosts count as 1": ([a_gpu_group(replicas=2, numOfHosts=0)], 2),
        "suspended": ([a_gpu_group(suspend=True)], 0),
        "only the first of a name has pods": (
            [a_gpu_group(replicas=1), a_gpu_group(replicas=5)],
            1,
        ),
    },
)
def test_a_group_desires_as_many_pods_as_the_operator_makes(
    groups: list[Json], desired: int
) -> None:
    found = tree.build_cluster(_a_snapshot(*groups), now=NOW)
    assert {each.name: each.desired for each in found.groups} == {"head": 1, "gpu": desired}


def test_a_suspended_cluster_desires_no_pod() -> None:
    found = tree.build_cluster(_a_snapshot(suspend=True), now=NOW)
    assert {each.name: each.desired for each in found.groups} == {"head": 0, "gpu": 0}


def test_of_groups_with_one_name_the_image_of_the_first_is_shown() -> None:
    second = a_gpu_group()
    second["template"]["spec"]["containers"][0]["image"] = snapshots.NEW_IMAGE
    found = tree.build_cluster(_a_snapshot(a_gpu_group(), second), now=NOW)
    assert {each.name: each.image for each in found.groups}["gpu"] == snapshots.OLD_IMAGE


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_cluster_renders_as(width: int, golden: Golden) -> None:
    found = tree.build_cluster(_a_snapshot(), now=NOW)
    golden.check(f"cli/cluster-{width}.txt", text_of(picture.draw_cluster(found), width=width))
    golden.check("cli/cluster-line.txt", picture.format_cluster_line(found) + "\n")


@pytest.mark.parametrize("width", [60, 80, 160])
def test_a_service_renders_as(width: int, golden: Golden) -> None:
    found = frame.build_trees([in_steps()], now=NOW, wide=width == 160)
    assert found.picture is not None
    golden.check(f"cli/tree-{width}.txt", text_of(found.picture, width=width))


def test_colours_are_for_a_terminal_that_wants_them(monkeypatch: pytest.MonkeyPatch) -> None:
    found = frame.build_trees([in_steps()], now=NOW, wide=False).picture

    def shown(*, is_terminal: bool) -> str:
        file = StringIO()
        Console(
            file=file, force_terminal=is_terminal, color_system="standard" if is_terminal else None
        ).print(found)
        return file.getvalue()

    assert "\x1b[36m" in shown(is_terminal=True)
    assert "\x1b" not in shown(is_terminal=False)
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[36m" not in shown(is_terminal=True)
