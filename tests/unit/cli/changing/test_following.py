"""`--wait` of `restart` and `set image`: until the changed spec is served, with the exit codes of `status`."""

from collections.abc import Mapping
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from common.api import ray_cluster
from common.kube.resources import RAY_CLUSTER
from raybus_cli import kubeconfig, main, session, waiting
from raybus_cli.changing import execute
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.planning.plan import UpgradePlan
from raybus_cli.show import rollout_wait
from raybus_cli.show.rollout_status import RolloutState, RolloutStatus
from support.builders.snapshots import BLUE, NOW, a_cluster, a_condition, a_config
from support.fakes.kube import FakeKube
from support.tables import cases
from unit.cli.test_recordings import _planned as a_plan  # pyright: ignore[reportPrivateUsage]  (the plan of a new cluster)

HEAD_READY = a_condition("HeadPodReady")
READY: dict[str, Any] = {
    "conditions": [HEAD_READY],
    "observedGeneration": 1,
    "desiredWorkerReplicas": 2,
    "availableWorkerReplicas": 2,
}


class Server(FakeKube):
    """An API server with one RayCluster."""

    def __init__(self, status: Mapping[str, Any]) -> None:
        super().__init__(now=lambda: NOW)
        self.put(RAY_CLUSTER, a_cluster(BLUE, a_config(), **status))

    async def close(self) -> None:
        """Do nothing, since there is no connection."""


@cases(
    ("changed", "text"),
    {
        "ready": ({}, ""),
        "not observed": ({"observedGeneration": 0}, "raybus has not observed generation 1 yet"),
        "no head": ({"conditions": []}, "the head pod is not ready"),
        "a worker is missing": ({"availableWorkerReplicas": 1}, "1 of 2 workers are available"),
    },
)
def test_a_cluster_is_ready_with_its_present_spec(changed: dict[str, Any], text: str) -> None:
    cluster = a_cluster(BLUE, a_config(), **{**READY, **changed})
    cluster["metadata"]["generation"] = 1
    assert rollout_wait.describe_pending(ray_cluster.decode(cluster)).startswith(text)
    assert bool(rollout_wait.describe_pending(ray_cluster.decode(cluster))) is bool(text)


def _type(command: str, monkeypatch: pytest.MonkeyPatch, status: Mapping[str, Any]) -> Result:
    async def connect(_place: KubeAccess) -> Server:
        return Server(status)

    async def change(*_: Any) -> UpgradePlan:
        return a_plan()

    def find(*_: Any, **__: Any) -> KubeAccess:
        return KubeAccess(kubeconfig=None)

    monkeypatch.setattr(session, "connect", connect)
    monkeypatch.setattr(kubeconfig, "find", find)
    monkeypatch.setattr(execute, "change", change)
    monkeypatch.setattr(waiting, "POLL_SECONDS", 0.01)
    arguments = command.split()
    return CliRunner().invoke(main.build(arguments[0]), arguments)


@pytest.mark.parametrize(
    ("course", "code"),
    [(RolloutState.DONE, 0), (RolloutState.FAILED, 1), (RolloutState.TIMED_OUT, 3)],
)
@pytest.mark.parametrize("command", ["restart demo", "set image demo head=rayproject/ray:2.53.0"])
def test_a_service_is_waited_for_as_status_does(
    command: str, course: RolloutState, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    async def until_over(
        _kube: Any, _namespace: str, name: str, *, seconds: float
    ) -> RolloutStatus:
        assert name == "demo"
        waits.append(seconds)
        return RolloutStatus(course=course, text="the end")

    monkeypatch.setattr(rollout_wait, "wait_until_over", until_over)
    done = _type(f"{command} --wait --timeout 90s", monkeypatch, READY)
    assert (done.exit_code, waits) == (code, [90.0])
    assert "the end" in done.output
    assert _type(f"{command} --wait --dry-run", monkeypatch, READY).exit_code == 0
    assert _type(command, monkeypatch, READY).exit_code == 0
    assert len(waits) == 1


def test_a_cluster_is_waited_for_by_its_status(monkeypatch: pytest.MonkeyPatch) -> None:
    done = _type(f"restart raycluster/{BLUE} --wait", monkeypatch, READY)
    assert (done.exit_code, done.stdout.splitlines()[-1]) == (
        0,
        f"RayCluster default/{BLUE} is ready",
    )
    late = _type(
        f"restart raycluster/{BLUE} --wait --timeout 0", monkeypatch, {**READY, "conditions": []}
    )
    assert late.exit_code == 3
    assert late.stderr.splitlines()[-1] == "not within 0 s: the head pod is not ready"


def test_data_stays_data(monkeypatch: pytest.MonkeyPatch) -> None:
    done = _type(f"restart raycluster/{BLUE} --wait -o name", monkeypatch, READY)
    assert (done.stdout, done.stderr) == (
        f"raycluster.ray.io/{BLUE}\n",
        f"RayCluster default/{BLUE} is ready\n",
    )
