"""RayJobs and two replicas of job-reconciler, of which one owns them, taken apart at every write.

A pass runs as a task of its own and stops at the boundaries of `boundaries`. Chance decides who
goes on next among all that are due, so that a user, Ray, a death, a hand-over or an old cache comes
between any two writes. All chance comes from the seed. `support.laws.jobs` judges what was
recorded.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from types import SimpleNamespace
from typing import Any, Final, cast

import msgspec

from common import errors, labels
from common.api.meta import rfc3339
from common.api.opaque import Body, Json
from common.api.ray_job import SUBMITTER_CONTAINER
from common.kube.resources import JOB, POD, RAY_CLUSTER, RAY_JOB, Resource
from common.runtime.key import Key
from job_reconciler import observe
from job_reconciler.settings import Config
from job_reconciler.wiring import KINDS, assemble, find_keys
from scenario.simulation.boundaries import Boundaries, Caller, GatedKube, GatedServe, Strike
from scenario.simulation.job_draws import Happening, JobDraw, JobPlan
from support.builders.ray_job import a_cluster_spec
from support.builders.ray_service import NAMESPACE
from support.fakes.clock import FakeClock
from support.fakes.clusters import FakeClusters
from support.fakes.events import FakeEvents
from support.fakes.kube import FakeKube
from support.fakes.ray_jobs import FakeJobs
from support.fakes.serve import FakeServe
from support.laws import find_broken
from support.laws.jobs import (
    INTERRUPTED,
    LAWS,
    OVER,
    RUNNING,
    SUCCEEDED,
    Deletion,
    DriverRun,
    JobsEvidence,
    JobState,
)
from support.simulator.services import Change, SimulatedBus, SimulatedService

TICK: Final = 0.25
MAX_TURNS: Final = 300
"""Maximum turns of all passes while the clock stands still."""
WORKERS: Final = 2
"""Number of passes that one replica runs at the same time."""
ENDS: Final = 900.0
"""Maximum seconds after the last external event until every RayJob has ended."""
QUIET: Final = 40.0
"""Seconds of rest at the end; no write may happen in their second half."""
MAX_WAIT: Final = 5.0
RESUMED_AFTER: Final = 8.0
SUBMITTER_RETRY: Final = 60.0
"""Seconds until the Job controller replaces a failed pod.

This is longer than any time for which raybus cannot act in this simulation; ADR 51 describes what
happens otherwise."""
SUBMITTER_RETRIES: Final = 2
_CONFIG: Final = Config()


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the simulation of one draw."""

    draw: JobDraw
    found: dict[str, str] = {}
    """Descriptions of broken laws, by law and subject."""
    seconds: float = 0.0
    writes: int = 0
    drivers: int = 0


class Replica(SimulatedService, kw_only=True):
    """One replica; every change in its cache makes the keys that it concerns due."""

    keys: dict[Key, float]
    failures: dict[Key, int]

    def receive(self, change: Change) -> None:
        """Add a change to the cache, and record which keys become due."""
        obj = msgspec.json.decode(change.body, type=self.kinds[change.kind])
        before = list(find_keys(self.parts.cache, obj))
        super().receive(change)
        for key in (*before, *find_keys(self.parts.cache, obj)):
            self.keys[key] = 0.0


class Parked(msgspec.Struct, eq=False):
    """A pass that is stopped at a boundary."""

    caller: Caller
    until: float
    future: Any


class Submitter(msgspec.Struct):
    """The successive pods of one Kubernetes Job."""

    head: str = ""
    """UID of the head pod that the running pod follows; empty before it has submitted."""
    failures: int = 0
    starts_at: float = 0.0


