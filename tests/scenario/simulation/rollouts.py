"""Runs an upgrade into a fault, and classifies how it ended."""

from enum import StrEnum

import msgspec

from common.kube.resources import RAY_SERVICE
from scenario.simulation.faults import POINTS, Fault
from scenario.simulation.rule_judge import RuleJudge
from scenario.simulation.setting import Setting
from scenario.simulation.turns import turn_by_turn
from scenario.simulation.upgrade_simulator import UpgradeSimulator
from service_reconciler.status.conditions import BOTH
from support.builders.ray_service import NAME, NAMESPACE
from support.simulator.scripted import TICK
from support.simulator.simulator import BLUE, GREEN

QUIET = 20.0


class Ending(StrEnum):
    """How a run can end."""

    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"
    GONE = "gone"
    STALLED = "stalled"
    NEVER = "never"


class End(msgspec.Struct, frozen=True, kw_only=True):
    """How a run ended."""

    ending: Ending
    named: str = ""
    """The reported reason of a stall."""


async def begun(setting: Setting) -> UpgradeSimulator[RuleJudge]:
    """Return a service at rest on its first cluster, a moment before its spec changes."""
    sim = turn_by_turn(setting)
    sim.ask(BLUE)
    in_steps = "clusterUpgradeOptions" in setting.strategy
    await sim.until(lambda: sim.is_complete() and (bool(sim.weights) or not in_steps))
    await sim.run(2)
    sim.first = sim.active
    sim.trace.forget()
    return sim


async def simulated(
    setting: Setting, fault: Fault | None = None, point: str = "named", *, for_ever: bool = False
) -> UpgradeSimulator[RuleJudge]:
    """Run an upgrade; at a point the fault begins, and ends in its time unless it lasts for ever."""
    sim = await begun(setting)
    sim.trace.log("user: the spec changes")
    sim.ask(GREEN)
    if fault is None:
        return sim
    for _ in range(round(setting.lasts / TICK)):
        if POINTS[point](sim):
            break
        await sim.run(TICK)
    else:
        sim.judge.broken.append(f"the upgrade does not come to the point {point}")
    sim.trace.log(f"fault: {fault.name}")
    fault.begin(sim)
    sim.judge.check("the fault", by_hand=True)
    if not for_ever:
        await sim.run(fault.seconds)
        sim.trace.log(f"over: {fault.name}")
        fault.end(sim)
        sim.judge.check("the fault", by_hand=True)
    return sim


async def end_of(sim: UpgradeSimulator[RuleJudge], *, within: float | None = None) -> End:
    """Let time pass until the run has ended; then nothing is written any more."""
    for _ in range(round((within or sim.setting.lasts) / TICK)):
        await sim.run(TICK)
        end = _end(sim)
        if end is not None:
            await _at_rest(sim)
            return _end(sim) or End(ending=Ending.NEVER)
    named = stall(sim)
    if named:
        await _silent(sim)
        return End(ending=Ending.STALLED, named=named)
    return End(ending=Ending.NEVER)


def stall(sim: UpgradeSimulator[RuleJudge]) -> str:
    """Return the blocking reason in the status of a service; empty without one."""
    texts: list[str] = []
    if sim.condition("UpgradeStalled")[0] == "True":
        texts.append(f"{sim.condition('UpgradeStalled')[1]}: {sim.message('UpgradeStalled')}")
    if sim.condition("Ready")[0] != "True":
        texts.append(sim.message("Ready"))
    text = sim.message("UpgradeInProgress")
    if text.startswith(BOTH) and text not in {BOTH, BOTH + "."}:
        texts.append(text)
    warnings = [
        f"{reason}: {note}" for kind, reason, note in sim.kube.events() if kind == "Warning"
    ]
    texts += warnings[-1:] if sim.pending else []
    return "; ".join(texts)


def _end(sim: UpgradeSimulator[RuleJudge]) -> End | None:
    if (RAY_SERVICE.kind, NAMESPACE, NAME) not in sim.kube.objects:
        return End(ending=Ending.GONE) if not sim.clusters else None
    if not sim.is_complete() or sim.is_going:
        return None
    asked, held = (
        _image(sim.service["spec"]["rayClusterConfig"]),
        _image(sim.kube.objects[_key(sim.active)]["spec"]),
    )
    follows = (
        sim.setting.kind != "None" and sim.service["spec"]["upgradeStrategy"]["type"] != "None"
    )
    if asked != held and follows:
        return None
    return End(ending=Ending.PROMOTED if sim.active != sim.first else Ending.ROLLED_BACK)


async def _at_rest(sim: UpgradeSimulator[RuleJudge]) -> None:
    """Wait until the last old cluster is gone, and see that all are silent then."""
    for _ in range(round(80 / TICK)):
        if len(sim.clusters) <= 1:
            break
        await sim.run(TICK)
    else:
        sim.judge.broken.append(f"clusters are left over: {sim.clusters}")
    await sim.run(10)
    await _silent(sim)


async def _silent(sim: UpgradeSimulator[RuleJudge]) -> None:
    before, puts = len(sim.kube.writes()), sim.serve.attempts
    await sim.run(QUIET)
    if sim.serve.attempts != puts or len(sim.kube.writes()) != before:
        late = [*sim.kube.writes()[before:], *(["PUT Serve config"] * (sim.serve.attempts - puts))]
        sim.judge.broken.append(f"something is written after the end: {late}")


def _image(config: dict[str, object]) -> str:
    return msgspec.convert(config, _Config).head_group_spec.template.spec.containers[0].image


def _key(cluster: str) -> tuple[str, str, str]:
    return ("RayCluster", NAMESPACE, cluster)


class _Container(msgspec.Struct):
    image: str


class _PodSpec(msgspec.Struct):
    containers: list[_Container]


class _Template(msgspec.Struct):
    spec: _PodSpec


class _Head(msgspec.Struct):
    template: _Template


class _Config(msgspec.Struct, rename="camel"):
    head_group_spec: _Head
