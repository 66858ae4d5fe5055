"""Waits until a RayService or RayCluster serves its spec, or until a time limit."""

import asyncio
from typing import Final

from common import conditions, errors
from common.api.ray_cluster import RayCluster
from common.kube.client import KubeClient
from common.kube.resources import RAY_SERVICE
from raybus_cli import printing, session, waiting
from raybus_cli.reading import reader
from raybus_cli.reading.kinds import NamedTarget
from raybus_cli.show import rollout_status
from raybus_cli.show.changes import STARTUP_SECONDS
from raybus_cli.show.rollout_status import RolloutState, RolloutStatus

POLL_SECONDS: Final = 1.0
"""Seconds between two polls."""
REMIND_EVERY: Final = 10.0
"""Seconds after which an unchanged reason for waiting is printed again."""
EXIT_CODES: Final = {RolloutState.DONE: 0, RolloutState.TIMED_OUT: 3}
"""Exit codes by the state of the rollout; the code is 1 for a state that is not listed."""


async def wait_until_over(
    kube: KubeClient, namespace: str, name: str, *, seconds: float
) -> RolloutStatus:
    """Poll until a rollout is done or failed, or `seconds` have passed.

    Print each change on standard error.

    While an API server is starting again, `Forbidden` and `NotFound` are retried.
    """
    loop = asyncio.get_running_loop()
    began, reported, reported_at = loop.time(), "", 0.0
    away_until = 0.0
    while True:
        try:
            status = rollout_status.derive_status(
                await reader.read(kube, namespace, name), now=session.read_clock()
            )
        except session.RETRYABLE_ERRORS as problem:
            away_until = loop.time() + STARTUP_SECONDS
            status = RolloutStatus(course=RolloutState.GOING_ON, text=session.format_error(problem))
        except (errors.Forbidden, errors.NotFound) as problem:
            if loop.time() > away_until:
                raise
            status = RolloutStatus(
                course=RolloutState.GOING_ON, text=f"the API server is not ready yet: {problem}"
            )
        spent = loop.time() - began
        if status.course is not RolloutState.GOING_ON:
            return status
        if spent >= seconds:
            return RolloutStatus(
                course=RolloutState.TIMED_OUT, text=f"not within {seconds:g} s: {status.text}"
            )
        if status.text != reported or spent - reported_at >= REMIND_EVERY:
            printing.print_message(f"{spent:6.0f} s  {status.text}", err=True)
            reported, reported_at = status.text, spent
        await asyncio.sleep(min(POLL_SECONDS, max(0.0, seconds - spent)))


async def wait_until_served(
    kube: KubeClient, namespace: str, target: NamedTarget, *, seconds: float
) -> RolloutStatus:
    """Poll until the target serves its spec or its rollout has failed, and return that state.

    After `seconds`, the state is `TIMED_OUT`, with the reason why the spec is not served yet.
    """
    if target.resource is RAY_SERVICE:
        return await wait_until_over(kube, namespace, target.name, seconds=seconds)
    cluster = await waiting.poll_until(
        lambda: reader.read_ray_cluster(kube, namespace, target.name),
        describe_pending,
        limit=seconds,
    )
    if why := describe_pending(cluster):
        return RolloutStatus(course=RolloutState.TIMED_OUT, text=f"not within {seconds:g} s: {why}")
    return RolloutStatus(
        course=RolloutState.DONE, text=f"RayCluster {namespace}/{target.name} is ready"
    )


def describe_pending(cluster: RayCluster) -> str:
    """Return why a RayCluster does not yet run its present spec; empty if it is ready."""
    status, wanted = cluster.status, cluster.metadata.generation
    if status.observed_generation < wanted:
        return (
            f"raybus has not observed generation {wanted} yet (last observed: "
            f"{status.observed_generation})"
        )
    if not conditions.is_true(status.conditions, "HeadPodReady"):
        return "the head pod is not ready"
    available, desired = status.available_worker_replicas, status.desired_worker_replicas
    return f"{available} of {desired} workers are available" if available < desired else ""
