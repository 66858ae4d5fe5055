"""Runs the upgrade of one draw: to rest, through what happens, and to its end, which must come."""

from collections.abc import Callable
from contextlib import suppress
from typing import Final

import msgspec

from common.api.opaque import Json
from common.kube.resources import HTTP_ROUTE, RAY_CLUSTER, SECRET, UPGRADE_POLICY
from scenario.simulation import draws, edges
from scenario.simulation.draws import POLICY, POLICY_SECONDS, STEPS, Draw, Happening
from scenario.simulation.faults import POINTS
from scenario.simulation.interleaved import Interleaved, interleaved
from scenario.simulation.law_judge import LawJudge, NeverRests
from scenario.simulation.strangers import APPENDED, FOR_EVER, STRANGERS, bring_foreign, take_foreign
from scenario.simulation.upgrade_simulator import AnyUpgrade, UpgradeSimulator
from support.builders.ray_service import NAME, NAMESPACE, a_strategy
from support.builders.upgrade_policy import a_policy, a_signing_key
from support.laws import upgrade_requests, upgrade_states
from support.simulator.scripted import TICK
from support.simulator.simulator import BLUE, GREEN, RED

CONFIGS: Final = {"blue": BLUE, "green": GREEN, "red": RED, "appended": APPENDED}
LONGEST: Final = 1400.0
"""Maximum seconds until an upgrade is brought to its end."""
ENDS: Final = 300.0
"""Seconds within which the upgrade must then end."""
SETTLES: Final = 10.0
RESTS: Final = 15.0
"""Seconds until the last write of an upgrade that has ended.

A head pod loses its label after two failed checks of its proxy, which are 5 s apart at rest.
"""
QUIET: Final = 20.0
ALL_POINTS: Final[dict[str, Callable[[AnyUpgrade], bool]]] = {"begin": lambda _: True, **POINTS}
WAITS: Final[dict[str, Callable[[AnyUpgrade], bool]]] = {
    "waits": lambda sim: sim.condition("UpgradePaused")[0] == "True",
    "mirrored": lambda sim: (
        (HTTP_ROUTE.kind, NAMESPACE, f"{NAME}-mirror-httproute") in sim.kube.objects
    ),
    "bakes": lambda sim: sim.is_promoted and len(sim.clusters) > 1,
    "goes back": lambda sim: sim.is_rolling_back(),
    "failed": lambda sim: sim.condition("UpgradeAborted")[0] == "True",
}
"""Points at which an upgrade stands still or goes back."""
HAPPENS: Final = {**edges.ALL, **STRANGERS}
LASTS_FOR_EVER: Final = edges.LASTS_FOR_EVER | FOR_EVER
PLAN: Final = {name: each.needs_steps for name, each in edges.ALL.items()}


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one draw."""

    draw: Draw
    found: dict[str, str] = {}
    """Broken laws with their descriptions."""
    seconds: float = 0.0
    """Simulated seconds of the run."""
    writes: int = 0
    trace: str = ""


class _Under(msgspec.Struct):
    """A happening, and when it began."""

    what: Happening
    begins: float | None = None
    ends: float | None = None
    is_over: bool = False


def of_seed(seed: int) -> Draw:
    """Return the draw of a seed."""
    strangers = {name: each.needs_steps for name, each in STRANGERS.items()}
    return draws.of(seed, PLAN, tuple(ALL_POINTS), strangers, tuple(WAITS))


async def run(draw: Draw, *, is_traced: bool = False) -> Result:
    """Run one draw."""
    sim = interleaved(draw, is_traced=is_traced)
    with suppress(NeverRests):
        await _settle(sim)
        await _upgrade(sim)
        await _finish(sim)
    await _driver(sim).close()
    return Result(
        draw=draw,
        found={f"{law} ({subject})": text for (law, subject), text in sim.judge.found.items()},
        seconds=sim.clock.monotonic(),
        writes=len(sim.kube.requests),
        trace=sim.trace.rendered() if is_traced else "",
    )


async def _settle(sim: UpgradeSimulator[LawJudge]) -> None:
    kind = sim.draw.first_kind or sim.setting.kind
    if sim.draw.policy is not None:
        sim.kube.put(UPGRADE_POLICY, a_policy(POLICY, sim.draw.policy, namespace=NAMESPACE))
        sim.kube.put(SECRET, a_signing_key(NAMESPACE))
    for suffix in sim.draw.world.foreign:
        bring_foreign(sim, suffix, draws.FOREIGN[suffix])
    sane = a_strategy(surge=50, step=25, interval=1) if kind == STEPS else {"type": kind}
    sim.ask(BLUE, upgradeStrategy=sane)
    for _ in range(120):
        await sim.run(0.5)
        if sim.is_complete() and (kind != STEPS or sim.weights):
            break
    await sim.run(2)
    sim.first = sim.active
    if sim.draw.first_kind is None:
        sim.ask(BLUE, upgradeStrategy=sim.setting.strategy)
        await sim.run(1)
    sim.trace.forget()
    sim.ray_clusters.start_seconds = sim.draw.starts
    sim.judge.counts_from = sim.writes.count


async def _upgrade(sim: UpgradeSimulator[LawJudge]) -> None:
    draw = sim.draw
    under = [_Under(what=each) for each in draw.happenings]
    began, has_begun = sim.clock.monotonic(), False
    if draw.edit_before is not None:
        sim.trace.log("user: the Serve config is edited")
        sim.ask(BLUE, message="edited")
    lasts = sim.setting.lasts + (POLICY_SECONDS if draw.policy is not None else 0.0)
    while sim.clock.monotonic() - began < min(LONGEST, lasts):
        for each in under:
            _move(sim, each)
        sim.resume(draw.resumes)
        if has_begun:
            _edit(sim, sim.clock.monotonic() - began - (draw.edit_before or 0.0))
        if not has_begun and sim.clock.monotonic() - began >= (draw.edit_before or 0.0):
            has_begun = True
            sim.sources.turns_from = sim.clock.monotonic()
            sim.trace.log("user: the spec changes")
            kept = {} if draw.first_kind is None else {"upgradeStrategy": sim.setting.strategy}
            sim.ask(GREEN, **kept)
        waits = not has_begun or any(not each.is_over for each in under)
        is_old = sim.clock.monotonic() - began > (draw.edit_before or 0.0) + SETTLES
        if not waits and is_old and sim.is_complete() and len(sim.clusters) == 1:
            break
        await sim.run(TICK if waits else 2.0)
    await _until_made_again(sim)
    for each in (each for each in under if each.begins is not None and not each.is_over):
        _end(sim, each)


async def _until_made_again(sim: UpgradeSimulator[LawJudge]) -> None:
    """Let a RayService that the user deleted go, and come again."""
    for _ in range(round(upgrade_states.GOES)):
        if sim.has_service:
            return
        sim.wants_again = True
        await sim.run(1.0)


def _edit(sim: UpgradeSimulator[LawJudge], seconds: float) -> None:
    """Let the user edit the policy as often as is due."""
    due = [each for each in sim.draw.edits if each.after <= seconds]
    for each in due[sim.edits_made :]:
        sim.trace.log(f"user: the policy is edited: {each.spec}")
        sim.kube.put(UPGRADE_POLICY, a_policy(POLICY, each.spec, namespace=NAMESPACE))
    sim.edits_made = len(due)


def _move(sim: UpgradeSimulator[LawJudge], each: _Under) -> None:
    now = sim.clock.monotonic()
    fault = HAPPENS[each.what.fault]
    if not sim.has_service:  # the user makes it again
        return
    if each.begins is None and (ALL_POINTS | WAITS)[each.what.point](sim):
        each.begins = now + each.what.after
    if each.begins is not None and each.ends is None and now >= each.begins:
        lasts = fault.seconds if each.what.seconds is None else each.what.seconds
        each.ends = now + lasts
        sim.trace.log(f"begins: {fault.name}")
        sim.by_hand(fault.begin)
    if each.ends is not None and now >= each.ends and not each.is_over:
        _end(sim, each)


def _end(sim: UpgradeSimulator[LawJudge], each: _Under) -> None:
    each.is_over = True
    if each.ends is None or each.what.fault in LASTS_FOR_EVER:
        return
    sim.trace.log(f"ends: {each.what.fault}")
    sim.by_hand(HAPPENS[each.what.fault].end)


async def _finish(sim: UpgradeSimulator[LawJudge]) -> None:
    sim.trace.log("user: brings it to its end")
    sim.sources.turns_from = None
    sim.annotate(pause=None, abort=None, promote=None, progress_deadline=None, on_deadline=None)
    sim.surge, sim.may_hurry = 100, True
    for suffix in sim.draw.world.foreign:
        take_foreign(sim, suffix, draws.FOREIGN[suffix])
    await _until_made_again(sim)
    in_steps = sim.setting.kind == STEPS
    wanted = CONFIGS[sim.draw.last]
    if sim.draw.policy is not None:  # the last edit may have been an invalid one
        sim.kube.put(UPGRADE_POLICY, a_policy(POLICY, sim.draw.policy, namespace=NAMESPACE))
    if sim.draw.rests:
        await sim.run(sim.draw.rests)
    strategy = a_strategy(surge=50, step=50, interval=1) if in_steps else {"type": "NewCluster"}
    sim.ask(wanted, upgradeStrategy=strategy, message="last", suspend=False)
    if not await _converges(sim, wanted):
        sim.judge.break_law("converge", "the upgrade", f"the upgrade does not end: {_state(sim)}")
        return
    for text in _left(sim, in_steps=in_steps):
        sim.judge.break_law("end", text.split()[0], text)
    before, puts = len(sim.kube.writes()), sim.serve.attempts
    await sim.run(QUIET)
    late = [*sim.kube.writes()[before:], *(["PUT"] * (sim.serve.attempts - puts))]
    if late:
        sim.judge.break_law("silent", "rest", f"{len(late)} writes at rest: {late[:4]}")


async def _converges(sim: UpgradeSimulator[LawJudge], wanted: Json) -> bool:
    """Let time pass until the service has what its user wants, and comes to rest."""
    for _ in range(round(ENDS + 2 * sim.draw.starts)):
        await sim.run(1.0)
        sim.resume(0.0)
        sim.overrule()
        if _is_over(sim, wanted):
            break
    else:
        return False
    for _ in range(60):
        if not _driver(sim).is_busy:
            break
        await sim.run(1)
    await sim.run(RESTS)
    return True


def _is_over(sim: UpgradeSimulator[LawJudge], wanted: Json) -> bool:
    if not sim.is_complete() or sim.clusters != [sim.active]:
        return False
    body = sim.kube.objects[RAY_CLUSTER.kind, NAMESPACE, sim.active]
    if "last" not in str(sim.model(sim.active).puts[-1:]):
        return False
    return upgrade_requests.essence(body) == upgrade_requests.essence({"spec": wanted})


def _left(sim: UpgradeSimulator[LawJudge], *, in_steps: bool) -> list[str]:
    """Return what is wrong at the end."""
    name = sim.active
    head = sim.model(name)
    found: list[str] = []
    if head.target != 100:
        found.append(f"{name} has a capacity of {head.target} at the end")
    if not head.puts or "last" not in str(head.puts[-1]):
        found.append(f"{name} does not run the Serve config of the spec")
    if in_steps and sim.weights != {name: 100}:
        found.append(f"{name} is alone and the route has {sim.weights}")
    return found


def _state(sim: UpgradeSimulator[LawJudge]) -> str:
    conditions = [
        f"{each['type']} {each['status']}: {each['message']}"
        for each in sim.status.get("conditions", [])
    ]
    targets = {name: sim.model(name).target for name in sim.clusters}
    return f"active {sim.active}, pending {sim.pending or '-'}, clusters {targets}, weights {sim.weights}; {'; '.join(conditions)}"


def _driver(sim: UpgradeSimulator[LawJudge]) -> Interleaved:
    assert isinstance(sim.driver, Interleaved)
    return sim.driver
