"""Measures how long a small new cluster waits for its head pod during a large scale-up."""

import asyncio
from typing import Final

import msgspec

from bench import background
from bench.background import BenchObject, NamespacedName
from bench.contenders import Contender
from bench.rig import ALONE, BACKGROUND, Rig, fresh
from bench.scale_up import percentile

HUGE: Final = 500
"""Number of workers of the largest cluster."""
EVERY_SECONDS: Final = 1.0
"""Seconds between the creation of two small clusters.

They are created alternately in the namespace of the large scale-up and in another namespace.
"""


SMALL: Final = "small-"


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    """Waits of small clusters under one operator, in seconds."""

    name: str
    wall: float
    """Seconds from the first request until all clusters, including the largest, were ready."""
    same_namespace: list[float]
    """The wait of each small cluster in the namespace of the large scale-up.

    A wait is the time from the creation of a cluster until its head pod existed.
    """
    other_namespace: list[float]

    @property
    def worst(self) -> float:
        """The longest wait of a small cluster, in seconds."""
        return max((*self.same_namespace, *self.other_namespace), default=0.0)

    @property
    def p99(self) -> float:
        """The wait in seconds that 99 % of the small clusters do not exceed."""
        waits = sorted((*self.same_namespace, *self.other_namespace))
        return percentile(waits, 99) if waits else 0.0


async def measure(contender: Contender, count: int) -> Fairness:
    """Measure one operator on a new control plane.

    `count` clusters are created besides the largest.
    """
    async with (
        fresh(contender.crds) as rig,
        contender.on(rig) as operator,
        background.watching(rig, background.CLUSTERS, _is_ready_in_the_background) as ready,
        background.watching(rig, background.HEADS, background.is_head) as heads,
    ):
        asked: dict[tuple[str, str], float] = {}
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            small = group.create_task(_create_small_clusters(rig, asked))
            await background.create_cluster(rig, BACKGROUND, "huge", workers=HUGE)
            await background.create_many(rig, count)
            await ready.count(1 + count)
            wall = asyncio.get_running_loop().time() - began
            small.cancel()
        await heads.count(len(asked))
        waits = {key: heads.at[key] - moment for key, moment in asked.items() if key in heads.at}
        return Fairness(
            name=operator.name,
            wall=wall,
            same_namespace=[
                wait for (namespace, _), wait in waits.items() if namespace == BACKGROUND
            ],
            other_namespace=[wait for (namespace, _), wait in waits.items() if namespace == ALONE],
        )


def _is_ready_in_the_background(cluster: BenchObject) -> NamespacedName | None:
    """Match the clusters of the large scale-up: return a ready cluster's key, else None."""
    key = background.is_ready(cluster)
    return (
        key if key is not None and key[0] == BACKGROUND and not key[1].startswith(SMALL) else None
    )


async def _create_small_clusters(rig: Rig, asked: dict[tuple[str, str], float]) -> None:
    """Create a small cluster every `EVERY_SECONDS` until cancelled; record its time in `asked`."""
    number = 0
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        namespace, name = (BACKGROUND, ALONE)[number % 2], f"{SMALL}{number}"
        asked[namespace, name] = await background.create_cluster(rig, namespace, name, workers=1)
        number += 1
