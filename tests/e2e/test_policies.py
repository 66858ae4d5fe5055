"""Bad and good versions under an UpgradePolicy, on real Ray behind a real Envoy Gateway under noisy load; it ends with a table.

One node and one service live through all cases, each with a cluster of a head alone, so that it starts within seconds. A bad version has to be
found at 10 % of the traffic at most and to harm 1 % of all requests at most; a good one has to be promoted. `make e2e-policies`
(GOOD=20 upgrades to a good version); the tables go to build/policies.txt.
"""

import asyncio
import json
import math
import os
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import pytest
import pytest_asyncio

from common import labels
from common.api.opaque import Json
from localcluster.demo.cluster_state import NAMESPACE, DemoState
from localcluster.demo.tally import LoadAnswer
from support.builders.upgrade_policy import a_policy
from support.waiting import eventually

from . import judge, version_cases
from .conftest import Rig
from .greeter import Greeter, Options, serving_in_steps, settle, show
from .version_cases import HEAD, MAX_HARMED_SHARE, MAX_WEIGHT, Outcome

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.policies]

SCRIPTS: Final = Path(__file__).parent / "versions"
FIGURES: Final = Path(__file__).parents[2] / "build" / "policies.txt"
RATE: Final = 50.0
GOOD: Final = int(os.environ.get("GOOD", "20"))
BUCKETS: Final = ",".join(
    map(str, (*range(10, 210, 10), 225, 250, 275, 300, 350, 400, 500, 750, 1000, 2000, 5000))
)
"""Milliseconds; Serve's own buckets around the application's 80 ms are 50 and 100."""
GATES: Final[list[Json]] = [
    {"metric": "errorRate", "max": "0.2%", "minRequests": 50},
    {"metric": "latencyP95", "maxIncrease": "30%", "minRequests": 50},
]
ALLOWED: Final = 1.3
"""Of the p95; answers of a bad version that took longer count as harmed."""


def _steps(first: str, then: str = "5s") -> list[Json]:
    return [{"weight": 10, "hold": first}, {"weight": 50, "hold": then}, {"weight": 100}]


POLICIES: Final[dict[str, Json]] = {
    "careful": {"steps": _steps("15s"), "gates": GATES, "bake": "5s"},
    "patient": {"steps": _steps("80s"), "gates": GATES, "bake": "5s"},
    "timid": {
        "steps": [{"weight": 2, "hold": "30s"}, *_steps("15s")],
        "gates": GATES,
        "bake": "5s",
    },
    "baking": {"steps": _steps("5s"), "gates": GATES, "bake": "20s"},
    "brisk": {"steps": _steps("5s", "3s"), "gates": GATES, "bake": "3s"},
    "judged": {
        "steps": [{"weight": 5, "hold": "5s"}, *_steps("5s")],
        "gates": [*GATES, {"webhook": {"url": judge.URL}}],
        "preview": {"service": True},
    },
}
OPTIONS: Final = Options(
    step=100,
    interval=1,
    surge=100,
    replicas=1,
    policy="careful",
    is_head_only=True,
    environment={"RAY_SERVE_REQUEST_LATENCY_BUCKETS_MS": BUCKETS, "SHUTDOWN_SECONDS": "240"},
    annotations={labels.DRAIN_TIMEOUT: "240s"},
)
"""With it a replaced cluster waits for the longest streams."""
HURRIED: Final = {"SHUTDOWN_SECONDS": "2"}
"""Of a version with requests that never end."""


def _with(
    policy: str = "careful", environment: dict[str, str] | None = None, **fault: object
) -> Options:
    """Return the options of a version with a fault."""
    environment = {**OPTIONS.environment, **(environment or {})}
    if fault:
        environment["FAULT"] = json.dumps(fault)
    return msgspec.structs.replace(OPTIONS, policy=policy, environment=environment)


class Table:
    """All cases so far."""

    def __init__(self) -> None:
        self.outcomes: list[Outcome] = []
        self.notes: list[str] = []

    def add(self, outcome: Outcome) -> None:
        """Note a case, and show it."""
        self.outcomes.append(outcome)
        show("", HEAD, outcome)

    def note(self, text: str) -> None:
        """Note a figure, and show it."""
        self.notes.append(text)
        show("", text)

    def __str__(self) -> str:
        """Return the whole table."""
        return "\n".join([HEAD, *map(str, self.outcomes), "", *self.notes])


@pytest.fixture(scope="module")
def table() -> Generator[Table]:
    """Collect the figures of all cases, and print them at the end."""
    found = Table()
    yield found
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(f"{found}\n")
    show("", str(found))


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def service(rig: Rig) -> AsyncGenerator[Greeter]:
    """A service with upgrades by a policy."""
    async with serving_in_steps(rig, OPTIONS, SCRIPTS) as greeter:
        for name, spec in POLICIES.items():
            policy = a_policy(name, spec, namespace=NAMESPACE)
            await rig.kubectl.run("apply", "-f", "-", stdin=msgspec.json.encode(policy).decode())
        yield greeter


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def webhook(rig: Rig, service: Greeter) -> None:
    """A webhook that judges answers; once, because its pod keeps the key that it started with."""
    assert service
    await judge.start(rig)


