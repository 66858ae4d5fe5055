"""The end of a RayJob is awaited, and its state fits on one screen."""

from functools import partial
from typing import Any

import pytest

from common.api.opaque import Json
from common.kube.resources import RAY_JOB
from raybus_cli import session
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.printing import Output
from raybus_cli.show import job_report as report
from raybus_cli.show import job_status as status
from support.builders.ray_job import FAILED_JOB, a_cluster_spec, a_ray_job
from support.builders.snapshots import NOW
from support.fakes.kube import FakeKube
from support.golden import Golden
from support.terminal import text_of


class Server(FakeKube):
    async def close(self) -> None:
        """Do nothing, since there is no connection."""


async def _connect(server: Server, _place: KubeAccess) -> Server:
    return server


def show(monkeypatch: pytest.MonkeyPatch, job_status: Json) -> int:
    server = Server()
    spec: Any = {"entrypoint": "python a.py", "rayClusterSpec": a_cluster_spec()}
    server.put(RAY_JOB, {"metadata": {"name": "score"}, "spec": spec, "status": job_status})
    monkeypatch.setattr(session, "connect", partial(_connect, server))
    place = KubeAccess(kubeconfig=None, namespace="default")
    return status.show(place, "score", Output.TEXT, seconds=0)


def test_the_exit_code_is_the_outcome_of_the_job(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    succeeded = {"jobDeploymentStatus": "Complete", "jobStatus": "SUCCEEDED"}
    assert show(monkeypatch, succeeded) == 0
    assert show(monkeypatch, dict(FAILED_JOB)) == 1
    assert capsys.readouterr().err == ""
    assert show(monkeypatch, {"jobDeploymentStatus": "Running", "jobStatus": "PENDING"}) == 3
    assert "not within 0 s: Running: PENDING" in capsys.readouterr().err


def test_the_state_of_a_failed_job_fits_on_one_screen(golden: Golden) -> None:
    job = a_ray_job("score", status=dict(FAILED_JOB))
    shown = text_of(status.draw(report.build(job, NOW)), width=80)
    golden.check(
        "cli/status-rayjob.txt", "\n".join(line.rstrip() for line in shown.splitlines()) + "\n"
    )
