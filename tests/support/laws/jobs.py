"""Laws of RayJobs that hold whatever fails: the number of driver runs, the recorded results, the
deletions.

The evidence has every state of each RayJob in the order of resource versions, every start of a
driver on a Ray head, and the deletions of RayClusters.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from support.laws import Finding, Law

SUCCEEDED: Final = "SUCCEEDED"
RUNNING: Final = "RUNNING"
RECORDED: Final = frozenset({"Complete", "Failed", "Retrying"})
"""States of a RayJob in which the end of its attempt is recorded."""
OVER: Final = frozenset({"Complete", "Failed", "ValidationFailed"})
"""Final states of a RayJob."""
INTERRUPTED: Final = frozenset({"Suspending", "Suspended"})
DECIDED_BY_RAY: Final = frozenset({"", "AppFailed"})
"""Reasons of attempts that end with their driver; others end at a deadline or without a driver."""


class DriverRun(msgspec.Struct, kw_only=True):
    """One run of a driver on a Ray head. Times are in seconds since the beginning."""

    job_id: str
    cluster: str
    began: float
    ended: float | None = None
    status: str = RUNNING
    """Ray's status at the end of the run; RUNNING if the run has not ended by itself."""
    lost_at: float | None = None
    """Time at which the head was lost, with everything that Ray knew about the run; None if it was
    not."""

    @property
    def is_running(self) -> bool:
        """Whether the driver still runs."""
        return self.ended is None and self.lost_at is None


class JobState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a RayJob since a resource version."""

    job: str
    """Namespace and name of the RayJob."""
    uid: str
    version: int
    at: float
    """Seconds from the beginning until the state was observed."""
    job_id: str = ""
    cluster: str = ""
    state: str = ""
    """`status.jobDeploymentStatus`."""
    ray: str = ""
    """`status.jobStatus`."""
    reason: str = ""
    succeeded: int = 0
    failed: int = 0
    retries: int = 0
    is_deleting: bool = False
    is_gone: bool = False
    run: str = ""
    """RayCronJob and time of the run that created the RayJob; empty for other RayJobs."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing of the RayJob may run in this state."""
        return self.is_gone or self.is_deleting or self.state in OVER | INTERRUPTED


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """The first state in which a RayCluster of a RayJob is Terminating or deleted."""

    cluster: str
    job: str
    """Namespace and name of the RayJob."""
    version: int


class JobsEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """All evidence that the laws read."""

    states: Sequence[JobState]
    """All states in the order of their resource versions."""
    drivers: Sequence[DriverRun]
    deletions: Sequence[Deletion] = ()

    def by_uid(self) -> dict[str, list[JobState]]:
        """Return the states of each RayJob."""
        found: defaultdict[str, list[JobState]] = defaultdict(list)
        for state in self.states:
            found[state.uid].append(state)
        return found

    def find_attempts(self) -> list[JobState]:
        """Return the state that records the end of each attempt."""
        found: list[JobState] = []
        for states in self.by_uid().values():
            seen: set[tuple[str, int, int]] = set()
            for state in states:
                attempt = state.job_id, state.succeeded, state.failed
                if state.state in RECORDED and not state.is_gone and attempt not in seen:
                    seen.add(attempt)
                    found.append(state)
        return found


def _runs_twice(evidence: JobsEvidence) -> Iterator[Finding]:
    for job_id, count in Counter(run.job_id for run in evidence.drivers).items():
        if count > 1:
            yield job_id, f"the driver of {job_id} ran {count} times in one attempt"


def _runs_without_attempt(evidence: JobsEvidence) -> Iterator[Finding]:
    named = {state.job_id for state in evidence.states}
    for run in evidence.drivers:
        if run.job_id not in named:
            yield run.job_id, f"a driver of {run.job_id} ran, and no RayJob has named it"


def _drivers_and_counters_differ(evidence: JobsEvidence) -> Iterator[Finding]:
    runs: defaultdict[str, list[DriverRun]] = defaultdict(list)
    for run in evidence.drivers:
        runs[run.job_id].append(run)
    for state in evidence.find_attempts():
        for text in _misjudged(state, runs[state.job_id]):
            yield state.job, f"{state.job} is {state.state} {state.ray} {state.reason}: {text}"


def _misjudged(state: JobState, runs: Sequence[DriverRun]) -> Iterator[str]:
    """Yield the differences between the record of an attempt and the runs of its driver."""
    if state.state == "Complete" and state.ray == SUCCEEDED:
        if not any(run.status == SUCCEEDED for run in runs):
            yield f"no driver of {state.job_id} has succeeded"
        return
    for run in runs:
        if state.reason not in DECIDED_BY_RAY or run.lost_at is not None:
            continue  # stopped at a deadline, or nobody knows how it ended
        if run.status == SUCCEEDED:
            yield f"the driver of {state.job_id} has succeeded"
        if run.ended is None or run.ended > state.at:
            yield f"the driver of {state.job_id} still runs"


