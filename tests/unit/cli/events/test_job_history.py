"""`raybus history rayjob/NAME` without NATS, and the events that it reads with NATS."""

import pytest

from common import errors
from common.bus.nats import StoredMessage
from common.ray import job_events
from common.upgrade import events as upgrade_events
from raybus_cli.events import job_history, run
from support import job_events as jobs
from support import upgrade_events as shown


async def _unreachable(_read: run.ReadEvents) -> None:
    raise errors.Unavailable("NATS does not answer")


async def _grouped(_read: run.ReadEvents) -> None:
    raise BaseExceptionGroup("tasks", [errors.Forbidden("nats-keys-subscriber: forbidden")])


async def _broken(_read: run.ReadEvents) -> None:
    raise BaseExceptionGroup("tasks", [ZeroDivisionError()])


@pytest.mark.parametrize("connect", [_unreachable, _grouped])
def test_without_nats_the_reason_is_returned(connect: job_history.Connect) -> None:
    events, problem = job_history.read_events("team-a", "train", connect)
    assert events == []
    assert isinstance(problem, errors.RaybusError)


def test_a_defect_is_raised() -> None:
    with pytest.raises(BaseExceptionGroup):
        job_history.read_events("team-a", "train", _broken)


def test_only_events_of_jobs_are_kept() -> None:
    collector = job_history.EventCollector()
    wires = (
        job_events.FAMILY.encode(jobs.a_job_event(jobs.EXAMPLES[0][1])),
        upgrade_events.encode(shown.an_event(shown.EXAMPLES[0][1])),
    )
    for sequence, wire in enumerate(wires, start=1):
        assert collector.receive(StoredMessage(wire.subject, sequence, wire.headers, wire.payload))
    assert [event.data for event in collector.events] == [jobs.EXAMPLES[0][1]]
    assert not collector.finish_stored()
