"""The files of Serve's replicas, as an untrusted dashboard names them."""

from typing import Any

import msgspec
import pytest

from common import errors
from common.api.opaque import Json
from raybus_cli.logs import replicas
from raybus_cli.logs.selection import Log, LogChoice, LogExtent, LogSource
from support.tables import cases

NODE = "f" * 56


def _replica(number: int, path: str | None = None) -> Json:
    file = f"/serve/replica_app_Model_{number}.log" if path is None else path
    return {
        "node_id": NODE,
        "node_instance_id": f"demo-gpu-{number}",
        "log_file_path": file,
        "state": "RUNNING",
    }


def _details(*found: Json, name: str = "app") -> replicas.Details:
    deployments: Json = {"Model": {"replicas": list(found)}, "Front": {"replicas": []}}
    return replicas.decode(
        msgspec.json.encode({"applications": {name: {"deployments": deployments}}})
    )


def _logs(details: replicas.Details, extent: LogExtent = LogExtent(), **options: Any) -> list[Log]:  # noqa: B008  (frozen)
    return replicas.select_logs(details, "default", "demo-head-svc", LogChoice(**options), extent)


def test_each_replica_is_a_log_of_its_pod() -> None:
    first, second = _logs(_details(_replica(1), _replica(2)), app="app")
    assert first.source == LogSource("demo-gpu-1", "replica_app_Model_1.log")
    assert (
        first.path
        == "/api/v1/namespaces/default/services/demo-head-svc:dashboard/proxy/api/v0/logs/file"
    )
    assert first.query == {
        "node_id": NODE,
        "filename": "serve/replica_app_Model_1.log",
        "lines": "-1",
        "format": "text",
    }
    assert second.source.pod == "demo-gpu-2"


def test_a_followed_log_is_a_stream_from_the_wanted_line() -> None:
    (log,) = _logs(_details(_replica(1)), LogExtent(follow=True, tail=5), deployment="Model")
    assert log.path.endswith("/api/v0/logs/stream")
    assert (log.query["lines"], log.query["interval"]) == ("5", "0.5")


def test_the_application_without_a_name_is_the_default() -> None:
    assert len(_logs(_details(_replica(1), name=""), app="default")) == 1


def test_a_pod_narrows_them() -> None:
    assert [
        each.source.pod
        for each in _logs(_details(_replica(1), _replica(2)), app="app", pod="demo-gpu-2")
    ] == ["demo-gpu-2"]


@pytest.mark.parametrize(
    "path",
    [
        "/serve/../../../etc/passwd",
        "/etc/passwd",
        "serve/replica_a.log/../x",
        "serve/controller_1.log",
        "",
    ],
)
def test_a_file_that_is_no_log_of_a_replica_is_not_read(path: str) -> None:
    with pytest.raises(errors.Rejected, match="no replica with a log"):
        _logs(_details(_replica(1, path)), app="app")


@cases(
    ("options", "message"),
    {
        "an application": ({"app": "x"}, "no application 'x'; applications: app"),
        "a deployment": ({"deployment": "x"}, "no deployment 'x'; deployments: Model, Front"),
        "without replicas": ({"deployment": "Front"}, "no replica with a log"),
    },
)
def test_what_serve_does_not_have_is_refused(options: Json, message: str) -> None:
    with pytest.raises(errors.Rejected, match=message):
        _logs(_details(_replica(1)), **options)


@pytest.mark.parametrize(
    "body",
    [b"<html>", b"[]", b'{"applications": 1}', b'{"x":' * 5000, b'{"applications": {"\xff": {}}}'],
)
def test_an_answer_that_is_no_status_is_an_error(body: bytes) -> None:
    with pytest.raises(errors.Unavailable, match="is not Serve status"):
        replicas.decode(body)