class JobSimulator:
    """The environment of the RayJobs of one draw; implements `boundaries.Schedule`."""

    def __init__(self, draw: JobDraw) -> None:
        self.draw = draw
        self.rng = random.Random(f"schedule {draw.seed}")
        self.clock = FakeClock()
        self.kube = FakeKube(now=self.clock.now)
        self.serve = FakeServe(self.clock)
        self.clusters = FakeClusters(self.kube, self.serve, self.clock)
        self.bus = SimulatedBus(self.clock)
        self.events = FakeEvents(self.clock)
        self.drivers: list[DriverRun] = []
        self.broken: dict[str, str] = {}
        self.write_count = 0
        self._states: list[JobState] = []
        self._deletions: dict[str, Deletion] = {}
        self._open: dict[tuple[str, str], DriverRun] = {}
        """Running drivers by cluster and job ID."""
        self._ended_runs: Counter[str] = Counter()
        """Number of drivers that ended by themselves, by RayJob."""
        self._submitters: dict[str, Submitter] = {}
        self._done: set[tuple[str, str]] = set()
        """Actions that users have taken, by RayJob and action."""
        self._happened: list[Happening] = []
        self._strikes = {strike.write: strike for strike in draw.strikes}
        self._silent_until = 0.0
        self._late: list[tuple[float, Callable[[], Awaitable[object]]]] = []
        self._parked: list[Parked] = []
        self._running: dict[Key, tuple[asyncio.Task[datetime | None], Caller]] = {}
        self._plans = {plan.name: plan for plan in draw.jobs}
        self.replicas = [
            Replica(name=name, kinds=KINDS, assemble=cast("Any", None), keys={}, failures={})
            for name in ("first", "second")
        ]
        self._callers: dict[str, Caller] = {}
        self._returns_at = 0.0
        moments = [happening.at + happening.seconds for happening in draw.happenings]
        moments += [
            plan.created + (plan.suspended or plan.deleted or 0.0) + RESUMED_AFTER
            for plan in draw.jobs
        ]
        self._busy_until = max(moments) + 4 * TICK
        """Time by which users have done all that they do; events take place once in a tick."""
        self.owner = self.replicas[0]
        self.kube.on_change.append(self._changed)
        self._begin(self.owner)

    # --- processes -------------------------------------------------------------------------------

    def _begin(self, replica: Replica) -> None:
        """Start a new process of a replica, which owns the RayJobs from now on."""
        for _task, caller in self._running.values():
            caller.is_dead = True
        for task, _caller in self._running.values():
            task.cancel()
        self._running.clear()
        self._parked.clear()
        for each in self._callers.values():
            each.is_dead = True
        caller = self._callers[replica.name] = Caller(name=replica.name)
        at = Boundaries(self, caller)
        replica.assemble = lambda: assemble(
            GatedKube(self.kube, at),
            GatedServe(self.serve, at),
            _CONFIG,
            clock=self.clock,
            instance=replica.name,
            bus=self.events,
        )
        replica.begin(self.clock.monotonic())
        replica.keys.clear()
        replica.failures.clear()
        self.owner = replica
        lag, replica.lag = replica.lag, 0.0
        self.bus.deliver(replica)
        replica.lag = lag

    def fate(self, caller: Caller, what: str) -> Strike | None:
        """Count a write; return what happens to it."""
        self._check_alive(caller)
        if "Event" in what:
            return None
        self.write_count += 1
        return self._strikes.get(self.write_count)

    async def stop(self, caller: Caller, seconds: float, where: str) -> None:
        """Stop a pass at a boundary."""
        del where
        self._check_alive(caller)
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        until = self.clock.monotonic() + seconds
        self._parked.append(Parked(caller=caller, until=until, future=future))
        await future
        self._check_alive(caller)

    async def pause(self, caller: Caller, where: str) -> None:
        """Stop the pass if the random choice says so."""
        if "Event" in where or self.rng.random() >= self.draw.stops:
            return
        longest = self.rng.choice((0.0, 0.0, self.draw.longest_stop))
        await self.stop(caller, self.rng.uniform(0.0, longest), where)

    async def die(self, caller: Caller, seconds: float) -> None:
        """End a process; the same replica or the other one owns the RayJobs afterwards."""
        self._check_alive(caller)
        self._returns_at = self.clock.monotonic() + seconds
        self._begin(self.rng.choice(self.replicas))
        await asyncio.get_running_loop().create_future()

    def later(self, seconds: float, carry_out: Callable[[], Awaitable[object]]) -> None:
        """Let Ray carry out a request later."""
        self._late.append((self.clock.monotonic() + seconds, carry_out))

    def acts(self, caller: Caller) -> None:
        """Check the fence of a write."""
        self._check_alive(caller)

    def has_acted(self) -> None:
        """Do nothing."""

    def is_starved(self, caller: Caller) -> bool:
        """Return whether none of the dashboards answers in time."""
        del caller
        return self.clock.monotonic() < self._silent_until

    def _check_alive(self, caller: Caller) -> None:
        if caller.is_dead:
            raise errors.OwnershipLost("this process is gone")

    # --- time ------------------------------------------------------------------------------------

    async def run(self) -> Result:
        """Run the draw to its end, and check the laws."""
        with _named_by(self.rng):
            await self._live()
            for task, _caller in self._running.values():
                task.cancel()
            await self._quiesce()
        for broken in find_broken(LAWS, self.collect()):
            self.broken[f"{broken.law} ({broken.subject})"] = broken.text
        return Result(
            draw=self.draw,
            found=self.broken,
            seconds=self.clock.monotonic(),
            writes=len(self.kube.requests),
            drivers=len(self.drivers),
        )

    def collect(self) -> JobsEvidence:
        """Return the recorded evidence."""
        return JobsEvidence(
            states=self._states, drivers=self.drivers, deletions=list(self._deletions.values())
        )

    async def _live(self) -> None:
        while self.clock.monotonic() < self._busy_until or not self._has_ended():
            if self.clock.monotonic() > self._busy_until + ENDS:
                self.broken["every job ends"] = self._describe()
                return
            await self._step()
        calm_from = self.clock.monotonic()
        while self.clock.monotonic() < calm_from + QUIET / 2:
            await self._step()
        before = self.kube.writes()
        while self.clock.monotonic() < calm_from + QUIET:
            await self._step()
        if late := self.kube.writes()[len(before) :]:
            self.broken["silent at rest"] = f"{len(late)} writes at rest: {late[:4]}"
        for text in self._find_leftovers():
            self.broken[f"nothing is left ({text.split()[0]})"] = text

    async def _step(self) -> None:
        others = [
            self.clusters.move_on,
            self.clusters.endpoints_follow,
            self._ray_moves,
            self._submitters_move,
            self._sidecars_move,
            self._users_move,
            self._happen,
        ]
        self.rng.shuffle(others)
        for move in others:
            move()
        self.kube.collect_garbage()
        now = self.clock.monotonic()
        due = [carry_out for at, carry_out in self._late if at <= now]
        self._late = [(at, carry_out) for at, carry_out in self._late if at > now]
        for carry_out in due:
            try:
                await carry_out()
            except errors.RaybusError:
                continue
        await self._interleave()
        self.clock.advance(TICK)

    async def _interleave(self) -> None:
        for _ in range(MAX_TURNS):
            self.bus.deliver(self.owner)
            now = self.clock.monotonic()
            due: list[Parked | Key] = [each for each in self._parked if each.until <= now]
            due += self._due_keys(now)
            if not due:
                return
            chosen = self.rng.choice(due)
            if isinstance(chosen, Parked):
                self._parked.remove(chosen)
                chosen.future.set_result(None)
            else:
                self._start_pass(chosen)
            await self._quiesce()
            self._reap()
        self.broken["no hot loop"] = f"more than {MAX_TURNS} turns without the clock moving"
        raise AssertionError(self.broken["no hot loop"])

    def _due_keys(self, now: float) -> list[Key]:
        if now < self._returns_at or len(self._running) >= WORKERS:
            return []
        return [
            key for key, at in self.owner.keys.items() if at <= now and key not in self._running
        ]

    def _start_pass(self, key: Key) -> None:
        del self.owner.keys[key]
        reconcile = cast("Any", self.owner.parts.reconciler)(key, self.clock.now())
        task = asyncio.get_running_loop().create_task(reconcile)
        self._running[key] = task, self._callers[self.owner.name]

    def _reap(self) -> None:
        for key, (task, caller) in list(self._running.items()):
            if not task.done():
                continue
            del self._running[key]
            if caller.is_dead or task.cancelled():
                continue
            problem, now = task.exception(), self.clock.monotonic()
            if problem is None:
                self.owner.failures[key] = 0
                again = task.result()
                if again is None:
                    continue
                wait = max(0.0, (again - self.clock.now()).total_seconds())
            elif isinstance(problem, errors.RaybusError):
                self.owner.failures[key] = self.owner.failures.get(key, 0) + 1
                wait = min(MAX_WAIT, TICK * 2 ** min(self.owner.failures[key] - 1, 6))
            else:
                raise problem
            self.owner.keys[key] = min(now + wait, self.owner.keys.get(key, now + wait))

    async def _quiesce(self) -> None:
        """Let every task run until it is stopped at a boundary or has ended."""
        ready = cast("Any", asyncio.get_running_loop())._ready
        await asyncio.sleep(0)
        while ready:  # noqa: ASYNC110  (no event is set when all tasks wait)
            await asyncio.sleep(0)

    # --- users and surroundings ------------------------------------------------------------------

    def _users_move(self) -> None:
        now = self.clock.monotonic()
        for plan in self.draw.jobs:
            if now >= plan.created and self._is_new(plan, "create"):
                self._create(plan)
            if plan.suspended is not None:
                since = plan.created + plan.suspended
                if now >= since and self._is_new(plan, "suspend"):
                    self._suspend(plan, is_suspended=True)
                if now >= since + RESUMED_AFTER and self._is_new(plan, "resume"):
                    self._suspend(plan, is_suspended=False)
            if plan.deleted is not None and now >= plan.created + plan.deleted:
                self._delete(plan)

    def _is_new(self, plan: JobPlan, what: str) -> bool:
        is_new = (plan.name, what) not in self._done
        self._done.add((plan.name, what))
        return is_new

    def _create(self, plan: JobPlan) -> None:
        spec: Json = {
            "entrypoint": "python main.py",
            "rayClusterSpec": a_cluster_spec(),
            "submissionMode": plan.mode,
            "backoffLimit": plan.retries,
            "shutdownAfterJobFinishes": plan.shuts_down or plan.suspended is not None,
        }
        if plan.deadline is not None:
            spec["activeDeadlineSeconds"] = plan.deadline
        self.kube.put(
            RAY_JOB,
            {"metadata": {"name": plan.name, "namespace": NAMESPACE}, "spec": spec},
        )

    def _suspend(self, plan: JobPlan, *, is_suspended: bool) -> None:
        body = self._find(RAY_JOB, plan.name)
        if body is not None:
            self.kube.put(RAY_JOB, {**body, "spec": {**body["spec"], "suspend": is_suspended}})

    def _delete(self, plan: JobPlan) -> None:
        body = self._find(RAY_JOB, plan.name)
        if body is not None and self._is_new(plan, "delete"):
            cast("Any", self.kube)._delete(RAY_JOB, body)

    def _happen(self) -> None:
        now = self.clock.monotonic()
        for happening in self.draw.happenings:
            if happening in self._happened or now < happening.at:
                continue
            self._happened.append(happening)
            match happening.what:
                case "hand-over":
                    self._begin(next(each for each in self.replicas if each is not self.owner))
                case "silence":
                    self._silent_until = now + happening.seconds
                case "lag":
                    self.owner.lag = happening.seconds / 4
                case "submitter deleted":
                    for body in self.kube.all(JOB)[:1]:
                        self.kube.finish_deletion(JOB, NAMESPACE, body["metadata"]["name"])
                case _:
                    self._replace_head()

    def _replace_head(self) -> None:
        """Replace the head pod of a cluster without fault tolerance of its GCS."""
        for cluster in self.kube.all(RAY_CLUSTER):
            name = cluster["metadata"]["name"]
            old = self._find(POD, f"{name}-head")
            mode = cluster["metadata"]["labels"].get(labels.JOB_SUBMISSION_MODE)
            job = self._find(RAY_JOB, cluster["metadata"]["labels"][labels.ORIGIN_NAME])
            is_unread = job is None or not job.get("status", {}).get("jobStatus")
            if old is None or mode == "SidecarMode" or (mode == "K8sJobMode" and is_unread):
                continue
            self.clusters.replace_head(name)
            self._lose(name)
            return

    def _lose(self, cluster: str) -> None:
        """End the drivers of a head that was lost."""
        for (on, job_id), run in list(self._open.items()):
            if on == cluster:
                run.lost_at = self.clock.monotonic()
                del self._open[on, job_id]

    def _ray(self, cluster: str) -> FakeJobs:
        return self.serve.head(f"{cluster}-head-svc").jobs

    def _ray_moves(self) -> None:
        """Start and end drivers on the clusters that exist."""
        now = self.clock.monotonic()
        for cluster in self.kube.all(RAY_CLUSTER):
            name = cluster["metadata"]["name"]
            plan = self._plans[name.rpartition("-")[0]]
            for job_id, job in self._ray(name).jobs.items():
                place = name, job_id
                if job.status == "PENDING":
                    self._ray(name).run(job_id)
                    run = DriverRun(job_id=job_id, cluster=name, began=now)
                    self.drivers.append(run)
                    self._open[place] = run
                elif job.status == RUNNING and now >= self._open[place].began + plan.seconds:
                    number = min(self._ended_runs[plan.name], len(plan.results) - 1)
                    self._ended_runs[plan.name] += 1
                    self._ray(name).end(job_id, plan.results[number], "the driver has ended")
                if job.end_time is not None and place in self._open:
                    run = self._open[place]
                    if run.ended is None:
                        run.ended, run.status = now, job.status

    def _submitters_move(self) -> None:
        """Act as the pods of Kubernetes Jobs, and report their ends as the Job controller does."""
        now = self.clock.monotonic()
        for body in self.kube.all(JOB):
            name = body["metadata"]["name"]
            submitter = self._submitters.setdefault(body["metadata"]["uid"], Submitter())
            container = body["spec"]["template"]["spec"]["containers"][0]
            variables = {each["name"]: each.get("value", "") for each in container["env"]}
            job_id = variables["RAY_JOB_SUBMISSION_ID"]
            cluster = variables["RAY_DASHBOARD_ADDRESS"].partition("-head-svc")[0]
            head = self._find(POD, f"{cluster}-head")
            if body.get("status") or now < submitter.starts_at:
                continue
            uid = "" if head is None else head["metadata"]["uid"]
            if submitter.head and submitter.head != uid:
                submitter.failures += 1
                submitter.head, submitter.starts_at = "", now + SUBMITTER_RETRY
                if submitter.failures > SUBMITTER_RETRIES:
                    self._end_submitter(name, "Failed")
            elif head is not None and head.get("status"):
                submitter.head = uid
                jobs = self._ray(cluster).jobs
                if job_id not in jobs:
                    self._ray(cluster).submit(job_id)
                elif jobs[job_id].end_time is not None:
                    self._end_submitter(name, "Complete")

    def _end_submitter(self, name: str, condition: str) -> None:
        ended = {
            "type": condition,
            "status": "True",
            "lastTransitionTime": rfc3339(self.clock.now()),
        }
        self.kube.set_status(JOB, NAMESPACE, name, {"conditions": [ended]})

    def _sidecars_move(self) -> None:
        """Act as the submitters in head pods, and report their ends as the kubelet does."""
        for cluster in self.kube.all(RAY_CLUSTER):
            meta = cluster["metadata"]
            head = self._find(POD, f"{meta['name']}-head")
            is_sidecar = meta["labels"].get(labels.JOB_SUBMISSION_MODE) == "SidecarMode"
            if not is_sidecar or head is None or not head.get("status"):
                continue
            jobs = self._ray(meta["name"]).jobs
            if meta["name"] not in jobs:
                self._ray(meta["name"]).submit(meta["name"])
            job = jobs[meta["name"]]
            if job.end_time is None or head["status"].get("containerStatuses"):
                continue
            terminated = {
                "exitCode": 0 if job.status == SUCCEEDED else 1,
                "reason": "Completed" if job.status == SUCCEEDED else "Error",
                "finishedAt": rfc3339(self.clock.now()),
            }
            statuses = [{"name": SUBMITTER_CONTAINER, "state": {"terminated": terminated}}]
            status = {**head["status"], "containerStatuses": statuses}
            self.kube.set_status(POD, NAMESPACE, head["metadata"]["name"], status)

    # --- what is recorded ------------------------------------------------------------------------

    def _changed(self, kind: str, body: Body, is_gone: bool) -> None:
        self.bus.publish(kind, body, is_gone=is_gone)
        meta = body["metadata"]
        if kind == RAY_JOB.kind:
            self._states.append(self._read_state(body, is_gone=is_gone))
        if kind == RAY_CLUSTER.kind and (is_gone or "deletionTimestamp" in meta):
            deletion = Deletion(
                cluster=meta["name"],
                job=f"{NAMESPACE}/{meta['labels'][labels.ORIGIN_NAME]}",
                version=int(meta["resourceVersion"]),
            )
            self._deletions.setdefault(meta["uid"], deletion)
        if kind == RAY_CLUSTER.kind and is_gone:
            self._lose(meta["name"])

    def _read_state(self, body: Body, *, is_gone: bool) -> JobState:
        meta, status = body["metadata"], body.get("status", {})
        return JobState(
            job=f"{NAMESPACE}/{meta['name']}",
            uid=meta["uid"],
            version=int(meta["resourceVersion"]),
            at=self.clock.monotonic(),
            job_id=status.get("jobId", ""),
            cluster=status.get("rayClusterName", ""),
            state=status.get("jobDeploymentStatus", ""),
            ray=status.get("jobStatus", ""),
            reason=status.get("reason", ""),
            succeeded=status.get("succeeded", 0),
            failed=status.get("failed", 0),
            retries=body["spec"].get("backoffLimit", 0),
            is_deleting="deletionTimestamp" in meta,
            is_gone=is_gone,
        )

    def _find(self, resource: Resource, name: str) -> Body | None:
        return self.kube.objects.get((resource.kind, NAMESPACE, name))

    def _has_ended(self) -> bool:
        """Return whether every RayJob has ended, and its cluster is deleted if it is to be deleted."""
        wanted = {plan.name for plan in self.draw.jobs}
        if {name for name, what in self._done if what == "create"} != wanted:
            return False
        for body in self.kube.all(RAY_JOB):
            state = body.get("status", {}).get("jobDeploymentStatus", "")
            if "deletionTimestamp" in body["metadata"]:
                return False
            if state not in (OVER | INTERRUPTED if body["spec"].get("suspend") else OVER):
                return False
        return not list(self._find_leftovers())

    def _find_leftovers(self) -> Iterator[str]:
        for cluster in self.kube.all(RAY_CLUSTER):
            meta = cluster["metadata"]
            job = self._find(RAY_JOB, meta["labels"][labels.ORIGIN_NAME])
            if job is None:
                yield f"{meta['name']} has no RayJob"
            elif job["spec"]["shutdownAfterJobFinishes"]:
                yield f"{meta['name']} outlives the end of its RayJob"
            elif job.get("status", {}).get("rayClusterName") != meta["name"]:
                yield f"{meta['name']} is the cluster of an earlier attempt"

    def _describe(self) -> str:
        statuses = [body.get("status", {}) for body in self.kube.all(RAY_JOB)]
        shown = [
            {name: status.get(name) for name in ("jobDeploymentStatus", "jobStatus", "reason")}
            for status in statuses
        ]
        return f"{shown}; {list(self._find_leftovers())}; {self.kube.writes()[-4:]}"


async def run(draw: JobDraw) -> Result:
    """Simulate one draw."""
    return await JobSimulator(draw).run()


@contextmanager
def _named_by(rng: random.Random) -> Generator[None]:
    """Derive the names of attempts from the seed."""
    module = cast("Any", observe)
    original, module.random = module.random, SimpleNamespace(SystemRandom=lambda: rng)
    try:
        yield
    finally:
        module.random = original
