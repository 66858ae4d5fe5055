"""`raybus logs rayjob/NAME` prints the log of the driver."""

from typing import Any

import pytest

from common import errors
from common.api.opaque import Body
from common.kube.resources import POD, RAY_JOB
from raybus_cli.logs import finding, submitters
from raybus_cli.logs.selection import LogChoice, LogExtent
from raybus_cli.reading import reader
from support.builders.ray_job import a_cluster_spec
from support.fakes.kube import FakeKube

DEFAULT = LogChoice()


def a_server(mode: str = "K8sJobMode", **status: Any) -> FakeKube:
    server = FakeKube()
    spec: Any = {"entrypoint": "a", "submissionMode": mode, "rayClusterSpec": a_cluster_spec()}
    server.put(RAY_JOB, {"metadata": {"name": "train"}, "spec": spec, "status": status})
    return server


def a_submitter(name: str, created: str) -> Body:
    return {
        "metadata": {
            "name": name,
            "labels": {"job-name": "train"},
            "creationTimestamp": f"2026-01-01T{created}Z",
        },
        "spec": {"containers": [{"name": "submit"}, {"name": "proxy"}], "nodeName": "n"},
    }


async def find(server: Any, choice: LogChoice = DEFAULT) -> list[str]:
    job = await reader.read_ray_job(server, "default", "train")
    found = await finding.find_driver_logs(server, "default", job, choice, LogExtent())
    return [str(log.source) for log in found.logs]


async def test_the_newest_submitter_has_the_log_and_all_are_printed_on_request() -> None:
    server = a_server()
    server.put(POD, a_submitter("train-b", "10:00:00"))
    server.put(POD, a_submitter("train-a", "11:00:00"))
    assert await find(server) == ["pod/train-a/submit"]
    assert await find(server, LogChoice(every=True)) == ["pod/train-b/submit", "pod/train-a/submit"]
    assert await find(server, LogChoice(container="proxy")) == ["pod/train-a/proxy"]


async def test_a_job_that_has_no_submitter_yet_says_its_state() -> None:
    with pytest.raises(errors.Rejected, match="it is Initializing; see 'raybus status rayjob/trai"):
        await find(a_server(jobDeploymentStatus="Initializing"))


async def test_a_sidecar_before_its_cluster_is_no_mode_without_a_submitter() -> None:
    with pytest.raises(errors.Rejected, match="has no pod with the log of its driver"):
        await find(a_server("SidecarMode"), LogChoice(every=True, container="submit"))


async def test_a_mode_without_a_submitter_has_no_pod() -> None:
    with pytest.raises(errors.Rejected, match=r"no pod has the log.*HTTPMode"):
        await find(a_server("HTTPMode", rayClusterName="c"))


def test_options_that_select_pods_of_a_cluster_are_refused() -> None:
    submitters.check(LogChoice(every=True, container="submit"))
    with pytest.raises(errors.InvalidSpec, match="--head and --app cannot be used with a RayJob"):
        submitters.check(LogChoice(head=True, app="chat"))
