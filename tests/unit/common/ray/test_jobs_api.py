"""Jobs over the dashboards of clusters: find, submit, stop (spec rayjob §9)."""

import asyncio
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
import pytest
from aiohttp import web
from msgspec.structs import replace

from common import errors
from common.api.core import Service
from common.api.ray_cluster import RayCluster
from common.kube.client import KubeClient
from common.kube.resources import ENDPOINT_SLICE, SERVICE
from common.kube.rest_config import RestConfig
from common.ray.cluster_dashboards import MAX_CONCURRENT_SLOW_CALLS, READ_INTERVAL
from common.ray.dashboard import ProxiedDashboard, Target
from common.ray.jobs import JobInfo, Submission
from common.ray.jobs_api import JobsApi
from common.runtime.cache import Cache
from support.builders.ray_cluster import a_ray_cluster
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube
from support.fakes.ray_jobs import FakeJobs
from support.fakes.serve import FakeServe
from support.servers.loopback import served
from unit.common.ray.test_head_address import OWN, a_slice
from unit.common.ray.test_head_address import SERVICE as HEAD_SERVICE

JOB = Submission(entrypoint="python main.py", submission_id="train-1")
HEAD = replace(HEAD_SERVICE, metadata=replace(HEAD_SERVICE.metadata, uid="uid-of-svc"))
CLUSTER = a_ray_cluster()


