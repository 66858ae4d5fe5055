"""Carries out a run: starts all servers, sends requests and faults, waits for rest, and judges."""

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from bench.programs import Machine
from chaos import audit_trail, background, schedule, stack
from chaos.background import Autoscaler, BackgroundUsers
from chaos.checker import evidence, gaps, history, jobs, rest, writes
from chaos.checker.evidence import ObservedState, Violation
from chaos.checker.rest import FinalObjects, Unreconciled
from chaos.drivers import Drivers
from chaos.evidence_room import EvidenceStore
from chaos.faults import DashboardFaults, Faults
from chaos.probes import Probes
from chaos.ray_jobs import RayJobs
from chaos.report import Report, RunEvent
from chaos.schedule import RECONCILERS, WATCHER, Fault
from chaos.stack import BACKGROUND, PROBES, Stack
from chaos.submitters import Submitters
from chaos.users import UserRequest, Users
from common import errors, labels
from common.api.opaque import Body
from common.bus.subjects import ObjectRef
from common.clock import SystemClock
from common.kube.resources import (
    HTTP_ROUTE,
    JOB,
    POD,
    RAY_CLUSTER,
    RAY_JOB,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from common.kube.watch import NamespacedName
from common.runtime import ownership

WATCHERS: Final = 2
PREPARED_SECONDS: Final = 300.0
STILL_SECONDS: Final = 60.0
"""If no object has changed for this many seconds, the remaining problems count as permanent."""
REST_SECONDS: Final = 600.0
"""Maximum seconds to wait until all objects match their specs, even if objects still change."""
CALM_SECONDS: Final = 4.0
"""Seconds without a problem after which all objects count as being at rest."""
TICK: Final = 2.0


class ChaosOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of the command line."""

    seed: int
    minutes: float
    replicas: int
    """Maximum replicas of each reconciler."""
    jobs: int
    """Number of RayJobs, without those that RayCronJobs start."""
    logs: Path
    work: Path


class ChaosRun:
    """One chaos run, from the start of its processes to its report."""

    def __init__(self, wanted: ChaosOptions, emit: Callable[[str], None]) -> None:
        self._wanted = wanted
        self._emit = emit
        self._clock = SystemClock()
        self._began = self._clock.monotonic()
        self._began_at: datetime = self._clock.now()
        self._since = 0.0
        """Time when the faults begin, in seconds since the beginning of the run."""

    def now(self) -> float:
        """Return the seconds since the beginning of the run."""
        return self._clock.monotonic() - self._began

    async def report(self) -> Report:
        """Carry out the run and return its report."""
        wanted = self._wanted
        faults = schedule.plan(wanted.seed, wanted.minutes * 60, most=wanted.replicas)
        self._emit("starting API server, etcd, controllers, NATS")
        async with stack.started(wanted.work, wanted.logs, self._emit) as chaos_stack:
            users = Users(wanted.seed)
            requests = list(users.requests(wanted.minutes * 60))
            job_requests = RayJobs(wanted.seed, wanted.jobs).requests(wanted.minutes * 60)
            self._emit(
                f"seed {wanted.seed}: {len(faults)} faults, {len(requests)} changes by users, "
                f"{len(job_requests)} of RayJobs; "
                "starting raybus"
            )
            for service in (WATCHER, *RECONCILERS):
                chaos_stack.fleet.scale(service, WATCHERS if service == WATCHER else 1)
            async with EvidenceStore(self.now).open(chaos_stack.kube) as room:
                return await self._run_until_reconciled(
                    chaos_stack, room, faults, requests, job_requests
                )

    async def _run_until_reconciled(
        self,
        chaos_stack: Stack,
        room: EvidenceStore,
        faults: list[Fault],
        requests: list[UserRequest],
        job_requests: list[UserRequest],
    ) -> Report:
        probes, users, striking = (
            Probes(chaos_stack, room),
            BackgroundUsers(chaos_stack, self.now),
            Faults(chaos_stack, self.now, seed=self._wanted.seed),
        )
        drivers = Drivers(chaos_stack.heads, self.now)
        submitters = Submitters(chaos_stack, drivers)
        dashboards = DashboardFaults(chaos_stack, room, drivers, submitters)
        striking.on_fault.append(dashboards.note_fault)
        async with asyncio.timeout(PREPARED_SECONDS):
            await probes.prepare()
        dashboard_faults = schedule.plan_dashboards(self._wanted.seed, self._wanted.minutes * 60)
        self._emit("all probes answer; faults and changes begin")
        self._since, machine = self.now(), Machine()
        async with submitters.running(), asyncio.TaskGroup() as background:
            running = background.create_task(drivers.run())
            progress = background.create_task(self._report_progress(striking, users, probes))
            probing = background.create_task(probes.run())
            scaling = background.create_task(Autoscaler(chaos_stack, room).run())
            async with asyncio.TaskGroup() as group:
                group.create_task(striking.carry_out(faults, since=self._since))
                group.create_task(users.ask(requests, since=self._since))
                group.create_task(users.ask(job_requests, since=self._since))
                group.create_task(dashboards.carry_out(dashboard_faults, since=self._since))
            probing.cancel()
            self._emit("faults and changes are over; waiting until all is at rest")
            end, percent = self.now(), machine.percent
            left = await self._wait_until_reconciled(chaos_stack, room)
            if left:  # SIGUSR1 makes a process log what it waits for
                for process in chaos_stack.fleet.all():
                    process.send_signal(signal.SIGUSR1)
                await asyncio.sleep(TICK)
            progress.cancel()
            scaling.cancel()
            running.cancel()
        probes.finish()
        log = chaos_stack.control_plane.audit_log
        origins = room.origins()
        trail = audit_trail.read(log, dict(origins), began=self._began_at)
        judged = writes.judge(trail.writes, room.seen, partitions_of)
        waits = probes.waits
        reported = gaps.summary(waits, striking.struck, end=end)
        violations = [
            *(_build_violation(unreconciled, end) for unreconciled in left),
            *history.judge(
                room.seen, memory=max(history.MEMORY_SECONDS, *(gap.longest for gap in reported))
            ),
            *judged.violations,
            *gaps.judge(waits, striking.struck, end=end),
            *gaps.stalled(waits, end=end),
            *jobs.judge(room.seen, drivers.runs, end=end),
        ]
        return Report(
            seed=self._wanted.seed,
            minutes=self._wanted.minutes,
            replicas=self._wanted.replicas,
            jobs=self._wanted.jobs,
            faults=len(faults) + len(dashboards.struck),
            changes=len(requests) + len(job_requests),
            drivers=len(drivers.runs),
            states=len(room.seen),
            writes=len(trail.writes),
            against_leases=judged.against_leases,
            with_base=judged.with_base,
            autoscaled=judged.autoscaled,
            machine_percent=round(percent, 1),
            watches=trail.watches,
            unreconciled=left,
            gaps=reported,
            violations=sorted(violations, key=lambda violation: violation.at),
            timeline=sorted(
                [
                    *_build_timeline(striking, users, room.seen, trail, origins),
                    *_list_job_events(dashboards, drivers, origins),
                ],
                key=lambda event: event.at,
            ),
        )

    async def _wait_until_reconciled(
        self, chaos_stack: Stack, room: EvidenceStore
    ) -> list[Unreconciled]:
        """Wait until all objects have matched their specs for `CALM_SECONDS`; return an empty list.

        Return the objects that still do not match `STILL_SECONDS` after the last change, or after
        `REST_SECONDS`.
        """
        began = calm_since = self.now()
        while True:
            left = rest.judge(await read_all(chaos_stack))
            now = self.now()
            calm_since = now if left else calm_since
            if now - calm_since >= CALM_SECONDS:
                return []
            if left and (
                now > began + REST_SECONDS or now > max(began, room.moved_at) + STILL_SECONDS
            ):
                return left
            await asyncio.sleep(1.0)

    async def _report_progress(
        self, striking: Faults, users: BackgroundUsers, probes: Probes
    ) -> None:
        total = self._wanted.minutes * 60
        while True:
            counts = Counter(request.what.split(" ")[0] for _, request in users.done)
            done = ", ".join(f"{what} {count}" for what, count in counts.most_common())
            self._emit(
                f"{self.now() - self._since:4.0f} of {total:.0f} s | {striking.current} | "
                f"replicas {striking.replicas} "
                f"| probes {len(probes.waits)} | {done}"
            )
            await asyncio.sleep(TICK)


async def read_all(chaos_stack: Stack) -> FinalObjects:
    """Read all objects, and the last Serve config of each head."""
    configs: dict[str, str] = {}
    for service, head in chaos_stack.heads.serve.heads.items():
        if head.puts:
            config = yaml.safe_load(msgspec.json.encode(head.puts[-1]))
            configs[service.removesuffix("-head-svc")] = config["applications"][0]["runtime_env"][
                "env_vars"
            ]["MESSAGE"]
    return FinalObjects(
        clusters=await _list_all(chaos_stack, RAY_CLUSTER),
        services=await _list_all(chaos_stack, RAY_SERVICE),
        pods=await _list_all(chaos_stack, POD),
        routes=await _list_all(chaos_stack, HTTP_ROUTE),
        jobs=await _list_all(chaos_stack, RAY_JOB),
        job_children=[*await _list_all(chaos_stack, JOB), *await _list_all(chaos_stack, SERVICE)],
        configs=configs,
    )


async def _list_all(chaos_stack: Stack, resource: Resource) -> list[Body]:
    items: list[Body] = []
    for namespace in (BACKGROUND, PROBES):
        while True:
            try:
                listed: Any = msgspec.json.decode(await chaos_stack.kube.list(resource, namespace))
                break
            except errors.Retryable:
                await asyncio.sleep(0.5)
        items += [{"kind": resource.kind, **item} for item in listed["items"]]
    return items


def partitions_of(lease: ObservedState) -> frozenset[int]:
    """Return the partitions that a replica's Lease lists."""
    return (
        ownership.parse_partitions(lease.object.metadata.annotations.get(labels.PARTITIONS, ""))
        or frozenset()
    )


def _build_violation(left: Unreconciled, end: float) -> Violation:
    text = f"{left.kind} {left.name}: {left.why}"
    return Violation(
        rule="all reconciled at the end", about=f"{left.namespace}/{left.name}", text=text, at=end
    )


def _build_timeline(
    striking: Faults,
    users: BackgroundUsers,
    seen: Iterable[ObservedState],
    trail: audit_trail.Trail,
    origins: dict[tuple[str, str], Any],
) -> list[RunEvent]:
    events = [
        RunEvent(fault.began, "", f"fault: {fault.kind} {fault.service}".strip())
        for fault in striking.struck
    ]
    events += [RunEvent(fault.over, "", f"over: {fault.kind}") for fault in striking.struck]
    events += [
        RunEvent(at, f"{BACKGROUND}/{request.name}", background.reported(request))
        for at, request in users.done
    ]
    for state in seen:
        root = evidence.find_top_owner(state.kind, state.object.metadata, origins)
        if root is not None:
            events.append(RunEvent(state.at, f"{root.namespace}/{root.name}", str(state)))
    for write in trail.writes:
        root = write.top_owner
        if root is not None:
            events.append(RunEvent(write.at, f"{root.namespace}/{root.name}", str(write)))
    return events


def _list_job_events(
    dashboards: DashboardFaults, drivers: Drivers, origins: Mapping[NamespacedName, ObjectRef]
) -> Iterator[RunEvent]:
    for at, fault in dashboards.struck:
        yield RunEvent(at, "", f"fault: {fault.kind}")
    for run in drivers.runs:
        root = origins.get((BACKGROUND, run.cluster))
        about = f"{BACKGROUND}/{root.name if root is not None else run.cluster}"
        yield RunEvent(run.began, about, f"driver of {run.job_id} begins")
        over = run.lost_at if run.ended is None else run.ended
        if over is not None:
            yield RunEvent(over, about, f"driver of {run.job_id} ends: {run.status}")
