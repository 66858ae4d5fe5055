"""`raybus history rayjob/NAME`: reads the attempts of a RayJob, and prints them."""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

import msgspec

from common import errors
from common.bus import subjects
from common.bus.cloud_events import CloudEvent
from common.bus.consumer import from_sequence
from common.bus.nats import StoredMessage
from common.ray import job_events
from common.ray.job_events import JobEventData
from raybus_cli import printing, session
from raybus_cli.events import attempts, run
from raybus_cli.events.run import NatsAccess
from raybus_cli.kubeconfig import KubeAccess
from raybus_cli.printing import Output
from raybus_cli.reading import reader

NO_EVENTS: Final = "only the last attempt is shown, from the status of the RayJob"
Connect = Callable[[run.ReadEvents], Coroutine[Any, Any, None]]
"""Function that runs a task with a connection to NATS."""


class EventCollector:
    """Collects the stored events of RayJobs, and stops the reader when all were received."""

    def __init__(self) -> None:
        self.events: list[CloudEvent[JobEventData]] = []

    def receive(self, event: StoredMessage) -> bool:
        """Store an event of a RayJob; ignore any other message."""
        with contextlib.suppress(msgspec.DecodeError):
            self.events.append(job_events.FAMILY.decode(event.payload))
        return True

    def finish_stored(self) -> bool:
        return False


def show(access: KubeAccess, name: str, output: Output, connect: Connect) -> None:
    """Print the attempts of a RayJob."""
    job = session.run(access, lambda kube: reader.read_ray_job(kube, access.namespace, name))
    events, problem = read_events(access.namespace, name, connect)
    if problem is not None:
        printing.print_message(f"no events: {problem}; {NO_EVENTS}", err=True)
    entries = attempts.build(job, events, now=session.read_clock())
    if output in {Output.JSON, Output.YAML}:
        printing.print_data(entries, output)
    elif output is Output.NAME:
        printing.print_message("\n".join(str(entry.attempt) for entry in entries))
    elif entries:
        printing.show(attempts.build_table(entries, wide=output is Output.WIDE))
    else:
        printing.print_message("no attempt has begun", err=True)


def read_events(
    namespace: str, name: str, connect: Connect
) -> tuple[list[CloudEvent[JobEventData]], BaseException | None]:
    """Return the events of a RayJob, and the error if they cannot be read.

    The error is None if they were read; otherwise the list is empty.
    """
    collector = EventCollector()
    try:
        with session.silence_logs():
            asyncio.run(connect(partial(collect, collector, namespace, name)))
    except (errors.RaybusError, BaseExceptionGroup) as raised:
        problem = session.find_first(raised)
        if not isinstance(problem, errors.RaybusError):
            raise
        return [], problem
    return collector.events, None


async def collect(collector: EventCollector, namespace: str, name: str, way: NatsAccess) -> None:
    """Read the stored events of a RayJob into `collector`; `way` says how to connect to NATS."""
    subject = subjects.build_event_subject(namespace, name, "*")
    async with run.connect_to_bus(way) as reach:
        await reach.read(
            subject, from_sequence(1), collector, is_patient=False, report=lambda _line: None
        )