@asynccontextmanager
async def _under_noise(
    service: Greeter, *, think_every: float = 0.0
) -> AsyncGenerator[list[LoadAnswer]]:
    async with service.under_load(
        rate=RATE, think="60-200", think_every=think_every, seconds=1800.0
    ) as answers:
        await settle(answers, more=400)
        yield answers


def _now() -> float:
    return time.time()  # noqa: TID251  (compared with the load's own wall clock)


# --- the machine -------------------------------------------------------------------------------------------------------


async def test_p99_before_and_during_an_upgrade_and_beside_an_idle_cluster(
    rig: Rig, service: Greeter, table: Table
) -> None:
    async with service.followed() as history, _under_noise(service) as answers:
        marks = {"before": _now()}
        await asyncio.sleep(15)
        marks["an idle RayCluster starts"] = _now()
        await _start_an_idle_cluster(rig, service)
        marks["after it"] = _now()
        await asyncio.sleep(10)
        marks["the new cluster starts"] = _now()
        old = await service.upgrade(_with("baking"))
        await service.wait_for_share(10)
        new = (await service.state()).pending
        marks["steps"] = _now()
        await service.wait_for_share(100)
        marks["bake"] = _now()
        await service.wait("promotion", lambda state: state.active != old)
        marks["afterwards"] = _now()
        await service.wait_for_promotion(old)
        await settle(answers, more=600)
    assert history
    times = [*marks.values(), _now()]
    for number, (name, since) in enumerate(marks.items()):
        p99 = version_cases.p99_of(answers, since, times[number + 1])
        table.note(
            f"p99, {name:<28} {times[number + 1] - since:6.1f} s {'-' if p99 is None else round(p99):>6} ms"
        )
    _promoted(service, table, "p99", answers, new)


async def _start_an_idle_cluster(rig: Rig, service: Greeter) -> None:
    """Bring a RayCluster of the same pods up that has nothing to do with the service, and take it away."""
    spec = service.manifest(service.version)["spec"]["rayClusterConfig"]
    meta = {"name": "idle", "namespace": NAMESPACE}
    body: Json = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": meta, "spec": spec}
    await rig.kubectl.run("apply", "-f", "-", stdin=msgspec.json.encode(body).decode())
    where = ("-n", NAMESPACE, "raycluster/idle", "--timeout=120s")
    await rig.kubectl.run("wait", *where, "--for=condition=HeadPodReady")
    await rig.kubectl.run("delete", *where)
    await service.wait("the idle cluster going", lambda state: "idle" not in state.clusters)


# --- bad versions ------------------------------------------------------------------------------------------------------

BAD: Final = {
    "a p95 of +137 %": _with("timid", slower=2.37),
    "2 % errors": _with("patient", errors=0.02),
    "errors after 60 s": _with("patient", errors=0.3, after=60),
    "errors on one path": _with(errors=0.5, path="/other"),
    "errors while another request runs": _with(errors=0.5, busy=1),
    "a replica that hangs": _with("timid", HURRIED, hangs_after=20),
}


@pytest.mark.parametrize("name", BAD)
async def test_a_bad_version_is_taken_back(service: Greeter, table: Table, name: str) -> None:
    outcome = await _taken_back(service, table, name, BAD[name])
    assert outcome.harmed > 0, "the version harmed nothing, so nothing was shown"


WRONG: Final = {
    "another model's answers": (_with("judged", wrong_from=1), "preview", 0),
    "another model's answers, later": (_with("judged", wrong_from=60), "pending", 5),
}
"""With the address that the webhook sends requests to, and the largest weight."""


@pytest.mark.usefixtures("webhook")
@pytest.mark.parametrize("name", WRONG)
async def test_a_wrong_model_is_taken_back_by_a_webhook(
    rig: Rig, service: Greeter, table: Table, name: str
) -> None:
    options, role, weight = WRONG[name]
    outcome = await _taken_back(service, table, name, options)
    questions = await judge.asked(rig, outcome.cluster)
    show("", *questions)
    assert all(each.is_signed for each in questions)
    assert (questions[-1].result, questions[-1].asked) == ("Fail", role)
    assert outcome.weight == weight
    assert (outcome.harmed > 0) == (weight > 0)


