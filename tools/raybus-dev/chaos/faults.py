"""Carries out the faults of a run one after another, and repairs what they broke."""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from random import Random
from typing import Final

from chaos.checker.gaps import Struck
from chaos.drivers import Drivers
from chaos.evidence_room import EvidenceStore
from chaos.schedule import JOB_RECONCILER, RECONCILERS, WATCHER, Fault
from chaos.stack import BACKGROUND, Stack
from chaos.submitters import Submitters
from common import errors, labels
from common.kube.resources import POD
from support.servers.fault_proxy import PASSES, Asked, Fate, Judge
from support.servers.fleet import Replica
from support.waiting import eventually_true

REFUSED_SHARE: Final = 0.4
LATENCY: Final = 0.5
HEALED_SECONDS: Final = 5.0
HAND_OVER_SECONDS: Final = 1.0
"""Seconds that a hand-over from one watcher to another takes."""
_BEHAVIOURS: Final = {
    "dashboards answer 500": "500",
    "dashboards are silent": "silent",
    "dashboards lose answers": "lost answers",
}


class Faults:
    """Carries out the faults of services and servers."""

    def __init__(self, stack: Stack, now: Callable[[], float], *, seed: int) -> None:
        self.struck: list[Struck] = []
        self.current = "none"
        self.replicas = 1
        self._stack = stack
        self._now = now
        self._random = Random(seed)
        self.on_fault: list[Callable[[Fault], None]] = []
        """Functions that are called at the beginning of each fault."""
        self._actions: dict[str, Callable[[Fault], Awaitable[None]]] = {
            "scale": self._scale,
            "kill -9": self._kill,
            "node loss": self._lose,
            "SIGTERM": self._term,
            "SIGSTOP": self._freeze,
            "cut off from the API server": self._partition,
            "SIGTERM of a watcher": self._term,
            "kill -9 in a hand-over of watchers": self._kill_in_hand_over,
            "kill -9 of a watcher": self._kill,
            "SIGSTOP of a watcher": self._freeze,
            "NATS kill": self._kill_nats,
            "NATS volume loss": self._reset_nats,
            "API server restart": self._restart_api_server,
            "410": lambda fault: self._judge_requests(
                fault, self._build_refusal(410, lambda asked: asked.is_watch)
            ),
            "409": lambda fault: self._judge_requests(
                fault, self._build_refusal(409, _is_no_lease)
            ),
            "429": lambda fault: self._judge_requests(fault, self._build_refusal(429, _any)),
            "5xx": lambda fault: self._judge_requests(fault, self._build_refusal(503, _any)),
            "lost answers": lambda fault: self._judge_requests(fault, self._build_answer_loss()),
            "latency": lambda fault: self._judge_requests(
                fault, lambda _asked: Fate(delay=LATENCY)
            ),
            "black-holed watches": self._black_hole,
        }

    async def carry_out(self, faults: list[Fault], *, since: float) -> None:
        """Carry out each fault at its time in seconds, counted from `since`."""
        for fault in faults:
            await asyncio.sleep(max(0.0, since + fault.at - self._now()))
            self.current = str(fault)
            for callback in self.on_fault:
                callback(fault)
            if fault.replicas:
                self.replicas = fault.replicas
            began = self._now()
            place = len(self.struck)
            self.struck.append(self._build_struck(fault, began, began + fault.over - fault.at))
            await self._actions[fault.kind](fault)
            ended = max(self._now() + HEALED_SECONDS, began + fault.over - fault.at)
            self.struck[place] = self._build_struck(fault, began, ended)
        if faults:
            await asyncio.sleep(max(0.0, self.struck[-1].over - self._now()))
        self.current = "none"

    def _build_struck(self, fault: Fault, began: float, over: float) -> Struck:
        return Struck(
            kind=fault.kind,
            service=fault.service,
            began=round(began, 3),
            over=round(over, 3),
            replicas=self.replicas,
        )

    def _pick_victim(self, fault: Fault) -> Replica:
        replicas = self._stack.fleet.of(fault.service)
        return replicas[fault.draw % len(replicas)]

    async def _scale(self, fault: Fault) -> None:
        """Scale the reconcilers, starting one process after another.

        On a real cluster, each replica would have its own node. Here, nine processes that start at
        once would take the processors from all other processes.
        """
        fleet = self._stack.fleet
        for count in range(1, fault.replicas + 1):
            for service in RECONCILERS:
                if len(fleet.of(service)) < count:
                    fleet.scale(service, count)
                    newest = fleet.of(service)[-1]
                    await eventually_true(
                        newest.is_ready, within=60, every=0.1, what=f"{newest.name} to be ready"
                    )
        for service in RECONCILERS:
            fleet.scale(service, fault.replicas)

    async def _kill(self, fault: Fault) -> None:
        self._pick_victim(fault).send_signal(signal.SIGKILL)

    async def _lose(self, fault: Fault) -> None:
        await self._replace(fault, self._stack.fleet.lose)

    async def _term(self, fault: Fault) -> None:
        """End a replica as the deletion of its pod does.

        The replacement starts after the other replicas have taken over, because on a real cluster
        it would have its own node.
        """
        await self._replace(fault, self._stack.fleet.end)

    async def _kill_in_hand_over(self, fault: Fault) -> None:
        """End a watcher, and kill it or its successor at a random moment of the hand-over."""
        watchers = self._stack.fleet.of(WATCHER)
        ends, dies = self._pick_victim(fault), watchers[fault.draw // len(watchers) % len(watchers)]
        ends.send_signal(signal.SIGTERM)
        await asyncio.sleep(self._random.uniform(0.0, HAND_OVER_SECONDS))
        dies.send_signal(signal.SIGKILL)
        await asyncio.sleep(fault.lasts - HAND_OVER_SECONDS)

    async def _replace(self, fault: Fault, end: Callable[[Replica], None]) -> None:
        fleet = self._stack.fleet
        count = len(fleet.of(fault.service))
        end(self._pick_victim(fault))
        try:
            await asyncio.sleep(fault.lasts)
        finally:
            fleet.scale(fault.service, count)

    async def _freeze(self, fault: Fault) -> None:
        victim = self._pick_victim(fault)
        victim.send_signal(signal.SIGSTOP)
        try:
            await asyncio.sleep(fault.lasts)
        finally:
            victim.send_signal(signal.SIGCONT)

    async def _partition(self, fault: Fault) -> None:
        fault_proxy = self._pick_victim(fault).fault_proxy
        before, fault_proxy.judge = fault_proxy.judge, _hold
        try:
            await asyncio.sleep(fault.lasts)
        finally:
            fault_proxy.judge = before
            fault_proxy.cut()

    async def _kill_nats(self, fault: Fault) -> None:
        self._stack.nats.kill()
        await asyncio.sleep(fault.lasts)
        self._stack.nats.start()

    async def _reset_nats(self, fault: Fault) -> None:
        self._stack.nats.kill()
        self._stack.nats.lose_store()
        await asyncio.sleep(fault.lasts)
        self._stack.nats.start()

    async def _restart_api_server(self, _fault: Fault) -> None:
        await self._stack.control_plane.restart_api_server()

    async def _black_hole(self, fault: Fault) -> None:
        fault_proxies = [process.fault_proxy for process in self._stack.fleet.of(WATCHER)]
        for fault_proxy in fault_proxies:
            fault_proxy.silence()
        try:
            await asyncio.sleep(fault.lasts)
        finally:
            for fault_proxy in fault_proxies:
                fault_proxy.resume()

    async def _judge_requests(self, fault: Fault, judge: Judge) -> None:
        with self._judge_during(fault.service, judge):
            if fault.kind == "410":  # open watches would otherwise continue
                for process in self._stack.fleet.of(fault.service):
                    process.fault_proxy.cut()
            await asyncio.sleep(fault.lasts)

    @contextmanager
    def _judge_during(self, service: str, judge: Judge) -> Generator[None]:
        self._stack.fleet.judge(service, judge)
        try:
            yield
        finally:
            self._stack.fleet.judge(service, None)

    def _build_refusal(self, status: int, is_meant: Callable[[Asked], bool]) -> Judge:
        share = 1.0 if status == 410 else REFUSED_SHARE
        wait = 1 if status == 429 else None

        def judge(asked: Asked) -> Fate:
            is_struck = is_meant(asked) and self._random.random() < share
            return Fate(status=status, retry_after=wait) if is_struck else PASSES

        return judge

    def _build_answer_loss(self) -> Judge:
        return lambda asked: Fate(
            loses_answer=asked.is_write and self._random.random() < REFUSED_SHARE
        )


class DashboardFaults:
    """Carries out the faults of dashboards and heads of RayJobs."""

    def __init__(
        self, stack: Stack, room: EvidenceStore, drivers: Drivers, submitters: Submitters
    ) -> None:
        self.struck: list[tuple[float, Fault]] = []
        self.service = ""
        """Name of the service that the latest fault affects; empty for a fault of a server."""
        self._stack = stack
        self._room = room
        self._drivers = drivers
        self._submitters = submitters
        self._now = room.now

    async def carry_out(self, faults: list[Fault], *, since: float) -> None:
        """Carry out each fault at its time in seconds, counted from `since`."""
        for fault in faults:
            await asyncio.sleep(max(0.0, since + fault.at - self._now()))
            began = self._now()
            if fault.kind == "head loss":
                if await self._lose_head(fault):
                    self.struck.append((began, fault))
                continue
            self.struck.append((began, fault))
            self._drivers.behaviour = _BEHAVIOURS[fault.kind]
            try:
                await asyncio.sleep(fault.lasts)
            finally:
                self._drivers.behaviour = "ok"

    def note_fault(self, fault: Fault) -> None:
        """Remember which service a fault of `Faults` affects."""
        self.service = fault.service

    async def _lose_head(self, fault: Fault) -> bool:
        """Delete the head pod of a RayJob whose driver runs. Return whether a pod was deleted."""
        heads = [
            pod for pod, cluster in self._submitters.heads().items() if self._is_handled(cluster)
        ]
        if not heads:
            return False
        with suppress(errors.RaybusError):  # the API server is away, or the job has just ended
            await self._stack.kube.delete(POD, BACKGROUND, heads[fault.draw % len(heads)])
            return True
        return False

    def _is_handled(self, cluster: str) -> bool:
        """Return whether raybus can handle the loss of the head without running the job twice.

        After the head is lost, the Job controller replaces the submitter after 10 s. Before that,
        raybus must have read a status of the job, and must be able to act (ADR 51).
        """
        seen = self._room.latest("RayCluster", BACKGROUND, cluster)
        if seen is None or seen.label.get(labels.JOB_SUBMISSION_MODE) != "K8sJobMode":
            return seen is not None
        job = self._room.latest("RayJob", BACKGROUND, cluster.rpartition("-")[0])
        is_read = job is not None and bool(job.status.job_status)
        return is_read and self.service not in {"", WATCHER, JOB_RECONCILER}


def _hold(_asked: Asked) -> Fate:
    return Fate(is_held=True)


def _any(_asked: Asked) -> bool:
    return True


def _is_no_lease(asked: Asked) -> bool:
    return asked.is_write and "/leases/" not in asked.target
