"""What users, Ray, and owners of other things do beside an upgrade: applications, silences, lives of objects, counters.

`edges` has the older ones. Each begins at a point of the upgrade and ends after a while, as those do.
"""

from collections.abc import Callable
from typing import Final

from common import errors
from common.api.opaque import Json
from common.kube.resources import (
    GATEWAY,
    GRPC_ROUTE,
    HTTP_ROUTE,
    POD,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
    Resource,
)
from scenario.simulation.edges import accept, kind_of_strategy, refuse, victim
from scenario.simulation.elastic import STRAY
from scenario.simulation.faults import FAULTS, Do, Fault
from scenario.simulation.upgrade_simulator import AnyUpgrade
from support.builders.ray_service import NAME, NAMESPACE, a_group, a_strategy
from support.simulator.simulator import BLUE, GREEN

STATES: Final = ("DEPLOYING", "UNHEALTHY", "DEPLOY_FAILED", "DELETING", "NOT_STARTED")
"""States of an application that does not serve."""
APART: Final = 3.0
"""Seconds between the first answers of two dashboards that hung together."""
INVALID: Final = {"type": "Sideways"}
RESOURCES: Final[dict[str, Resource]] = {
    each.kind: each for each in (GATEWAY, HTTP_ROUTE, GRPC_ROUTE, SERVICE)
}
APPENDED: Final = {**BLUE, "workerGroupSpecs": [*BLUE["workerGroupSpecs"], a_group("appended")]}


def _both(*acts: Do) -> Do:
    def act(sim: AnyUpgrade) -> None:
        for each in acts:
            each(sim)

    return act


# --- applications ----------------------------------------------------------------------------------------------------------


def _stuck(role: str, name: str, state: str) -> Do:
    def act(sim: AnyUpgrade) -> None:
        if (cluster := victim(sim, role)) in sim.clusters:
            sim.model(cluster).stuck[name] = state

    return act


def _declare(number: int) -> Do:
    """Add applications to the Serve config of the spec, or remove some."""

    def act(sim: AnyUpgrade) -> None:
        sim.applications = max(0, sim.applications + number)
        sim.ask_again()

    return act


def _add_stuck(role: str, state: str) -> Do:
    """Declare an application that is new, so that no cluster serves it before."""

    def act(sim: AnyUpgrade) -> None:
        _stuck(role, f"more{sim.applications}", state)(sim)
        _declare(1)(sim)

    return act


def _run_stuck(role: str) -> Do:
    """Let all declared applications of a cluster run."""

    def act(sim: AnyUpgrade) -> None:
        cluster = victim(sim, role)
        stuck = sim.model(cluster).stuck if cluster in sim.clusters else dict[str, str]()
        for name in [each for each in stuck if each != STRAY]:
            del stuck[name]

    return act


def _applications() -> list[Fault]:
    found = [
        Fault(name="an application added", begin=_declare(1), end=_declare(-1), seconds=60.0),
        Fault(name="an application removed", begin=_declare(-1)),
        Fault(name="an application comes and goes", begin=_declare(1), end=_declare(-1)),
    ]
    for role in ("active", "pending"):
        for state in STATES:
            found += [
                Fault(
                    name=f"{role} has a stray application that is {state}",
                    begin=_stuck(role, STRAY, state),
                ),
                Fault(
                    name=f"{role} has an added application that is {state}",
                    begin=_add_stuck(role, state),
                    end=_run_stuck(role),
                    seconds=90.0,
                ),
            ]
    return found


# --- silences --------------------------------------------------------------------------------------------------------------


def _silence(sim: AnyUpgrade) -> None:
    for role in ("active", "pending"):
        if (cluster := victim(sim, role)) in sim.clusters:
            sim.model(cluster).behaviour = "silent"


def _answer_again(first: str) -> Do:
    def act(sim: AnyUpgrade) -> None:
        for role in ("active", "pending"):
            if (cluster := victim(sim, role)) in sim.clusters:
                apart = 0.0 if role == first else APART
                sim.model(cluster).silent_until = sim.clock.monotonic() + apart

    return act


def _starve(name: str, *, is_on: bool) -> Do:
    def act(sim: AnyUpgrade) -> None:
        sim.starved ^= {name} if is_on is not (name in sim.starved) else set()

    return act


def _bus(*, is_silent: bool) -> Do:
    return lambda sim: sim.silence_bus(is_silent=is_silent)


