"""What can happen in an upgrade, and when: faults with a beginning and an end, and the points at which they strike."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec

from common import errors
from common.kube.resources import GATEWAY, HTTP_ROUTE, RAY_CLUSTER, RAY_SERVICE
from scenario.simulation.ray import REPLICAS
from scenario.simulation.upgrade_simulator import AnyUpgrade
from support.builders.ray_service import NAME, a_strategy
from support.fakes.kube import Request
from support.simulator.simulator import BLUE, GREEN, RED

Do = Callable[[AnyUpgrade], None]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happens."""

    name: str
    begin: Do
    end: Do = lambda sim: None
    seconds: float = 6.0
    """Duration of the fault in seconds."""
    needs_steps: bool = False
    """Whether the fault has an effect only if traffic moves in steps."""
    stalls: str = ""
    """Blocking reason in the status if the fault lasts for ever; empty if the fault cannot last."""


# --- Ray -------------------------------------------------------------------------------------------------------------------


def _head(role: str, **values: object) -> Do:
    """Return a function that sets attributes of a cluster's Serve."""

    def do(sim: AnyUpgrade) -> None:
        name = _cluster(sim, role)
        for attribute, value in values.items():
            setattr(sim.model(name), attribute, value) if name else None

    return do


def _cluster(sim: AnyUpgrade, role: str) -> str:
    """Return the cluster that plays a role; the cluster that fell ill is remembered under it."""
    return sim.victims.setdefault(role, sim.pending if role == "pending" else sim.active)


def _replace_head(role: str) -> Do:
    def do(sim: AnyUpgrade) -> None:
        name = _cluster(sim, role)
        if name in sim.clusters:
            sim.model(name).restart()
            sim.set_head(name, is_ready=False)

    return do


def _head_is_back(role: str) -> Do:
    def do(sim: AnyUpgrade) -> None:
        name = _cluster(sim, role)
        if name in sim.clusters:
            sim.set_head(name, is_ready=True)

    return do


