"""The preStop hooks of workers and heads: where they are added, and their programs, run here with a Ray that only records what it is asked for."""

import math
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any, Final

import pytest

from cluster_reconciler.config import Config
from cluster_reconciler.resources import head_pod, worker_pod
from cluster_reconciler.resources.node import ReplicaIndex
from common import labels
from common.api.opaque import Body
from common.api.ray_cluster import RayCluster
from common.ray import ongoing, spec_hash
from support.builders.ray_cluster import (
    a_container,
    a_group,
    a_head,
    a_ray_cluster,
    a_template,
    first_group,
)
from support.tables import cases

ASKED = {labels.DRAIN_WORKERS: "true"}
RAYLET = """\
class RayNode:
    def __init__(self, address, state, node_id):
        self.node_manager_address, self.state, self.node_id = address, state, node_id


class GcsClient:
    def __init__(self, address):
        import os, socket
        if address == "gone:6379":
            raise RuntimeError("the head is gone")
        self.own = socket.gethostbyname(socket.gethostname())

    def get_all_node_info(self, timeout):
        return {
            1: RayNode(self.own, 1, b"\\x01"),
            2: RayNode("192.0.2.9", 0, b"\\x02"),
            3: RayNode(self.own, 0, b"\\x03"),
        }
"""


def a_worker(annotations: dict[str, str] = ASKED, **fields: Any) -> Body:
    template = a_template(a_container("ray-worker", **fields.pop("container", {})))
    template["spec"] |= fields
    cluster = a_ray_cluster(groups=[a_group(template=template)], annotations=annotations)
    return worker_pod.build(
        cluster, first_group(cluster), Config(), name="w", replica=ReplicaIndex(0)
    )


