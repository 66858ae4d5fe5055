"""Asks the pods of a cluster that drains for their requests in flight: a few at a time, and no more once the answer cannot change.

One RayService may have 10,000 pods, and a tenant's pods may let a caller wait. So it never holds more than `AT_ONCE` of the calls that a
process makes, and not for longer than a few batches of pods that do not answer.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from common.api.core import Pod
from common.ray.ongoing import Ongoing

AT_ONCE: Final = 16
SILENT_AFTER: Final = 64
"""Pods without an answer after which the cluster counts as silent."""


async def ask(one: Callable[[Pod], Awaitable[Ongoing | None]], pods: Sequence[Pod]) -> list[Ongoing | None]:
    """Return the answers of pods, None for a pod without one; after such a pod the rest is left out, since the total is unknown."""
    counts: list[Ongoing | None] = []
    for first in range(0, len(pods), AT_ONCE):
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(_one(one, pod)) for pod in pods[first : first + AT_ONCE]]
        counts += [each.result() for each in asked]
        answered = sum(each is not None for each in counts)
        if answered < len(counts) and (answered or len(counts) >= SILENT_AFTER):
            break
    return counts


async def _one(one: Callable[[Pod], Awaitable[Ongoing | None]], pod: Pod) -> Ongoing | None:
    return await one(pod)
