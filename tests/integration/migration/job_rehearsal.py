"""A rehearsal with KubeRay's own operator: it hands its RayJobs over to raybus, and back again.

    make rehearsal PEER='CMD' PEER_CRDS=DIR [RECORD=1]

No job may be restarted or lost, and no driver may run twice. The stage is that of `rehearsal`. The
heads are simulated, so that each driver runs as long as the rehearsal wants. With `--record` the
objects that KubeRay left go to `tests/golden/kuberay/services`.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench import background, heads, rig
from bench.rig import BACKGROUND
from common.api.opaque import Body
from common.kube.resources import RAY_JOB
from integration.isolated import isolate, log_progress
from integration.migration import jobs_of_cast, peer, stage
from integration.migration.jobs_of_cast import Jobs
from integration.migration.rehearsal import asked, quiet, raybus
from localcluster.errors import ClusterError
from support.kuberay import objects, trees

SETTLED_SECONDS: Final = 10.0
"""Longer than the time in which either operator asks Ray about each of these jobs."""


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """What one run showed."""

    jobs: dict[str, str]
    """The state of each RayJob at the first hand-over."""
    check: str
    """The output of `raybus migrate check` between the operators."""
    written_by_raybus: dict[str, int]
    written_by_kuberay: dict[str, int]
    """Writes after it got its objects back."""
    changed_by_raybus: list[str]
    changed_by_kuberay: list[str]
    """Fields of jobs at rest, their status and their objects, that a hand-over changed."""
    submissions: int
    """Jobs that were submitted to heads, including those that Ray refused."""
    repeated_drivers: list[str]
    """Heads that were asked more than once to run a driver."""
    stopped_drivers: list[str]
    runs_of_cron_job: dict[str, int]
    """RayJobs for each minute of a RayCronJob."""

    @property
    def is_smooth(self) -> bool:
        """Whether no job was changed, run again or stopped, and no scheduled run repeated."""
        bad = (
            self.changed_by_raybus,
            self.changed_by_kuberay,
            self.repeated_drivers,
            self.stopped_drivers,
        )
        return not any(bad) and set(self.runs_of_cron_job.values()) == {1}


async def rehearse(command: str, crds: Path, *, records: bool) -> Figures:
    """Hand over and back."""
    async with rig.fresh(crds) as found, heads.played() as played, stage.built(found) as on:
        jobs, log = Jobs(on, played), found.work / "peer.log"
        async with peer.running(command, found.kubeconfig, log):
            await background.create_cluster(
                found, BACKGROUND, jobs_of_cast.SELECTED_CLUSTER, workers=1
            )
            await jobs.appear()
            log_progress("KubeRay has every job in its state")
        before = await on.snapshot()
        if records:
            for name in jobs_of_cast.RECORDED:
                tree = trees.of_root(before, RAY_JOB.kind, name)
                log_progress(f"recorded {trees.save(f'job-{name}', tree).name}")
        output = await on.check()
        log_progress(f"raybus migrate check -o wide:\n{output}")
        mark = found.audit.here()
        async with raybus(found):
            await jobs.end_early()
            await asyncio.sleep(SETTLED_SECONDS)
            ours, during = found.audit.since(mark).changes, await on.snapshot()
            by_raybus = changes(before, during)
            log_progress(f"raybus wrote {ours}; changed: {by_raybus or 'nothing'}")
            await jobs.release(before)
        released, mark = await on.snapshot(), found.audit.here()
        async with peer.running(command, found.kubeconfig, log):
            await asyncio.sleep(SETTLED_SECONDS)
            await quiet(found)
            theirs, after = found.audit.since(mark).changes, await on.snapshot()
            by_kuberay = changes(released, after)
            log_progress(f"KubeRay wrote {theirs}; changed: {by_kuberay or 'nothing'}")
            await jobs.end_all()
        return Figures(
            jobs=jobs_of_cast.states(before),
            check=output,
            written_by_raybus=ours,
            written_by_kuberay=theirs,
            changed_by_raybus=by_raybus,
            changed_by_kuberay=by_kuberay,
            submissions=jobs.count_submissions(),
            repeated_drivers=jobs.repeated_drivers(),
            stopped_drivers=jobs.stopped_drivers(),
            runs_of_cron_job=await jobs.runs_of_cron_job(),
        )


def changes(before: Sequence[Body], after: Sequence[Body]) -> list[str]:
    """Return what differs in jobs at rest and in their objects, of which none may be gone."""
    moving = {each["metadata"]["uid"] for each in jobs_of_cast.moving(before, after)}
    sides = (
        trees.stable([each for each in some if each["metadata"]["uid"] not in moving])
        for some in (before, after)
    )
    return [*objects.differences(*sides), *jobs_of_cast.changes(before, after)]


def main() -> int:
    """Rehearse and print; 1 when anything changed that must not."""
    options = asked(sys.argv[1:])
    isolate("integration.migration.job_rehearsal")
    try:
        found = asyncio.run(rehearse(options.peer, options.peer_crds, records=options.record))
    except ClusterError as problem:
        raise SystemExit(f"rehearsal: {problem}") from None
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(found)).decode() + "\n")
    return 0 if found.is_smooth else 1


if __name__ == "__main__":
    sys.exit(main())