def _down(*, are_down: bool) -> Do:
    def act(sim: AnyUpgrade) -> None:
        for name, service in sim.services.items():
            service.is_down = are_down
            if not are_down:
                sim.restart(name)

    return act


def _fault(name: str) -> Do:
    return FAULTS[name].begin


def _silences() -> list[Fault]:
    hears = _bus(is_silent=False)
    found = [
        Fault(
            name=f"both dashboards hang, {first} answers first",
            begin=_silence,
            end=_answer_again(first),
            seconds=12.0,
        )
        for first in ("active", "pending")
    ]
    found += [
        Fault(
            name=f"{name} is too late for any dashboard",
            begin=_starve(name, is_on=True),
            end=_starve(name, is_on=False),
            seconds=12.0,
        )
        for name in ("service", "traffic")
    ]
    lost = (_bus(is_silent=True), _fault("active cluster deleted by hand"))
    return [
        *found,
        Fault(name="the bus is silent", begin=_bus(is_silent=True), end=hears, seconds=25.0),
        Fault(
            name="the bus is silent and the active cluster is deleted",
            begin=_both(*lost),
            end=hears,
            seconds=60.0,
        ),
        Fault(
            name="the spec is invalid and the active cluster is deleted",
            begin=_both(_spoil, _fault("active cluster deleted by hand")),
            end=_mend,
            seconds=60.0,
        ),
        Fault(
            name="both services are down",
            begin=_down(are_down=True),
            end=_down(are_down=False),
            seconds=45.0,
        ),
        Fault(
            name="both services are down and the spec is reverted",
            begin=_both(_down(are_down=True), _revert),
            end=_down(are_down=False),
            seconds=45.0,
        ),
    ]


# --- lives -----------------------------------------------------------------------------------------------------------------


def _revert(sim: AnyUpgrade) -> None:
    sim.ask(BLUE)


def _spoil(sim: AnyUpgrade) -> None:
    sim.ask_again(upgradeStrategy=INVALID)


def _mend(sim: AnyUpgrade) -> None:
    sim.ask_again(upgradeStrategy=sim.setting.strategy)


def _suspend(*, is_on: bool, is_valid: bool = True) -> Do:
    def act(sim: AnyUpgrade) -> None:
        strategy = sim.setting.strategy if is_valid else INVALID
        sim.ask_again(suspend=is_on, upgradeStrategy=strategy)

    return act


def _delete(sim: AnyUpgrade) -> None:
    """Delete the RayService; its user makes it again once it is gone."""
    sim.wants_again = True
    sim.remove(RAY_SERVICE, NAME)


def _delete_invalid(sim: AnyUpgrade) -> None:
    _spoil(sim)
    _delete(sim)


def _class(name: str) -> Do:
    def act(sim: AnyUpgrade) -> None:
        held = sim.service["spec"]["upgradeStrategy"]
        if "clusterUpgradeOptions" in held:
            options = {**held["clusterUpgradeOptions"], "gatewayClassName": name}
            sim.gateway.classes |= {name}
            sim.ask_again(upgradeStrategy={**held, "clusterUpgradeOptions": options})

    return act


def _lives() -> list[Fault]:
    wakes = _suspend(is_on=False)
    refused = (refuse(RAY_CLUSTER.kind, errors.Forbidden), _append)
    return [
        Fault(name="suspended", begin=_suspend(is_on=True), end=wakes, seconds=40.0),
        Fault(
            name="suspended with an invalid spec",
            begin=_suspend(is_on=True, is_valid=False),
            end=wakes,
            seconds=40.0,
        ),
        Fault(
            name="invalid, then suspended",
            begin=_both(_spoil, _suspend(is_on=True, is_valid=False)),
            end=wakes,
            seconds=40.0,
        ),
        Fault(name="deleted and made again", begin=_delete),
        Fault(name="deleted with an invalid spec and made again", begin=_delete_invalid),
        Fault(name="the spec is the first one with a worker group appended", begin=_append),
        Fault(
            name="no cluster may be made, and the spec is the first one with a group appended",
            begin=_both(*refused),
            end=accept,
            seconds=40.0,
        ),
        Fault(
            name="the strategy becomes None and the spec changes",
            begin=_both(kind_of_strategy("None"), _third),
            end=_mend,
            seconds=90.0,
        ),
        Fault(name="another Gateway class in place", begin=_class("slow"), needs_steps=True),
    ]


