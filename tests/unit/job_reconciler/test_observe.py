"""The parts of Ray's answers that an observation of a running RayJob contains (spec rayjob §25)."""

from datetime import timedelta
from typing import cast

import msgspec
import pytest

from common.api import core, ray_cluster
from common.api.meta import ObjectMeta
from common.api.ray_cluster import RayCluster
from common.ray.jobs import JobInfo
from common.ray.jobs_api import JobsApi
from common.runtime.cache import Cache
from common.runtime.key import Key
from common.runtime.lookup import Lookup
from job_reconciler.observe import Observer
from job_reconciler.outcome import UnknownJob
from job_reconciler.settings import Config
from support.builders.ray_job import a_cluster_spec, a_ray_job
from support.fakes.clock import FakeClock
from support.fakes.kube import FakeKube

KEY = Key("ns", "train")


class StuckJobs:
    """A jobs API that repeats an old answer, as it does while too many dashboards are slow."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._asked_at = clock.monotonic()
        self.is_stuck = True

    async def find(
        self, _cluster: RayCluster, _job_id: str, *, max_age: float = 0.0
    ) -> JobInfo | None:
        if not self.is_stuck and self._clock.monotonic() - self._asked_at >= max_age:
            self._asked_at = self._clock.monotonic()

    def get_time_of_request(self, _cluster: RayCluster, _job_id: str) -> float:
        return self._asked_at


@pytest.fixture
def world() -> tuple[Observer, Cache, FakeClock, StuckJobs]:
    clock, cache = FakeClock(), Cache()
    jobs = StuckJobs(clock)
    observer = Observer(
        cache, Lookup(FakeKube(), cache, clock), cast("JobsApi", jobs), Config(), clock
    )
    status = {"jobDeploymentStatus": "Running", "jobId": "train-1", "rayClusterName": "train-1"}
    cache.put(a_ray_job(status=status))
    cluster = {"metadata": {"name": "train-1", "namespace": "ns"}, "spec": a_cluster_spec()}
    cache.put(ray_cluster.decode(cluster))
    return observer, cache, clock, jobs


def end_submitter(cache: Cache, clock: FakeClock) -> None:
    condition = core.JobCondition(
        type="Complete", status="True", last_transition_time=clock.now() - timedelta(seconds=1)
    )
    metadata = ObjectMeta(name="train", namespace="ns", resource_version="9")
    cache.put(core.Job(metadata=metadata, status=core.JobStatus(conditions=[condition])))


async def test_an_answer_from_before_the_end_of_the_submitter_decides_nothing(
    world: tuple[Observer, Cache, FakeClock, StuckJobs],
) -> None:
    observer, cache, clock, jobs = world
    cache.put(core.Job(metadata=ObjectMeta(name="train", namespace="ns", resource_version="8")))
    before = await observer.observe(KEY, clock.now())
    assert before is not None
    assert before.ray is not None
    clock.advance(10)
    end_submitter(cache, clock)
    stale = await observer.observe(KEY, clock.now())
    assert stale is not None
    assert stale.submitter.has_ended
    assert stale.ray is None
    jobs.is_stuck = False
    fresh = await observer.observe(KEY, clock.now())
    assert fresh is not None
    assert fresh.ray is not None
    assert fresh.ray.answer == UnknownJob()
    again = await observer.observe(KEY, clock.now())
    assert again is not None
    assert msgspec.structs.asdict(again) == msgspec.structs.asdict(fresh)
