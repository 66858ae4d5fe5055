"""Waits for the end of a rollout, for `raybus status` and for the verbs that start one with `--wait`."""

import asyncio
from typing import Final

from common import errors
from common.kube.client import KubeClient
from raybus_cli.access import problems, session
from raybus_cli.output import printing
from raybus_cli.reading import reader
from raybus_cli.show import rollout_status
from raybus_cli.show.changes import STARTUP_SECONDS
from raybus_cli.show.rollout_status import RolloutState, RolloutStatus

POLL_SECONDS: Final = 1.0
"""Seconds between two reads."""
REMIND_EVERY: Final = 10.0
"""Seconds after which it repeats why it waits."""
EXIT_CODES: Final = {RolloutState.DONE: 0, RolloutState.TIMED_OUT: 3}
"""Of the end of a rollout; any other is 1."""


async def until_over(kube: KubeClient, namespace: str, name: str, *, seconds: float) -> RolloutStatus:
    """Read until a rollout is over or time is up; print each change, and a reminder now and then."""
    loop = asyncio.get_running_loop()
    began, reported, reported_at = loop.time(), "", 0.0
    away_until = 0.0
    while True:
        try:
            found = rollout_status.of(await reader.read(kube, namespace, name), now=session.now())
        except (errors.Unavailable, errors.Throttled) as problem:
            away_until = loop.time() + STARTUP_SECONDS
            found = RolloutStatus(course=RolloutState.GOING_ON, text=problems.line(problem))
        except (errors.Forbidden, errors.NotFound) as problem:
            if loop.time() > away_until:
                raise
            found = RolloutStatus(course=RolloutState.GOING_ON, text=f"the API server is not ready yet: {problem}")
        spent = loop.time() - began
        if found.course is not RolloutState.GOING_ON:
            return found
        if spent >= seconds:
            return RolloutStatus(course=RolloutState.TIMED_OUT, text=f"not within {seconds:g} s: {found.text}")
        if found.text != reported or spent - reported_at >= REMIND_EVERY:
            printing.message(f"{spent:6.0f} s  {found.text}", err=True)
            reported, reported_at = found.text, spent
        await asyncio.sleep(min(POLL_SECONDS, max(0.0, seconds - spent)))