async def _taken_back(service: Greeter, table: Table, name: str, options: Options) -> Outcome:
    """Upgrade to a bad version, and expect that a gate takes it back before it harms many."""
    async with service.followed() as history, _under_noise(service) as answers:
        slow = ALLOWED * version_cases.p95_of(answers)
        old = await service.upgrade(options)
        generation = await service.generation()
        version = str(service.requested)
        new = (await service.wait("a new cluster", lambda state: bool(state.pending))).pending
        await service.wait(
            "a gate failing", lambda state: _is_aborted_by_a_gate(state, generation), within=300
        )
        await service.wait_for_return(old)
        await settle(answers, more=600)
    assert history
    is_slower = "slower" in options.environment["FAULT"]
    bad = version_cases.harmed(
        answers, version=version, slower_than=slow if is_slower else math.inf
    )
    back = version_cases.taken_back_at(service.moves, new)
    outcome = Outcome(
        name=name,
        end="taken back",
        cluster=new,
        weight=version_cases.largest_weight(service.moves, new),
        requests=len(answers),
        harmed=len(bad),
        of_new=sum(each.version == version for each in answers),
        seconds=back - min(each.at + each.seconds for each in bad)
        if back is not None and bad
        else None,
    )
    table.add(outcome)
    show("harmed:", *bad[:3], "…", *bad[-2:])
    assert (back is None) == (outcome.weight == 0), "\n".join(map(str, service.moves))
    assert outcome.weight <= MAX_WEIGHT
    assert outcome.harmed <= MAX_HARMED_SHARE * outcome.requests
    assert all(each.at <= (back or 0) + 5 for each in bad)
    return outcome


def _is_aborted_by_a_gate(state: DemoState, generation: int) -> bool:
    held = [] if state.service is None else state.service.status.conditions
    wanted = ("UpgradeAborted", "True", "GateFailed")
    return any(
        (each.type, each.status, each.reason) == wanted
        and f"generation {generation} " in each.message
        for each in held
    )


# --- good versions, and streams that outlive them ----------------------------------------------------------------------


async def test_good_versions_are_promoted(service: Greeter, table: Table) -> None:
    async with service.followed() as history, _under_noise(service) as answers:
        for number in range(1, GOOD + 1):
            before, began = len(answers), _now()
            new = await service.wait_for_promotion(
                await service.upgrade(_with("brisk")), within=480
            )
            name = f"a good version, {number} ({_now() - began:.0f} s)"
            _promoted(service, table, name, answers[before:], new)
    assert history


async def test_streams_of_minutes_outlive_an_upgrade_a_bake_and_its_rollback(
    service: Greeter, table: Table
) -> None:
    async with service.followed() as history, _under_noise(service, think_every=6) as answers:
        first = await service.wait_for_another(await service.upgrade(_with("baking")), within=240)
        _promoted(service, table, "an upgrade under streams", list(answers), first)
        before = len(answers)
        old = await service.upgrade(_with("baking"))
        await service.wait_for_share(100)
        await asyncio.sleep(8)  # streams begin on the version that bakes
        pending, reverted = (await service.state()).pending, _now()
        await service.revert(_with("baking"))
        await eventually(lambda: _taken_back_at(service, pending), within=60, what="weight 0")
        back = _taken_back_at(service, pending)
        assert back is not None
        table.note(
            f"rollback during the bake: weight 0 in the route {back - reverted:.2f} s after the spec was reverted"
        )
        await service.wait("the rollback", lambda state: state.active == old and not state.pending)
        await eventually(
            lambda: answers[-1].at > reverted + 205, within=300, what="the end of streams"
        )
    assert old == first
    since = next(index for index, each in enumerate(history) if each.pending == pending)
    clusters = {name for each in history[since:] for name in (each.active, each.pending) if name}
    assert clusters == {old, pending}, "the revert made another cluster"
    streams = [each for each in answers if each.think]
    longest = max(each.think for each in streams)
    cut = [each for each in streams if each.failed]
    open_then = [each for each in streams if each.at < reverted < each.at + each.seconds]
    of_pending = sum(each.version == str(service.requested) for each in open_then)
    table.note(
        f"streams of 60 to {longest:.0f} s: {len(streams)} ended, {len(cut)} cut; {len(open_then)} were open at the"
        f" revert, {of_pending} of them on the version that was taken back"
    )
    _promoted(service, table, "bake and rollback under streams", answers[before:], pending)
    assert longest > 100
    assert of_pending > 0


def _taken_back_at(service: Greeter, cluster: str) -> float | None:
    return version_cases.taken_back_at(service.moves, cluster)


def _promoted(
    service: Greeter, table: Table, name: str, answers: list[LoadAnswer], new: str
) -> None:
    """Note a version that was good, and expect that it harmed nothing."""
    failed = [each for each in answers if each.failed]
    weight = version_cases.largest_weight(service.moves, new)
    of_new = sum(each.version == str(service.version) for each in answers)
    end = "promoted" if "rollback" not in name else "reverted"
    table.add(
        Outcome(
            name=name,
            end=end,
            weight=weight,
            requests=len(answers),
            harmed=len(failed),
            of_new=of_new,
        )
    )
    assert failed == [], "\n".join(map(str, failed[:40]))
