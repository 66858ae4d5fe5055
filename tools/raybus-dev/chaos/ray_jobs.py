"""The RayJobs and RayCronJobs of a run, drawn from a seed. Pure.

RayJobs differ in submission mode, retries, failing drivers, deadlines and clean-up. Some are
suspended, resumed or deleted while they run. RayCronJobs start more RayJobs.
"""

from collections.abc import Iterator
from random import Random
from typing import Any, Final

from chaos.users import UserRequest
from common import labels
from common.api.opaque import Body, Json
from common.kube.resources import RAY_CRON_JOB, RAY_JOB, Resource
from support.builders.ray_cluster import a_head

MODES: Final = ("K8sJobMode", "K8sJobMode", "HTTPMode", "HTTPMode", "SidecarMode")
CRON_JOBS: Final = 3
CRON_SECONDS: Final = 20
LAST_SHARE: Final = 0.9
"""Fraction of the run after which users create no more RayJobs."""
LONG_SECONDS: Final = 600


class RayJobs:
    """Draws the requests of users who create, suspend and delete the RayJobs of a run."""

    def __init__(self, seed: int, jobs: int) -> None:
        self._random = Random(f"jobs {seed}")
        self._jobs = jobs

    def requests(self, seconds: float) -> list[UserRequest]:
        """Return the requests of a run of this length, in the order of their times."""
        requests = [
            *self._draw_jobs(seconds * LAST_SHARE),
            *self._draw_cron_jobs(seconds * LAST_SHARE),
        ]
        return sorted(requests, key=lambda request: request.at)

    def _draw_jobs(self, seconds: float) -> Iterator[UserRequest]:
        for number in range(self._jobs):
            yield from self._draw_job(f"j{number:03d}", seconds * number / self._jobs)

    def _draw_job(self, name: str, at: float) -> Iterator[UserRequest]:
        random = self._random
        spec = self._draw_spec()
        kind = random.random()
        if kind < 0.08:
            seconds = random.randint(5, 10)
            spec |= {"entrypoint": entrypoint(LONG_SECONDS), "activeDeadlineSeconds": seconds}
            spec["shutdownAfterJobFinishes"] = True
        yield _create(RAY_JOB, at, name, spec)
        later = at + random.uniform(2.0, 10.0)
        if 0.08 <= kind < 0.16:
            yield UserRequest(at=later, what="delete", resource=RAY_JOB, name=name)
        elif 0.16 <= kind < 0.24 and spec["shutdownAfterJobFinishes"]:
            resumed = later + random.uniform(3.0, 8.0)
            for then, is_suspended in ((later, True), (resumed, False)):
                yield UserRequest(
                    at=then,
                    what="suspend" if is_suspended else "resume",
                    resource=RAY_JOB,
                    name=name,
                    spec={"suspend": is_suspended},
                )

    def _draw_cron_jobs(self, seconds: float) -> Iterator[UserRequest]:
        if not self._jobs:
            return
        for number in range(CRON_JOBS):
            name = f"cron{number}"
            spec = {
                "schedule": f"@every {CRON_SECONDS}s",
                "jobTemplate": {**self._draw_spec(), "shutdownAfterJobFinishes": True},
            }
            concurrency = ("Allow", "Forbid", "Replace")[number]
            yield _create(RAY_CRON_JOB, 0.0, name, spec, {labels.CONCURRENCY_POLICY: concurrency})
            yield UserRequest(
                at=seconds, what="suspend", resource=RAY_CRON_JOB, name=name, spec={"suspend": True}
            )

    def _draw_spec(self) -> dict[str, Any]:
        random = self._random
        mode = random.choice(MODES)
        retries = random.choice((0, 1, 2))
        failures = random.choice((0, 0, 0, 1, 2))
        shuts_down = mode == "SidecarMode" or random.random() < 0.9
        spec: Json = {
            "submissionMode": mode,
            "backoffLimit": retries,
            "entrypoint": entrypoint(round(random.uniform(0.5, 6.0), 1), failures),
            "rayClusterSpec": {"headGroupSpec": a_head(), "workerGroupSpecs": []},
            "shutdownAfterJobFinishes": shuts_down,
        }
        if shuts_down:
            spec["ttlSecondsAfterFinished"] = random.choice((0, 0, 3))
        return spec


def entrypoint(seconds: float, failures: int = 0) -> str:
    """Return the entrypoint of a driver that runs for `seconds`.

    The first `failures` drivers of a RayJob fail.
    """
    return f"python train.py --seconds {seconds} --failures {failures}"


def _create(
    resource: Resource, at: float, name: str, spec: Body, annotations: dict[str, str] | None = None
) -> UserRequest:
    body: Body = {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name, "annotations": annotations or {}},
        "spec": spec,
    }
    return UserRequest(at=at, what="create", resource=resource, name=name, body=body)