def hook(pod: Body) -> list[str]:
    return pod["spec"]["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]


def test_a_worker_of_a_cluster_that_asks_has_the_hook_and_nothing_else_changes() -> None:
    asked, other = a_worker(), a_worker({})
    assert hook(asked)[:3] == ["timeout", "25", "python"]
    del asked["spec"]["containers"][0]["lifecycle"]
    assert asked == other


@pytest.mark.parametrize(
    "annotations", [{}, {labels.DRAIN_WORKERS: "false"}, {labels.DRAIN_WORKERS: "yes"}]
)
def test_without_the_wish_there_is_none(annotations: dict[str, str]) -> None:
    assert "lifecycle" not in a_worker(annotations)["spec"]["containers"][0]


def a_head_pod(
    *, kind: str = "RayService", annotations: dict[str, str] = ASKED, **container: Any
) -> Body:
    head = a_head(
        template=a_template(a_container("ray-head", **container), terminationGracePeriodSeconds=15)
    )
    return head_pod.build(
        a_ray_cluster(head=head, annotations=annotations, labels={labels.ORIGIN_KIND: kind}),
        Config(),
        name="h",
    )


@cases(
    "pod",
    {
        "not asked for": a_head_pod(annotations={}),
        "nothing is served": a_head_pod(kind="RayJob"),
        "no port of Serve": a_head_pod(ports=[{"name": "gcs-server", "containerPort": 6379}]),
    },
)
def test_which_head_has_none(pod: Body) -> None:
    assert "lifecycle" not in pod["spec"]["containers"][0]


def test_a_head_reads_the_metrics_that_count_the_requests_in_flight() -> None:
    program = hook(a_head_pod())[-1]
    assert [name for name in ongoing.PROXIES if name.decode() not in program] == []


def test_a_job_with_the_pod_of_a_head_has_none() -> None:
    cluster = a_ray_cluster(annotations=ASKED, labels={labels.ORIGIN_KIND: "RayService"})
    job = head_pod.build_cleanup_job(cluster, Config())
    assert "lifecycle" not in job["spec"]["template"]["spec"]["containers"][0]


def test_a_users_own_hook_stays_and_their_other_handler_too() -> None:
    mine: Body = {"preStop": {"exec": {"command": ["ray", "stop"]}}}
    assert a_worker(container={"lifecycle": mine})["spec"]["containers"][0]["lifecycle"] == mine
    started: Body = {"postStart": {"exec": {"command": ["true"]}}}
    assert a_worker(container={"lifecycle": started})["spec"]["containers"][0][
        "lifecycle"
    ].keys() == {"postStart", "preStop"}


@pytest.mark.parametrize(
    ("grace", "seconds"), [(None, "25"), (120, "115"), (30, "25"), (6, "5"), (0, "5")]
)
def test_it_ends_before_the_grace_period(grace: int | None, seconds: str) -> None:
    fields: dict[str, Any] = {} if grace is None else {"terminationGracePeriodSeconds": grace}
    assert hook(a_worker(**fields))[1] == seconds


def test_it_starts_no_upgrade() -> None:
    def hashed(cluster: RayCluster) -> str:
        return spec_hash.cluster_spec_hash(cluster.raw_spec)

    assert hashed(a_ray_cluster(annotations=ASKED)) == hashed(a_ray_cluster())


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """Listen on a free port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


@pytest.fixture
def metrics() -> Iterator[Callable[[str], int]]:
    """Serve the metrics of a node; return a function that sets them and returns the port."""
    text = b""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  (as the base has it)
            """Write nothing."""

    def publish(exposition: str) -> int:
        nonlocal text
        text = exposition.encode()
        return served.server_port

    with HTTPServer(("127.0.0.1", 0), Handler) as served:
        thread = threading.Thread(target=served.serve_forever)
        thread.start()
        yield publish
        served.shutdown()
        thread.join()


def wait_of_a_head(port: int, *, metrics: int = 9) -> float:
    """Run the hook of a head that serves at a port at ten times the speed; return the seconds that
    it took, infinity for more than 3.
    """
    ports = [
        {"name": "serve", "containerPort": port},
        {"name": "metrics", "containerPort": metrics},
    ]
    command = hook(a_head_pod(ports=ports))
    assert command[:3] == ["timeout", "10", "python"]
    program = command[-1].replace(">= 5", ">= 0.5").replace(">= 15", ">= 1")
    began = time.monotonic()
    done = subprocess.run(
        ["timeout", "3", sys.executable, "-c", program], check=False, capture_output=True
    )
    assert (done.stderr, done.returncode in {0, 124}) == (b"", True)
    return time.monotonic() - began if done.returncode == 0 else float("inf")


def test_a_head_ends_when_nothing_is_connected_to_serve(server: socket.socket) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        socket.create_connection(other.getsockname()),
    ):
        assert 0.5 <= wait_of_a_head(server.getsockname()[1]) < 3


BUSY: Final = 'ray_serve_num_ongoing_http_requests{node="a"} 0.0\nray_serve_num_ongoing_http_requests{node="b"} 2.0\n'
IDLE: Final = BUSY.replace("2.0", "0.0") + "ray_serve_num_ongoing_requests_at_replicas 3.0\n"


@cases(
    ("exposition", "least", "most"),
    {
        "a gateway keeps idle connections open": (IDLE, 1, 3),
        "a request is in flight": (BUSY, math.inf, math.inf),
        "Ray dropped the number of a long one": (
            "ray_node_cpu_utilization 1.0\n",
            math.inf,
            math.inf,
        ),
        "no number": ("ray_serve_num_ongoing_http_requests{} none\n", math.inf, math.inf),
    },
)
def test_a_head_with_connections_ends_when_its_metrics_are_without_requests(
    server: socket.socket, metrics: Callable[[str], int], exposition: str, least: float, most: float
) -> None:
    with socket.create_connection(server.getsockname()):
        assert least <= wait_of_a_head(server.getsockname()[1], metrics=metrics(exposition)) <= most


def test_a_head_without_metrics_waits_for_its_connections(server: socket.socket) -> None:
    client = socket.create_connection(server.getsockname())
    accepted, _ = server.accept()
    timer = threading.Timer(1.5, lambda: (client.close(), accepted.close()))
    timer.start()
    assert 1.5 <= wait_of_a_head(server.getsockname()[1]) < 3
    timer.join()


@pytest.fixture
def ray(tmp_path: Path) -> dict[str, str]:
    """Install a Ray that records its calls and ends its node; return the environment of its container."""
    package, programs, raylet = tmp_path / "lib" / "ray", tmp_path / "bin", tmp_path / "proc" / "77"
    for each in (package, programs, raylet):
        each.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "_raylet.py").write_text(RAYLET)
    (raylet / "stat").write_text("77 (raylet) S 1")
    (raylet.parent / "self").mkdir()
    (programs / "ray").write_text(
        f'#!/bin/sh\necho "$@" >> {tmp_path}/calls\ncp {tmp_path}/after {raylet}/stat\n'
    )
    (programs / "ray").chmod(0o755)
    (programs / "python").symlink_to(sys.executable)
    (tmp_path / "after").write_text("77 (raylet) Z 1")
    path = f"{programs}:{os.environ['PATH']}"
    return {
        "PATH": path,
        "PYTHONPATH": str(tmp_path / "lib"),
        "RAY_ADDRESS": "c-head-svc:6379",
        "PROC": str(raylet.parent),
    }


def run(ray: dict[str, str], **fields: Any) -> tuple[int, float]:
    began, command = time.monotonic(), hook(a_worker(**fields))
    command[-1] = command[-1].replace("/proc", ray["PROC"])
    done = subprocess.run(command, env=ray, capture_output=True, check=False)
    return done.returncode, time.monotonic() - began


def test_it_drains_this_node_alone_by_its_id_and_its_deadline(
    ray: dict[str, str], tmp_path: Path
) -> None:
    assert run(ray)[0] == 0
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert call.startswith(
        "drain-node --address c-head-svc:6379 --reason DRAIN_NODE_REASON_PREEMPTION --reason-message "
    )
    assert call.endswith("--deadline-remaining-seconds 25 --node-id 03")


def test_it_ends_with_the_node_and_does_not_wait_for_a_zombie(ray: dict[str, str]) -> None:
    code, seconds = run(ray, terminationGracePeriodSeconds=600)
    assert (code, seconds < 20) == (0, True)


def test_it_waits_for_a_node_that_does_not_end_until_the_time_is_over(
    ray: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "after").write_text("77 (raylet) S 1")
    _, seconds = run(ray, terminationGracePeriodSeconds=8)
    assert 4 < seconds < 20


def test_without_the_head_it_fails_at_once_and_the_pod_ends(
    ray: dict[str, str], tmp_path: Path
) -> None:
    code, seconds = run({**ray, "RAY_ADDRESS": "gone:6379"})
    assert (code != 0, seconds < 20, (tmp_path / "calls").exists()) == (True, True, False)