class World:
    """One cluster with a head, and the API under test."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.serve = FakeServe(self.clock)
        self.head = self.serve.head("c-head-svc")
        self.cache = Cache()
        self.cache.put(HEAD, partition=0)
        self.cache.put(a_slice(OWN), partition=0)
        self.api = JobsApi(self.serve, FakeKube(), self.cache, self.clock)

    @property
    def jobs(self) -> FakeJobs:
        return self.head.jobs

    async def find(self, *, max_age: float = 0.0) -> JobInfo | None:
        return await self.api.find(CLUSTER, "train-1", max_age=max_age)


@pytest.fixture
def world() -> World:
    return World()


LONG: Final = "python main.py " * 10_000
"""More characters than are kept of an answer."""


async def test_a_job_is_submitted_and_followed_to_its_end(world: World) -> None:
    assert await world.find() is None
    await world.api.submit(CLUSTER, JOB)
    assert world.jobs.posts == [{"entrypoint": "python main.py", "submission_id": "train-1"}]
    found = await world.find()
    assert found is not None
    assert (found.state, found.end_time) == ("PENDING", None)
    world.jobs.run("train-1")
    world.clock.advance(60)
    world.jobs.end("train-1", "FAILED", "exit code 1")
    assert await world.find() == JobInfo(
        state="FAILED",
        message="exit code 1",
        start_time=datetime(2026, 1, 1, 12, 0, tzinfo=UTC),
        end_time=datetime(2026, 1, 1, 12, 1, tzinfo=UTC),
    )


async def test_an_id_that_is_used_counts_as_submitted(world: World) -> None:
    await world.api.submit(CLUSTER, JOB)
    await world.api.submit(CLUSTER, JOB)
    assert len(world.jobs.jobs) == 1


async def test_a_refused_job_gives_the_last_line_of_rays_traceback(world: World) -> None:
    world.jobs.refusal = "ValueError: 'pip' and 'conda' cannot both be given"
    with pytest.raises(
        errors.Rejected, match="Ray refuses the job: ValueError: 'pip' and 'conda' cannot both"
    ):
        await world.api.submit(CLUSTER, JOB)


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (400, "Traceback (most recent call last):\nTypeError: got an unexpected keyword\n"),
        (413, "Maximum request body size exceeded"),
        (400, f"Traceback of {LONG}:\nTypeError: got an unexpected keyword\n"),
        (500, f"Request failed with status code 400: {LONG}\nValueError: no such working_dir\n"),
    ],
)
async def test_a_refusal_gives_the_last_line_of_a_body_of_any_length(
    world: World, code: int, body: str
) -> None:
    world.jobs.answers["POST"] = code, body
    with pytest.raises(errors.Rejected, match=body.strip().splitlines()[-1]):
        await world.api.submit(CLUSTER, JOB)


@pytest.mark.parametrize("fault", ["no agent", "500", "silent"])
async def test_without_a_decision_of_ray_the_submission_is_open(world: World, fault: str) -> None:
    world.jobs.has_agent = fault != "no agent"
    world.head.behaviour = fault if fault in {"500", "silent"} else "ok"
    with pytest.raises(errors.Unavailable):
        await world.api.submit(CLUSTER, JOB)


@pytest.mark.parametrize("code", [404, 405, 408, 429, 502, 503])
async def test_another_server_decides_nothing_about_a_submission(world: World, code: int) -> None:
    world.jobs.answers["POST"] = code, "default backend"
    with pytest.raises(errors.Unavailable):
        await world.api.submit(CLUSTER, JOB)


async def test_a_missing_head_service_leaves_the_job_open(world: World) -> None:
    world.cache.remove(Service, "ns", "c-head-svc", version=10)
    with pytest.raises(errors.Unavailable):
        await world.find()


@pytest.mark.acceptance("rayjob", 77)
@pytest.mark.parametrize(
    ("code", "body"),
    [
        (500, '{"result": false}'),
        (404, "404: Not Found"),
        (404, "default backend - 404"),
        (404, "Job train-2 does not exist"),
        (403, "RBAC: access denied"),
        (200, "<html>please log in</html>"),
        (200, "[]"),
        (200, "{}"),
        (200, '{"status": null}'),
        (200, '{"status": 7}'),
        (200, '{"status": "' + "a" * 254 + '"}'),
        (200, '{"status": "RUNNING", "more": ' + "[" * 100_000 + "]" * 100_000 + "}"),
        (200, '{"status": "RUNNING", "message": "\xff'),
    ],
)
async def test_only_ray_itself_can_report_or_deny_a_job(world: World, code: int, body: str) -> None:
    world.jobs.answers["GET"] = code, body
    with pytest.raises(errors.Unavailable):
        await world.find()


@pytest.mark.acceptance("rayjob", 78)
@pytest.mark.parametrize(
    ("start", "end", "times"),
    [
        (1000, 2000, (datetime.fromtimestamp(1, UTC), datetime.fromtimestamp(2, UTC))),
        (1999, 2000.5, (datetime.fromtimestamp(1, UTC), datetime.fromtimestamp(2, UTC))),
        (0, None, (None, None)),
        (-1, 10**18, (None, None)),
        (-(10**30), 1e308, (None, None)),
    ],
)
async def test_times_of_ray_are_milliseconds(
    world: World, start: float, end: float | None, times: tuple[datetime | None, datetime | None]
) -> None:
    details = {"status": "RUNNING", "message": None, "start_time": start, "end_time": end}
    world.jobs.answers["GET"] = 200, msgspec.json.encode(details).decode()
    found = await world.find()
    assert found is not None
    assert (found.message, found.start_time, found.end_time) == ("", *times)


async def test_a_long_message_is_shortened(world: World) -> None:
    details = {"status": "FAILED", "message": "a" * 100_000 + "the reason"}
    world.jobs.answers["GET"] = 200, msgspec.json.encode(details).decode()
    found = await world.find()
    assert found is not None
    assert len(found.message) <= 8192
    assert found.message.endswith("the reason")


@pytest.mark.parametrize("job_id", ["a/../b", "a?b=c#d", "ü %", "a/stop"])
async def test_an_id_is_one_segment_of_the_path(world: World, job_id: str) -> None:
    await world.api.submit(CLUSTER, replace(JOB, submission_id=job_id))
    found = await world.api.find(CLUSTER, job_id)
    assert found is not None
    await world.api.stop(CLUSTER, job_id)
    assert world.jobs.stops == [job_id]


@pytest.mark.parametrize("job_id", ["", ".", ".."])
async def test_an_id_that_is_another_path_is_not_sent(world: World, job_id: str) -> None:
    with pytest.raises(errors.Unavailable, match="is not the ID of a job"):
        await world.api.find(CLUSTER, job_id)
    assert world.serve.calls == []


async def test_stopping_ends_a_running_job_and_accepts_an_ended_one(world: World) -> None:
    await world.api.submit(CLUSTER, JOB)
    await world.api.stop(CLUSTER, "train-1")
    assert world.jobs.jobs["train-1"].status == "STOPPED"
    await world.api.stop(CLUSTER, "train-1")
    await world.api.stop(CLUSTER, "unknown")
    assert world.jobs.stops == ["train-1", "train-1", "unknown"]


async def test_a_job_that_does_not_stop_is_an_error(world: World) -> None:
    await world.api.submit(CLUSTER, JOB)
    world.jobs.answers["POST"] = 200, '{"stopped": false}'
    with pytest.raises(errors.Unavailable, match="has not stopped job train-1, which is PENDING"):
        await world.api.stop(CLUSTER, "train-1")


@pytest.mark.parametrize("answer", [(200, "gone"), (404, "gone"), (500, "gone")])
async def test_a_stop_without_an_answer_of_ray_is_open(
    world: World, answer: tuple[int, str]
) -> None:
    world.jobs.answers["POST"] = answer
    with pytest.raises(errors.Unavailable):
        await world.api.stop(CLUSTER, "train-1")


async def test_a_young_answer_is_not_asked_for_again(world: World) -> None:
    await world.find(max_age=3)
    world.clock.advance(2)
    await world.find(max_age=3)
    assert len(world.serve.calls) == 1
    world.clock.advance(1)
    await world.find(max_age=3)
    assert len(world.serve.calls) == 2


async def test_a_submission_makes_the_last_answer_old(world: World) -> None:
    await world.find(max_age=3)
    await world.api.submit(CLUSTER, JOB)
    assert await world.find(max_age=3) is not None


async def test_a_silent_dashboard_is_given_pauses_and_noticed_when_it_is_back(world: World) -> None:
    world.head.behaviour = "500"
    for _ in range(20):
        with pytest.raises(errors.Unavailable):
            await world.find()
        world.clock.advance(1)
    assert len(world.serve.calls) < 8
    world.head.behaviour = "ok"
    world.clock.advance(5)
    assert await world.find() is None


async def test_a_refused_token_is_told_apart_from_silence(world: World) -> None:
    world.head.expects = "secret"
    for _ in range(2):  # the second answer is the remembered one
        with pytest.raises(errors.Unauthenticated, match="asks for a token"):
            await world.find()


async def test_a_submission_with_a_refused_token_is_no_refusal_of_the_job(world: World) -> None:
    world.head.expects = "secret"
    with pytest.raises(errors.Unauthenticated, match="asks for a token"):
        await world.api.submit(CLUSTER, JOB)
    assert world.jobs.posts == []


@pytest.mark.acceptance("rayjob", 79)
async def test_a_dashboard_is_asked_through_the_api_server(world: World) -> None:
    asked: list[tuple[str, str]] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append((request.method, request.raw_path))
        return web.Response(text='{"status": "RUNNING", "stopped": true}')

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    async with served(app) as port:
        kube = KubeClient(RestConfig(server=f"http://127.0.0.1:{port}"), user_agent="test")
        api = JobsApi(ProxiedDashboard(kube), FakeKube(), world.cache, world.clock)
        await api.find(CLUSTER, "train-1")
        await api.submit(CLUSTER, JOB)
        await api.stop(CLUSTER, "train-1")
        await kube.close()
    proxy = "/api/v1/namespaces/ns/services/c-head-svc:dashboard/proxy/api/jobs/"
    assert asked == [("GET", f"{proxy}train-1"), ("POST", proxy), ("POST", f"{proxy}train-1/stop")]


class SlowDashboard:
    """Answers after some seconds on the clock, or only when the test lets it."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.hangs = False
        self.waiting = 0
        self.all_wait = asyncio.Event()

    async def request(self, target: Target, path: str, **options: Any) -> bytes:
        del target, path, options
        if self.hangs:
            self.waiting += 1
            if self.waiting == MAX_CONCURRENT_SLOW_CALLS:
                self.all_wait.set()
            await asyncio.Event().wait()
        self._clock.advance(1.5)
        return b'{"status": "RUNNING"}'


