"""The verbs that act: several names, each form of the result, waiting, exit codes."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import msgspec
import pytest
from typer.testing import CliRunner

from common import errors
from common.kube.client import PatchRequest
from common.kube.resources import Resource
from raybus_cli import main, session, waiting
from raybus_cli.kubeconfig import KubeAccess
from support.builders.snapshots import BLUE, READY, UPGRADING, a_condition, a_service, a_side


class _Cluster:
    """An API server with services during an upgrade; a pause takes effect at once unless `is_slow`."""

    def __init__(self, *names: str) -> None:
        self.is_slow = False
        self.services = {name: self._service() for name in names}

    def _service(self, *conditions: dict[str, Any]) -> dict[str, Any]:
        return a_service(
            READY, UPGRADING, *conditions, active=a_side(BLUE), pending=a_side("demo-green")
        )

    async def get(self, _resource: Resource, _namespace: str, name: str) -> bytes:
        if name not in self.services:
            raise errors.NotFound(f"{name} not found")
        body = self.services[name]
        return msgspec.json.encode({**body, "metadata": {**body["metadata"], "name": name}})

    async def patch(
        self, _resource: Resource, _namespace: str, name: str, patch: PatchRequest
    ) -> bytes:
        assert not isinstance(patch.body, list)
        if not self.is_slow:
            self.services[name] = self._service(a_condition("UpgradePaused"))
        return b""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> _Cluster:
    fake = _Cluster("demo", "canary")

    def run(_place: KubeAccess, work: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        try:
            return asyncio.run(work(fake))
        except errors.RaybusError as problem:
            session.fail(problem)

    def where(*_: Any) -> KubeAccess:
        return KubeAccess(kubeconfig=None)

    monkeypatch.setattr(session, "run", run)
    monkeypatch.setattr(session, "select_access", where)
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.001)
    return fake


def _raybus(*arguments: str) -> Any:
    return CliRunner().invoke(main.build(arguments[0]), arguments)


@pytest.mark.usefixtures("cluster")
def test_each_result_is_a_line_in_the_form_of_kubectl() -> None:
    done = _raybus("pause", "demo", "rayservice/canary", "demo")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == "rayservice.ray.io/demo paused\nrayservice.ray.io/canary paused\n"


@pytest.mark.usefixtures("cluster")
def test_results_as_data_and_as_names() -> None:
    result = {
        "namespace": "default",
        "name": "demo",
        "action": "paused",
        "note": "",
        "state": "requested",
    }
    assert msgspec.json.decode(_raybus("pause", "demo", "-o", "json").stdout) == result
    both = msgspec.json.decode(_raybus("pause", "demo", "canary", "--wait", "-o", "json").stdout)
    assert both == [{**result, "state": "done"}, {**result, "name": "canary", "state": "done"}]
    assert _raybus("pause", "demo", "-o", "name").stdout == "rayservice.ray.io/demo\n"
    assert "action: paused" in _raybus("pause", "demo", "-o", "yaml").stdout


@pytest.mark.usefixtures("cluster")
def test_an_error_of_one_object_does_not_stop_the_others() -> None:
    done = _raybus("pause", "nobody", "canary")
    assert (done.exit_code, done.stdout) == (1, "rayservice.ray.io/canary paused\n")
    assert "nobody" in done.stderr


def test_a_wait_ends_with_an_error_at_its_time_limit(cluster: _Cluster) -> None:
    cluster.is_slow = True
    done = _raybus("pause", "demo", "--wait", "--timeout", "0", "-o", "json")
    assert (done.exit_code, msgspec.json.decode(done.stdout)["state"]) == (3, "timed out")
    assert done.stderr == (
        "error: not within 0 s: rayservice.ray.io/demo is not paused yet: Upgrading: "
        "Both active and pending Ray clusters exist; see 'raybus explain demo'\n"
    )


@pytest.mark.usefixtures("cluster")
def test_one_revision_is_not_that_of_several_objects() -> None:
    done = _raybus("undo", "demo", "canary", "--to-revision", "2")
    assert (done.exit_code, "takes one name" in done.stderr) == (2, True)
