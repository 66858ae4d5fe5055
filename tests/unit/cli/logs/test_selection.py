"""The logs that the options select, and the reasons why other options are refused."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from common import errors
from common.api import ray_service
from common.api.core import Container, Pod, PodSpec
from common.api.meta import ObjectMeta
from common.api.ray_service import RayService
from raybus_cli.logs import selection
from raybus_cli.logs.selection import LogChoice, LogExtent
from raybus_cli.reading import kinds
from raybus_cli.reading.kinds import NamedTarget
from support.builders.ray_cluster import a_ray_cluster
from support.builders.snapshots import BLUE, GREEN, READY, a_pod, a_service, a_side
from support.tables import cases

DEMO = NamedTarget(kinds.SERVICE, "demo")
HEAD = f"{BLUE}-head-aaaaa"


def _pods(workers: int = 2) -> list[Pod]:
    bodies = [
        *(a_pod(BLUE, "gpu", number) for number in range(workers)),
        a_pod(BLUE, "cpu", 1),
        a_pod(BLUE, "head"),
    ]
    bodies[-1]["spec"]["containers"].append({"name": "autoscaler", "image": "i"})
    bodies[0]["status"]["initContainerStatuses"] = [{"name": "wait-gcs-ready"}]
    return msgspec.convert(bodies, list[Pod], strict=False)


def _chosen(**options: Any) -> list[str]:
    return [
        each.metadata.name
        for each in selection.select_pods(_pods(), LogChoice(**options), BLUE, DEMO)
    ]


@cases(
    ("options", "pods"),
    {
        "the head by default": ({}, [HEAD]),
        "the head": ({"head": True}, [HEAD]),
        "workers": (
            {"workers": True},
            ["cpu-worker-00001", "gpu-worker-00000", "gpu-worker-00001"],
        ),
        "a group": ({"group": "cpu"}, ["cpu-worker-00001"]),
        "a pod": ({"pod": f"{BLUE}-gpu-worker-00001"}, ["gpu-worker-00001"]),
        "all, head first": (
            {"every": True},
            [HEAD, "cpu-worker-00001", "gpu-worker-00000", "gpu-worker-00001"],
        ),
    },
)
def test_the_options_select_pods(options: dict[str, Any], pods: list[str]) -> None:
    assert _chosen(**options) == [each if each == HEAD else f"{BLUE}-{each}" for each in pods]


@cases(
    ("options", "message"),
    {
        "a group": (
            {"group": "tpu"},
            "has no pod of group 'tpu'; groups with pods: head, cpu, gpu",
        ),
        "a pod": (
            {"pod": "gone"},
            "has no pod gone: if it is gone, so is its log; 'raybus explain demo'",
        ),
    },
)
def test_what_is_not_there_is_refused_with_what_is(options: dict[str, Any], message: str) -> None:
    with pytest.raises(errors.Rejected) as refused:
        _chosen(**options)
    assert message in str(refused.value)


def test_a_pod_that_is_gone_has_a_remedy_that_names_the_bundle_and_the_previous_log() -> None:
    text = str(selection.build_gone_error("x", BLUE, DEMO))
    assert "'raybus bundle demo' keeps the events" in text
    assert "-p reads the log of a container before its restart" in text
    assert "raybus" not in str(
        selection.build_gone_error("x", "lone", NamedTarget(kinds.CLUSTER, "lone"))
    )


def test_too_many_pods_are_refused_with_the_options_that_narrow_them() -> None:
    with pytest.raises(
        errors.Rejected,
        match=r"22 pods are more than the 20 .* narrow them with --group, --pod or --head",
    ):
        selection.select_pods(_pods(20), LogChoice(every=True), BLUE, DEMO)
    assert len(selection.select_pods(_pods(18), LogChoice(every=True), BLUE, DEMO)) == 20


def test_a_cluster_without_a_head_names_the_verb_that_explains_it() -> None:
    with pytest.raises(
        errors.Rejected, match="RayCluster demo-blue has no head pod now; 'raybus explain demo'"
    ):
        selection.select_pods([], LogChoice(), BLUE, DEMO)


def _service(active: str = "", pending: str = "") -> RayService:
    sides: dict[str, Any] = {
        "active": a_side(active) if active else None,
        "pending": a_side(pending) if pending else None,
    }
    return ray_service.decode(a_service(READY, **sides))


@pytest.mark.parametrize(
    ("service", "asked", "found"),
    [
        pytest.param(_service(BLUE, GREEN), None, BLUE, id="the active one by default"),
        pytest.param(_service("", GREEN), None, GREEN, id="the pending one while none is active"),
        pytest.param(_service(BLUE, GREEN), "pending", GREEN, id="the pending one"),
        pytest.param(_service(BLUE), "demo-old", "demo-old", id="one by name"),
    ],
)
def test_the_cluster(service: RayService, asked: str | None, found: str) -> None:
    assert selection.select_cluster(service, asked, [BLUE, "demo-old"]) == found


@cases(
    ("service", "asked", "message"),
    {
        "pending": (
            _service(BLUE),
            "pending",
            "no pending cluster, because no upgrade is in progress",
        ),
        "active": (
            _service("", GREEN),
            "active",
            "no active cluster yet; see why with 'raybus explain",
        ),
        "none at all": (_service(), None, "no active cluster yet"),
        "of another service": (_service(BLUE), "other", "no RayCluster other; it has demo-blue"),
    },
)
def test_a_cluster_that_is_not_there_is_refused(
    service: RayService, asked: str | None, message: str
) -> None:
    with pytest.raises(errors.Rejected, match=message):
        selection.select_cluster(service, asked, [BLUE])


@cases(
    ("choice", "extent", "target", "message"),
    {
        "two": (
            LogChoice(head=True, every=True),
            LogExtent(),
            DEMO,
            "--head and --all exclude one another",
        ),
        "cluster": (
            LogChoice(cluster="active"),
            LogExtent(),
            NamedTarget(kinds.CLUSTER, "a"),
            "RayCluster a is one",
        ),
        "previous": (
            LogChoice(app="a"),
            LogExtent(previous=True),
            DEMO,
            "-p cannot be used with --app",
        ),
        "pods and replicas": (
            LogChoice(deployment="d", head=True),
            LogExtent(),
            DEMO,
            "--head cannot be used",
        ),
    },
)
def test_options_that_exclude_one_another(
    choice: LogChoice, extent: LogExtent, target: NamedTarget, message: str
) -> None:
    with pytest.raises(errors.InvalidSpec, match=message):
        selection.check(choice, extent, target)


def test_replicas_of_one_pod_are_a_choice() -> None:
    selection.check(
        LogChoice(app="a", deployment="d", pod="p"), LogExtent(tail=1, follow=True), DEMO
    )


def test_raw_lines_are_not_for_a_terminal() -> None:
    selection.check_raw(True, is_terminal=False)
    with pytest.raises(errors.InvalidSpec, match="a file or a pipe"):
        selection.check_raw(True, is_terminal=True)


@pytest.mark.parametrize("text", ["", "0", "-5m", "soon"])
def test_a_start_that_is_no_age_is_refused(text: str) -> None:
    with pytest.raises(errors.InvalidSpec, match="write for example 10m"):
        selection.parse_since(text)


def test_the_request_has_what_is_asked_for_and_nothing_else() -> None:
    (head,) = selection.select_pods(_pods(), LogChoice(), BLUE, DEMO)
    extent = LogExtent(follow=True, since=timedelta(milliseconds=1500), tail=0, previous=True)
    (log,) = selection.select_logs("default", [head], LogChoice(), extent)
    assert log.path == f"/api/v1/namespaces/default/pods/{HEAD}/log"
    assert log.query == {
        "container": "ray",
        "follow": "true",
        "sinceSeconds": "2",
        "tailLines": "0",
        "previous": "true",
    }
    assert selection.select_logs("default", [head], LogChoice(), LogExtent())[0].query == {
        "container": "ray"
    }


@pytest.mark.parametrize(
    ("container", "pods"),
    [("autoscaler", [HEAD]), ("wait-gcs-ready", [f"{BLUE}-gpu-worker-00000"])],
)
def test_a_container_is_read_where_it_is(container: str, pods: list[str]) -> None:
    found = selection.select_logs("default", _pods(), LogChoice(container=container), LogExtent())
    assert [each.source.pod for each in found] == pods


def test_an_unknown_container_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        errors.Rejected,
        match="no container is named 'x'; containers: ray, wait-gcs-ready, autoscaler",
    ):
        selection.select_logs("default", _pods(), LogChoice(container="x"), LogExtent())


def test_the_log_is_rays_also_behind_the_proxy_of_a_mesh() -> None:
    marks = {"ray.io/cluster": "c", "ray.io/node-type": "worker", "ray.io/group": "g"}
    containers = [Container(name="istio-proxy"), Container(name="ray-worker")]
    pod = Pod(metadata=ObjectMeta(name="w", labels=marks), spec=PodSpec(containers=containers))
    (log,) = selection.select_logs("ns", [pod], LogChoice(), LogExtent(), a_ray_cluster())
    assert log.query == {"container": "ray-worker"}
    (log,) = selection.select_logs(
        "ns", [pod], LogChoice(container="istio-proxy"), LogExtent(), a_ray_cluster()
    )
    assert log.query == {"container": "istio-proxy"}