def _lose_replicas(sim: AnyUpgrade) -> None:
    sim.model(_cluster(sim, "pending")).lose(REPLICAS // 2)


def _ray() -> list[Fault]:
    found: list[Fault] = []
    for role in ("pending", "active"):
        healthy = _head(role, behaviour="ok", app_state=None)
        is_pending = role == "pending"
        found += [
            Fault(
                name=f"{role} dashboard answers 500",
                begin=_head(role, behaviour="500"),
                end=healthy,
                stalls="500",
            ),
            Fault(
                name=f"{role} dashboard hangs",
                begin=_head(role, behaviour="silent"),
                end=healthy,
                seconds=20.0,
                stalls="does not answer",
            ),
            Fault(
                name=f"{role} application unhealthy",
                begin=_head(role, app_state="UNHEALTHY"),
                end=healthy,
                seconds=20.0,
                stalls="UNHEALTHY",
            ),
            Fault(
                name=f"{role} application fails to deploy",
                begin=_head(role, app_state="DEPLOY_FAILED"),
                end=healthy,
                stalls="DEPLOY_FAILED",
            ),
            Fault(name=f"{role} head replaced", begin=_replace_head(role), end=_head_is_back(role)),
        ]
        if not is_pending:
            continue
        found += [
            Fault(name="half of the pending replicas die", begin=_lose_replicas),
            Fault(
                name="no room for pending replicas",
                begin=_head(role, most_replicas=REPLICAS // 5),
                end=_head(role, most_replicas=REPLICAS),
                seconds=20.0,
                stalls="UpgradeStalled",
            ),
        ]
    return found


# --- the Gateway -----------------------------------------------------------------------------------------------------------


def _gateway(**values: object) -> Do:
    def do(sim: AnyUpgrade) -> None:
        for attribute, value in values.items():
            setattr(sim.gateway, attribute, value)
        sim.gateway.forget()

    return do


def _delete(kind: str) -> Do:
    resource = {"route": HTTP_ROUTE, "gateway": GATEWAY}[kind]
    name = {"route": f"{NAME}-httproute", "gateway": f"{NAME}-gateway"}[kind]

    def do(sim: AnyUpgrade) -> None:
        sim.remove(resource, name)

    return do


def _networks() -> list[Fault]:
    return [
        Fault(
            name="gateway not programmed",
            begin=_gateway(is_programmed=False),
            end=_gateway(is_programmed=True),
            needs_steps=True,
            stalls="is not Programmed",
        ),
        Fault(
            name="route rejected",
            begin=_gateway(accepts_routes=False),
            end=_gateway(accepts_routes=True),
            needs_steps=True,
            stalls="is not Accepted",
        ),
        Fault(
            name="gateway asleep",
            begin=_gateway(is_asleep=True),
            end=_gateway(is_asleep=False),
            seconds=15.0,
            needs_steps=True,
            stalls="GatewayNotReady",
        ),
        Fault(name="route deleted by hand", begin=_delete("route"), needs_steps=True),
        Fault(name="gateway deleted by hand", begin=_delete("gateway"), needs_steps=True),
    ]


# --- Kubernetes and our own processes --------------------------------------------------------------------------------------


def _refuse(problem: type[errors.RaybusError]) -> Do:
    def refused(request: Request) -> errors.RaybusError | None:
        return problem(f"{request} fails")

    def do(sim: AnyUpgrade) -> None:
        sim.refusal = refused

    return do


def _accept(sim: AnyUpgrade) -> None:
    sim.refusal = None


def _answers(*, are_lost: bool) -> Do:
    def do(sim: AnyUpgrade) -> None:
        sim.loses_answers = are_lost

    return do


def _lag(name: str, seconds: float) -> Do:
    def do(sim: AnyUpgrade) -> None:
        sim.services[name].lag = seconds

    return do


def _down(name: str, *, is_down: bool) -> Do:
    def do(sim: AnyUpgrade) -> None:
        sim.services[name].is_down = is_down
        if not is_down:
            sim.restart(name)

    return do


def _jump(hours: float) -> Do:
    def do(sim: AnyUpgrade) -> None:
        sim.clock.jump(timedelta(hours=hours))

    return do


def _lose(role: str) -> Do:
    def do(sim: AnyUpgrade) -> None:
        name = _cluster(sim, role)
        if name in sim.clusters:
            sim.remove(RAY_CLUSTER, name)

    return do


def _machines() -> list[Fault]:
    found: list[Fault] = []
    for name in ("service", "traffic"):
        found += [
            Fault(name=f"{name} receives late", begin=_lag(name, 3.0), end=_lag(name, 0.0)),
            Fault(
                name=f"{name} is down",
                begin=_down(name, is_down=True),
                end=_down(name, is_down=False),
            ),
        ]
    return [
        *found,
        Fault(name="writes meet conflicts", begin=_refuse(errors.Conflict), end=_accept),
        Fault(name="the API server fails", begin=_refuse(errors.Unavailable), end=_accept),
        Fault(
            name="answers are lost",
            begin=_answers(are_lost=True),
            end=_answers(are_lost=False),
            seconds=4.0,
        ),
        Fault(name="the clock jumps back", begin=_jump(-1)),
        Fault(name="the clock jumps forward", begin=_jump(1)),
        Fault(name="pending cluster deleted by hand", begin=_lose("pending")),
        Fault(name="active cluster deleted by hand", begin=_lose("active")),
    ]


# --- the user --------------------------------------------------------------------------------------------------------------


def _change_options(surge: int, step: int) -> Do:
    def do(sim: AnyUpgrade) -> None:
        sim.surge, sim.may_hurry = max(sim.surge, surge), not (surge and step)
        sim.ask(GREEN, upgradeStrategy=a_strategy(surge=surge, step=step, interval=1))

    return do


def _change_strategy(kind: str) -> Do:
    def do(sim: AnyUpgrade) -> None:
        if not sim.puts(sim.pending):  # no record of the options yet: what holds now is all at once
            sim.surge = 100
        sim.ask(GREEN, upgradeStrategy={"type": kind})

    return do


def _suspend(*, is_on: bool) -> Do:
    def do(sim: AnyUpgrade) -> None:
        sim.ask(GREEN, suspend=is_on)

    return do


def _delete_service(sim: AnyUpgrade) -> None:
    sim.remove(RAY_SERVICE, NAME)


def _users() -> list[Fault]:
    return [
        Fault(name="spec reverted", begin=lambda sim: sim.ask(BLUE)),
        Fault(name="third spec", begin=lambda sim: sim.ask(RED)),
        Fault(
            name="spec reverted and asked for again",
            begin=lambda sim: sim.ask(BLUE),
            end=lambda sim: sim.ask(GREEN),
            seconds=2.0,
        ),
        Fault(
            name="third spec, then the second again",
            begin=lambda sim: sim.ask(RED),
            end=lambda sim: sim.ask(GREEN),
            seconds=3.0,
        ),
        Fault(name="larger steps", begin=_change_options(100, 100), needs_steps=True),
        Fault(name="smaller steps", begin=_change_options(20, 20), needs_steps=True),
        Fault(
            name="no surge, for a while",
            begin=_change_options(0, 0),
            end=_change_options(50, 50),
            needs_steps=True,
            stalls="must both be greater than 0",
        ),
        Fault(
            name="strategy becomes NewCluster",
            begin=_change_strategy("NewCluster"),
            needs_steps=True,
        ),
        Fault(name="strategy becomes None", begin=_change_strategy("None")),
        Fault(
            name="suspended and resumed",
            begin=_suspend(is_on=True),
            end=_suspend(is_on=False),
            seconds=10.0,
        ),
        Fault(name="service deleted", begin=_delete_service),
    ]


FAULTS: Final = {each.name: each for each in (*_ray(), *_networks(), *_machines(), *_users())}
POINTS: Final[dict[str, Callable[[AnyUpgrade], bool]]] = {
    "named": lambda sim: bool(sim.pending),
    "configured": lambda sim: bool(sim.pending and sim.puts(sim.pending)),
    "first capacity": lambda sim: sim.target_of(sim.pending) > 0,
    "first weight": lambda sim: sim.weights.get(sim.pending, 0) > 0,
    "half": lambda sim: sim.weights.get(sim.pending, 0) >= 50,
    "all weight": lambda sim: sim.weights.get(sim.pending, 0) == 100,
    "promoted": lambda sim: sim.is_promoted,
}
"""Points at which a fault begins; an upgrade in steps passes each point once."""
IN_ONE_STEP: Final = ("named", "configured", "promoted")
"""The points that an upgrade without a route passes."""