def _another(number: int) -> RayCluster:
    return a_ray_cluster(metadata={"uid": f"uid-{number}"})


@pytest.mark.acceptance("rayjob", 80)
async def test_slow_dashboards_do_not_delay_others_and_keep_their_last_answer() -> None:
    world = World()
    slow = SlowDashboard(world.clock)
    clusters = [_another(number) for number in range(MAX_CONCURRENT_SLOW_CALLS + 2)]
    for cluster in clusters:
        name = f"head-of-{cluster.metadata.uid}"
        owners = [replace(HEAD.metadata.owner_references[0], uid=cluster.metadata.uid)]
        metadata = replace(HEAD.metadata, name=name, owner_references=owners)
        world.cache.put(replace(HEAD, metadata=metadata), partition=0)
    clusters = [
        replace(
            cluster,
            status=replace(
                cluster.status,
                head=replace(cluster.status.head, service_name=f"head-of-{cluster.metadata.uid}"),
            ),
        )
        for cluster in clusters
    ]
    api = JobsApi(slow, FakeKube(), world.cache, world.clock)
    for cluster in clusters[:-1]:
        assert await api.find(cluster, "train-1") is not None  # now it is known to be slow
    slow.hangs = True
    async with asyncio.TaskGroup() as group:
        hanging = [
            group.create_task(api.find(cluster, "train-1"))
            for cluster in clusters[:MAX_CONCURRENT_SLOW_CALLS]
        ]
        await slow.all_wait.wait()
        last = await api.find(clusters[-2], "train-1")
        assert last is not None
        assert last.state == "RUNNING"
        with pytest.raises(errors.Unavailable, match="too many other dashboards are slow"):
            await api.submit(clusters[-2], JOB)
        slow.hangs = False
        assert await api.find(clusters[-1], "train-1") is not None
        for task in hanging:
            task.cancel()