def _attempts_are_missing(evidence: JobsEvidence) -> Iterator[Finding]:
    recorded = Counter(state.uid for state in evidence.find_attempts())
    for uid, states in evidence.by_uid().items():
        last = states[-1]
        counted = last.succeeded + last.failed
        # A watch that begins anew may miss the record of an attempt, but no whole attempt.
        begun = len({state.job_id for state in states} - {""})
        stopped = any(state.ray == "STOPPED" for state in states)
        if counted > begun:
            yield last.job, f"{last.job} counts {counted} attempts, {begun} began"
        if counted < recorded[uid] and not stopped:
            yield last.job, f"{last.job} counts {counted} attempts, {recorded[uid]} were recorded"
        if last.failed > last.retries + 1:
            yield last.job, f"{last.job} failed {last.failed} times, allowed are {last.retries + 1}"


def _counters_fall(evidence: JobsEvidence) -> Iterator[Finding]:
    for states in evidence.by_uid().values():
        for before, after in pairwise(states):
            if after.succeeded < before.succeeded or after.failed < before.failed:
                text = f"{after.succeeded} and {after.failed}"
                yield after.job, f"{after.job}: succeeded and failed fall to {text}"


def _leaves_the_end(evidence: JobsEvidence) -> Iterator[Finding]:
    for states in evidence.by_uid().values():
        for before, after in pairwise(states):
            if before.state in OVER - {"ValidationFailed"} and after.state != before.state:
                yield after.job, f"{after.job} was {before.state} and is {after.state}"


def _runs_on(evidence: JobsEvidence) -> Iterator[Finding]:
    by_id: dict[str, JobState] = {}
    last: dict[str, JobState] = {}
    for state in evidence.states:
        last[state.uid] = state
        if state.job_id:
            by_id[state.job_id] = state
    for run in evidence.drivers:
        state = by_id.get(run.job_id)
        owner = None if state is None else last[state.uid]
        if run.is_running and owner is not None and owner.has_ended:
            ended = "is gone" if owner.is_gone else f"is {owner.state}"
            yield owner.job, f"{owner.job} {ended}, and the driver of {run.job_id} runs on"


def _deleted_without_record(evidence: JobsEvidence) -> Iterator[Finding]:
    by_job: defaultdict[str, list[JobState]] = defaultdict(list)
    for state in evidence.states:
        by_job[state.job].append(state)
    for deletion in evidence.deletions:
        before = [each for each in by_job[deletion.job] if each.version < deletion.version]
        if not before:
            continue
        state = before[-1]
        is_kept = not state.has_ended and state.state not in RECORDED
        if is_kept and state.cluster == deletion.cluster:
            yield (
                state.job,
                f"{deletion.cluster} is deleted while {state.job} is {state.state} {state.ray}",
            )


def _starts_a_run_twice(evidence: JobsEvidence) -> Iterator[Finding]:
    runs: defaultdict[str, set[str]] = defaultdict(set)
    for state in evidence.states:
        if state.run:
            runs[state.run].add(state.uid)
    for run, uids in runs.items():
        if len(uids) > 1:
            yield run, f"the run {run} was started {len(uids)} times"


LAWS: Final = (
    Law(
        name="one driver for one attempt",
        source="ADR 51",
        reads="the starts of drivers",
        check=_runs_twice,
    ),
    Law(
        name="no driver without an attempt",
        source="rayjob §6.1",
        reads="the starts of drivers, the job IDs in statuses",
        check=_runs_without_attempt,
    ),
    Law(
        name="a record says how the driver ended",
        source="ADR 51",
        reads="the ends of attempts, the ends of drivers",
        check=_drivers_and_counters_differ,
    ),
    Law(
        name="each attempt is counted once",
        source="rayjob §11",
        reads="the counters and states of RayJobs",
        check=_attempts_are_missing,
    ),
    Law(
        name="no counter falls",
        source="rayjob §11",
        reads="the counters of RayJobs",
        check=_counters_fall,
    ),
    Law(
        name="an ended job stays ended",
        source="rayjob §6.6",
        reads="the states of RayJobs",
        check=_leaves_the_end,
    ),
    Law(
        name="no driver outlives its job",
        source="rayjob §12",
        reads="the drivers and RayJobs at the end",
        check=_runs_on,
    ),
    Law(
        name="the outcome is recorded before a deletion",
        source="ADR 51",
        reads="the states of RayJobs, the deletions of RayClusters",
        check=_deleted_without_record,
    ),
    Law(
        name="a scheduled run starts once",
        source="rayjob §20.3",
        reads="the RayJobs of RayCronJobs",
        check=_starts_a_run_twice,
    ),
)
"""Laws of RayJobs in simulations and in chaos runs."""