def _append(sim: AnyUpgrade) -> None:
    sim.ask(APPENDED)


def _third(sim: AnyUpgrade) -> None:
    sim.ask(GREEN)


# --- counters and nodes ----------------------------------------------------------------------------------------------------


def _of_heads(act: Callable[[AnyUpgrade, str], None]) -> Callable[[str], Do]:
    def of(role: str) -> Do:
        def begin(sim: AnyUpgrade) -> None:
            if (cluster := victim(sim, role)) in sim.clusters:
                act(sim, cluster)

        return begin

    return of


def _replace_proxies(sim: AnyUpgrade, cluster: str) -> None:
    for role in sim.model(cluster).counts_at:
        sim.model(cluster).replace_proxy(role)


def _end_series(sim: AnyUpgrade, cluster: str) -> None:
    for role in sim.model(cluster).counts_at:
        sim.model(cluster).end_series(role)


def _incident(sim: AnyUpgrade, cluster: str) -> None:
    """Let a cluster have failed many requests, long ago."""
    sim.model(cluster).answered += 2000
    sim.model(cluster).failed += 1000


def _leave(sim: AnyUpgrade, cluster: str) -> None:
    _set_ready(sim, cluster, "False")


def _come_back(sim: AnyUpgrade, cluster: str) -> None:
    _set_ready(sim, cluster, "True")


def _set_ready(sim: AnyUpgrade, cluster: str, status: str) -> None:
    place = (POD.kind, NAMESPACE, f"{cluster}-worker")
    body = sim.kube.objects.get(place)
    if body is not None and body.get("status", {}).get("phase") == "Running":
        conditions = [{"type": "Ready", "status": status}]
        sim.kube.set_status(POD, NAMESPACE, place[2], {**body["status"], "conditions": conditions})


def _counters() -> list[Fault]:
    found: list[Fault] = []
    replaced, gone, failed = map(_of_heads, (_replace_proxies, _end_series, _incident))
    left, back = map(_of_heads, (_leave, _come_back))
    for role in ("active", "pending"):
        found += [
            Fault(
                name=f"{role} proxies begin anew",
                begin=replaced(role),
                end=gone(role),
                seconds=20.0,
            ),
            Fault(
                name=f"{role} worker is not ready for a moment",
                begin=left(role),
                end=back(role),
                seconds=8.0,
            ),
        ]
    return [
        *found,
        Fault(
            name="active proxies begin anew after an incident",
            begin=_both(failed("active"), replaced("active")),
            end=gone("active"),
            seconds=20.0,
        ),
    ]


# --- others' objects -------------------------------------------------------------------------------------------------------


def bring_foreign(sim: AnyUpgrade, suffix: str, kind: str) -> None:
    """Let an object of another RayService have a name after ours."""
    owner = {
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "name": f"{NAME}-mirror",
        "uid": "f0e1",
        "controller": True,
    }
    backend = {"name": "elsewhere", "port": 80, "weight": 100}
    specs: dict[str, Json] = {
        "Service": {"selector": {"app": "elsewhere"}, "ports": [{"name": "serve", "port": 8000}]},
        "Gateway": {"gatewayClassName": "elsewhere", "listeners": []},
    }
    routed = {"parentRefs": [{"name": "elsewhere"}], "rules": [{"backendRefs": [backend]}]}
    meta = {"name": f"{NAME}-{suffix}", "labels": {"app": "elsewhere"}, "ownerReferences": [owner]}
    sim.kube.put(RESOURCES[kind], {"metadata": meta, "spec": specs.get(kind, routed)})


def take_foreign(sim: AnyUpgrade, suffix: str, kind: str) -> None:
    """Let its user delete such an object."""
    place = (kind, NAMESPACE, f"{NAME}-{suffix}")
    if place in sim.kube.objects:
        sim.kube.finish_deletion(RESOURCES[kind], *place[1:])


STRANGERS: Final = {
    each.name: each for each in (*_applications(), *_silences(), *_lives(), *_counters())
}
FOR_EVER: Final = frozenset(name for name in STRANGERS if " stray " in name)
"""Faults that no user ends."""
__all__ = ["APPENDED", "FOR_EVER", "STRANGERS", "a_strategy", "bring_foreign", "take_foreign"]
