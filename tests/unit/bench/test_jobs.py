"""The benchmark of RayJobs: its goals, and the simulated heads that run the drivers."""

import asyncio
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, web
from aiohttp.test_utils import TestServer

from bench import jobs
from bench.background import BenchObject
from bench.heads import FORWARDED, Heads
from bench.jobs import Figures, Result, RunningJobsCost
from support.fakes.ray_jobs import JOBS

FROM_CLUSTER = {FORWARDED: "/api/v1/namespaces/ns/services/train-head-svc:dashboard/proxy/"}


def figures(name: str = "raybus", *, rest: RunningJobsCost | None = None, **fields: Any) -> Figures:
    """Build figures of ten jobs: 10 s, 20 ms and 5 requests for each."""
    values: dict[str, Any] = {
        "wall": 10.0,
        "latency_p50": 5.0,
        "latency_p99": 9.0,
        "requests": {"create pods": 20, "get services/proxy": 30},
        "cpu_by_program": {"watcher": 0.1, "job_reconciler": 0.1},
        "control_plane_cpu": {"kube-apiserver": 0.4},
        "peak_pss": 200.0,
        "computation_ms": 1.0,
    }
    return Figures(name=name, jobs=10, rest=rest, **(values | fields))


def at_rest(percent: float, **writes: int) -> RunningJobsCost:
    """Build the figures of jobs at rest, on a raybus that takes 1 % of a core without them."""
    return RunningJobsCost(
        jobs=500,
        minutes=1.0,
        writes=writes,
        asked_per_second={"job": 20.0},
        percent_of_a_core={"job_reconciler": percent},
        percent_without_jobs=1.0,
    )


@pytest.mark.parametrize(("wall", "is_reached"), [(9.0, True), (9.1, False)])
def test_each_goal_beside_a_peer_is_a_share_of_its_figure(wall: float, *, is_reached: bool) -> None:
    found = Result(rounds=[[figures(wall=wall, cpu_by_program={}, requests={}), figures("peer")]])
    assert [goal.is_reached for goal in found.goals] == [is_reached, True, True]
    assert f"{wall} s beside 10.0 s" in found.goals[0].value


def test_the_median_of_the_rounds_is_judged() -> None:
    slow, quick = figures(wall=20.0), figures(wall=8.0)
    peer = figures("peer")
    assert Result(rounds=[[slow, peer], [quick, peer], [quick, peer]]).goals[0].is_reached
    assert not Result(rounds=[[slow, peer], [slow, peer], [quick, peer]]).goals[0].is_reached


def test_without_a_peer_only_the_jobs_at_rest_are_judged() -> None:
    found = Result(rounds=[[figures(rest=at_rest(3.9))]])
    assert [goal.is_reached for goal in found.goals] == [None, None, None, True, True]


def test_running_jobs_may_cost_a_few_percent_of_a_core_and_no_write() -> None:
    found = Result(rounds=[[figures(rest=at_rest(4.1, patches=2))]])
    assert [goal.is_reached for goal in found.goals[-2:]] == [False, False]


@pytest.mark.parametrize(
    ("percents", "is_reached"), [((3.9, 3.9, 9.0), True), ((9.0, 9.0, 3.9), False)]
)
def test_the_median_of_the_jobs_at_rest_is_judged(
    percents: tuple[float, ...], *, is_reached: bool
) -> None:
    found = Result(rounds=[[figures(rest=at_rest(percent))] for percent in percents])
    assert [goal.is_reached for goal in found.goals[-2:]] == [is_reached, True]


def test_a_write_at_rest_in_any_round_misses_the_goal() -> None:
    rests = [at_rest(3.9, patches=2), at_rest(3.9)]
    found = Result(rounds=[[figures(rest=rest)] for rest in rests])
    assert (found.goals[-1].value, found.goals[-1].is_reached) == ("2", False)


def test_requests_to_dashboards_are_requests_but_no_writes() -> None:
    found = figures(requests={"create pods": 20, "create services/proxy": 10, "get pods": 10})
    assert (found.requests_per_job, found.writes_per_job) == (4.0, 2.0)


def test_a_job_is_counted_in_the_state_that_is_waited_for() -> None:
    metadata, status = {"name": "j", "namespace": "ns"}, {"jobDeploymentStatus": "Running"}
    job = msgspec.convert({"metadata": metadata, "status": status}, BenchObject)
    assert jobs.recognize_status("Running")(job) == ("ns", "j")
    assert jobs.recognize_status("Complete")(job) is None


async def test_a_head_runs_a_driver_and_ends_it_if_its_entrypoint_says_so() -> None:
    heads = Heads()
    heads.driver_seconds["quick"] = 0.0
    app = web.Application()
    for method in ("GET", "POST"):
        app.router.add_route(method, f"{JOBS}{{rest:.*}}", heads.job)
    async with TestServer(app) as server, ClientSession(headers=FROM_CLUSTER) as session:
        for name in ("quick", "endless"):
            body = {"entrypoint": name, "submission_id": name}
            async with session.post(server.make_url(JOBS), json=body) as answer:
                assert answer.status == 200
        await asyncio.sleep(0)
        states = dict[str, str]()
        for name in ("quick", "endless"):
            async with session.get(server.make_url(f"{JOBS}{name}")) as answer:
                states[name] = (await answer.json())["status"]
        async with session.get(server.make_url(f"{JOBS}unknown")) as answer:
            assert answer.status == 404
    assert states == {"quick": "SUCCEEDED", "endless": "RUNNING"}
    assert heads.asked == {"submission": 2, "job": 3}
