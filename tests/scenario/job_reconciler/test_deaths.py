"""The process dies before or after any of its writes: each attempt runs its driver once.

The next process remembers nothing. What a user asked for still happens, and nothing is left over.
"""

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from common.kube.resources import RAY_CLUSTER, RAY_JOB
from scenario.job_reconciler.harness import NAME, Harness
from support.builders.ray_service import NAMESPACE

Story = Callable[[Harness], Awaitable[None]]
MAX_WRITES: Final = 80
"""Maximum number of writes of a scenario."""


def _retried(mode: str) -> Story:
    async def tell(harness: Harness) -> None:
        harness.apply(submissionMode=mode, backoffLimit=1, shutdownAfterJobFinishes=True)
        await harness.until_running()
        harness.end("FAILED", "out of memory")
        await harness.until(lambda: harness.status.get("failed") == 1)
        await harness.until_running()
        harness.end()
        await harness.until_state("Complete")
        await harness.until(lambda: not harness.clusters)
        assert harness.status["succeeded"] == 1
        assert harness.status["failed"] == 1
        assert len(harness.starts) == 2

    return tell


def _suspended(mode: str) -> Story:
    async def tell(harness: Harness) -> None:
        spec: dict[str, Any] = {"submissionMode": mode, "shutdownAfterJobFinishes": True}
        harness.apply(**spec)
        await harness.until_running()
        harness.apply(**spec, suspend=True)
        await harness.until_state("Suspended")
        assert not harness.clusters
        harness.apply(**spec)
        await harness.until_running()
        harness.end()
        await harness.until_state("Complete")
        assert len(harness.starts) == 2

    return tell


def _deleted(mode: str) -> Story:
    async def tell(harness: Harness) -> None:
        harness.apply(submissionMode=mode)
        await harness.until_running()
        await harness.kube.delete(RAY_JOB, NAMESPACE, NAME)
        await harness.until(lambda: not harness.kube.all(RAY_JOB))
        assert len(harness.starts) == 1

    return tell


@pytest.mark.acceptance("rayjob", 20, 95)
@pytest.mark.parametrize("moment", ["kill_before", "kill_after"])
@pytest.mark.parametrize("mode", ["K8sJobMode", "HTTPMode"])
@pytest.mark.parametrize("story", [_retried, _suspended, _deleted])
async def test_a_death_at_any_write_changes_no_outcome(
    story: Callable[[str], Story], mode: str, moment: str
) -> None:
    for number in range(1, MAX_WRITES):
        harness = Harness()
        setattr(harness, moment, number)
        await story(mode)(harness)
        twice = {job: count for job, count in Counter(harness.starts).items() if count > 1}
        assert not twice, f"a driver ran twice after a death at write {number}"
        assert len(harness.kube.all(RAY_CLUSTER)) <= 1
        assert not harness.failed
        if harness.writes < number:
            return
    pytest.fail("the story has more writes than expected")