class Recorder(SlowDashboard):
    """Records the targets of requests."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self.targets: list[Target] = []

    async def request(self, target: Target, path: str, **options: Any) -> bytes:
        self.targets.append(target)
        return await super().request(target, path, **options)


async def test_the_head_of_a_selected_cluster_is_read_from_the_api_server() -> None:
    clock, kube = FakeClock(), FakeKube()
    kube.put(SERVICE, msgspec.to_builtins(HEAD))
    kube.put(ENDPOINT_SLICE, msgspec.to_builtins(a_slice(OWN)))
    recorder = Recorder(clock)
    api = JobsApi(recorder, kube, Cache(), clock)
    await api.find(CLUSTER, "train-1")
    assert [(target.head_ip, target.port) for target in recorder.targets] == [(OWN, 8265)]
    reads = len(kube.requests)
    await api.find(CLUSTER, "train-1")
    assert len(kube.requests) == reads
    clock.advance(READ_INTERVAL)
    await api.find(CLUSTER, "train-1")
    assert len(kube.requests) == 2 * reads


async def test_objects_of_the_bus_are_not_read_from_the_api_server(world: World) -> None:
    recorder, kube = Recorder(world.clock), FakeKube()
    await JobsApi(recorder, kube, world.cache, world.clock).find(CLUSTER, "train-1")
    assert recorder.targets[0].head_ip == OWN
    assert kube.requests == []


async def test_a_foreign_service_is_not_asked() -> None:
    world = World()
    metadata = replace(HEAD.metadata, owner_references=[], resource_version="7")
    world.cache.put(replace(HEAD, metadata=metadata), partition=0)
    with pytest.raises(errors.Unavailable, match="is not owned by RayCluster c"):
        await world.find()
    assert world.serve.calls == []


async def test_what_is_forgotten_has_its_token_read_again(world: World) -> None:
    world.api.forget([CLUSTER])
    assert await world.find() is None
