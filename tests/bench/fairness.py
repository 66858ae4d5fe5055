"""Measurement: how long somebody's small new cluster waits for its head pod while many clusters and a huge one scale up."""

import asyncio
from typing import Final

import msgspec

from bench import background
from bench.background import Key, Object
from bench.contenders import Contender
from bench.rig import ALONE, BACKGROUND, Rig, fresh
from bench.scale_up import percentile

HUGE: Final = 500
"""Workers of the huge cluster."""
EVERY_SECONDS: Final = 1.0
"""Between two small clusters; every other one is in the namespace of the background load."""


SMALL: Final = "small-"


class Fairness(msgspec.Struct, frozen=True, kw_only=True):
    """How one contender did; in seconds."""

    name: str
    wall: float
    """From the first request until all clusters, the huge one too, were ready."""
    same_namespace: list[float]
    """For each small cluster in the namespace of the background load, how long until it had its head pod."""
    other_namespace: list[float]

    @property
    def worst(self) -> float:
        """Return the longest wait."""
        return max((*self.same_namespace, *self.other_namespace), default=0.0)

    @property
    def p99(self) -> float:
        """Return the wait that 99 % do not exceed."""
        waits = sorted((*self.same_namespace, *self.other_namespace))
        return percentile(waits, 99) if waits else 0.0


async def measure(contender: Contender, count: int) -> Fairness:
    """Measure one contender on a control plane of its own."""
    async with (
        fresh(contender.crds) as rig,
        contender.on(rig) as operator,
        background.watching(rig, background.CLUSTERS, _is_ready_in_the_background) as ready,
        background.watching(rig, background.HEADS, background.is_head) as heads,
    ):
        asked: dict[tuple[str, str], float] = {}
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            small = group.create_task(_small_ones(rig, asked))
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


def _is_ready_in_the_background(cluster: Object) -> Key | None:
    """See a cluster that is ready, small ones and the probe apart."""
    key = background.is_ready(cluster)
    return (
        key if key is not None and key[0] == BACKGROUND and not key[1].startswith(SMALL) else None
    )


async def _small_ones(rig: Rig, asked: dict[tuple[str, str], float]) -> None:
    """Create one small cluster after another, until cancelled."""
    number = 0
    while True:
        await asyncio.sleep(EVERY_SECONDS)
        namespace, name = (BACKGROUND, ALONE)[number % 2], f"{SMALL}{number}"
        asked[namespace, name] = await background.create_cluster(rig, namespace, name, workers=1)
        number += 1
