"""Further events of an upgrade besides `faults`.

These are annotations and edits of the user, dying pods, refused writes and skewed clocks.
"""

from datetime import timedelta
from typing import Any, Final

from common import errors, labels
from common.kube.resources import (
    CONTROLLER_REVISION,
    GATEWAY,
    HTTP_ROUTE,
    RAY_CLUSTER,
    RAY_SERVICE,
    SERVICE,
)
from scenario.simulation.elastic import ElasticHead
from scenario.simulation.faults import FAULTS, Do, Fault
from scenario.simulation.upgrade_simulator import OWN_ROUTE, AnyUpgrade
from support.builders.ray_service import NAMESPACE, a_strategy
from support.fakes.kube import Request

LEFT_OUT: Final = {"service deleted", "the clock jumps back", "the clock jumps forward"}


def victim(sim: AnyUpgrade, role: str) -> str:
    """Return the cluster in a role; the cluster of the first call keeps the role."""
    return sim.victims.setdefault(role, sim.pending if role == "pending" else sim.active)


def _pods(role: str, *, are_ready: bool) -> Do:
    def act(sim: AnyUpgrade) -> None:
        name = victim(sim, role)
        if name in sim.clusters:
            sim.set_pods(name, are_ready=are_ready)

    return act


def _model(role: str, **values: Any) -> Do:
    def act(sim: AnyUpgrade) -> None:
        name = victim(sim, role)
        if name not in sim.clusters:
            return
        head: ElasticHead = sim.model(name)
        for attribute, value in values.items():
            setattr(head, attribute, value)

    return act


def _annotate(**values: str | None) -> Do:
    def act(sim: AnyUpgrade) -> None:
        if values.get("promote"):
            sim.surge = 100
        sim.annotate(**values)

    return act


def _options(surge: int, step: int, interval: int) -> Do:
    def act(sim: AnyUpgrade) -> None:
        sim.surge, sim.may_hurry = max(sim.surge, surge), not (surge and step)
        spec = {
            **sim.service["spec"],
            "upgradeStrategy": a_strategy(surge=surge, step=step, interval=interval),
        }
        sim.kube.put(RAY_SERVICE, {**sim.service, "spec": spec})

    return act


def kind_of_strategy(kind: str) -> Do:
    """Return a change of the strategy alone."""

    def act(sim: AnyUpgrade) -> None:
        sim.surge = 100
        spec = {**sim.service["spec"], "upgradeStrategy": {"type": kind}}
        sim.kube.put(RAY_SERVICE, {**sim.service, "spec": spec})

    return act


def _as_set(sim: AnyUpgrade) -> None:
    spec = {**sim.service["spec"], "upgradeStrategy": sim.setting.strategy}
    sim.kube.put(RAY_SERVICE, {**sim.service, "spec": spec})


def _edit_serve(sim: AnyUpgrade) -> None:
    sim.ask(sim.service["spec"]["rayClusterConfig"], message="edited later")


def _edit_and_change(sim: AnyUpgrade) -> None:
    sim.surge = 100
    image = sim.service["spec"]["rayClusterConfig"]
    sim.ask(image, message="edited again", upgradeStrategy={"type": "NewCluster"})


def refuse(kind: str, problem: type[errors.RaybusError], *, part: str = "") -> Do:
    """Return a function that makes the API server refuse writes of a kind."""

    def refused(request: Request) -> errors.RaybusError | None:
        is_meant = request.kind == kind and (
            not part or part in str(request.body) or part == request.subresource
        )
        return problem(f'admission webhook "deny.example" denied {request}') if is_meant else None

    def act(sim: AnyUpgrade) -> None:
        sim.refusal_of, sim.refused_kind = refused, kind

    return act


def accept(sim: AnyUpgrade) -> None:
    """Let the API server accept all writes again."""
    sim.refusal_of = None


def _gate(name: str, *, is_on: bool) -> Do:
    return lambda sim: sim.set_gate(name, is_on=is_on)


def _skew(name: str, seconds: float) -> Do:
    def act(sim: AnyUpgrade) -> None:
        sim.wall_clocks[name].ahead = timedelta(seconds=seconds)

    return act


def _wipe_rules(sim: AnyUpgrade) -> None:
    body = sim.kube.objects.get((HTTP_ROUTE.kind, NAMESPACE, OWN_ROUTE))
    if (
        body is not None
        and labels.HTTP_ROUTE in sim.annotations_now
        and not (sim.draw.has_other_service or sim.draw.world.has_twins)
    ):
        rules = [{"matches": [{"path": {"type": "PathPrefix", "value": "/"}}]}]
        sim.kube.put(HTTP_ROUTE, {**body, "spec": {**body["spec"], "rules": rules}})


def _sicknesses() -> list[Fault]:
    found: list[Fault] = []
    for role in ("pending", "active"):
        found += [
            Fault(
                name=f"{role} pods die",
                begin=_pods(role, are_ready=False),
                end=_pods(role, are_ready=True),
                seconds=30.0,
            ),
            Fault(
                name=f"{role} replicas die",
                begin=_model(role, most_replicas=0),
                end=_model(role, most_replicas=20),
                seconds=30.0,
            ),
            Fault(
                name=f"{role} flaps",
                begin=_model(role, flaps=14.0),
                end=_model(role, flaps=0.0, most_replicas=20),
                seconds=400.0,
                needs_steps=True,
            ),
        ]
    return found


def _wishes() -> list[Fault]:
    no = {"pause": None, "abort": None, "promote": None}
    return [
        Fault(
            name="paused", begin=_annotate(pause="true"), end=_annotate(pause=None), seconds=20.0
        ),
        Fault(
            name="aborted", begin=_annotate(abort="true"), end=_annotate(abort=None), seconds=60.0
        ),
        Fault(
            name="promoted by hand",
            begin=_annotate(promote="true"),
            end=_annotate(promote=None),
            seconds=90.0,
        ),
        Fault(
            name="paused, then promoted",
            begin=_annotate(pause="true", promote="true"),
            end=_annotate(**no),
        ),
        Fault(
            name="allowed to lack 20 percent",
            begin=_annotate(max_unavailable_percent="20"),
            end=_annotate(max_unavailable_percent=None),
            seconds=30.0,
            needs_steps=True,
        ),
        Fault(
            name="rolled back at a deadline of 20 s",
            begin=_annotate(progress_deadline="20", on_deadline="Rollback"),
            end=_annotate(progress_deadline=None, on_deadline=None),
            seconds=120.0,
        ),
        Fault(
            name="another route named",
            begin=_annotate(http_route="mine"),
            end=_annotate(http_route=None),
            seconds=20.0,
            needs_steps=True,
        ),
        Fault(name="no route named any more", begin=_annotate(http_route=None), needs_steps=True),
        Fault(name="strategy NewCluster and Serve config edited", begin=_edit_and_change),
        Fault(name="Serve config edited", begin=_edit_serve),
        Fault(
            name="no step", begin=_options(50, 0, 1), end=_as_set, seconds=20.0, needs_steps=True
        ),
        Fault(name="all at once", begin=_options(100, 100, 1), needs_steps=True),
        Fault(
            name="an interval of 600 s",
            begin=_options(50, 25, 600),
            end=_as_set,
            needs_steps=True,
            seconds=90.0,
        ),
        Fault(
            name="an invalid edit",
            begin=_options(50, 25, 0),
            end=_as_set,
            needs_steps=True,
            seconds=90.0,
        ),
        Fault(
            name="a step of 101",
            begin=_options(100, 101, 1),
            end=_as_set,
            needs_steps=True,
            seconds=30.0,
        ),
        Fault(
            name="strategy NewCluster for a while",
            begin=kind_of_strategy("NewCluster"),
            end=_as_set,
            seconds=20.0,
        ),
        Fault(
            name="strategy None for a while",
            begin=kind_of_strategy("None"),
            end=_as_set,
            seconds=20.0,
        ),
        Fault(name="the user's tool empties the rules", begin=_wipe_rules, needs_steps=True),
    ]


def _surroundings() -> list[Fault]:
    found: list[Fault] = []
    kinds = {
        "ControllerRevision": CONTROLLER_REVISION.kind,
        "HTTPRoute": HTTP_ROUTE.kind,
        "Gateway": GATEWAY.kind,
        "Service": SERVICE.kind,
        "RayCluster": RAY_CLUSTER.kind,
    }
    for name, kind in kinds.items():
        begin = refuse(kind, errors.Rejected)
        found.append(Fault(name=f"writes of {name} refused", begin=begin, end=accept, seconds=30.0))
    receipt = refuse(RAY_SERVICE.kind, errors.Rejected, part=labels.UPGRADE_RECEIPT)
    status = refuse(RAY_SERVICE.kind, errors.Forbidden, part="status")
    found += [
        Fault(name="the receipt refused", begin=receipt, seconds=1.0),
        Fault(name="the status refused", begin=status, end=accept, seconds=15.0),
    ]
    for name in ("service", "traffic"):
        found += [
            Fault(
                name=f"the gate off in {name}",
                begin=_gate(name, is_on=False),
                end=_gate(name, is_on=True),
                seconds=20.0,
                needs_steps=True,
            ),
            Fault(
                name=f"the clock of {name} 4 s ahead",
                begin=_skew(name, 4.0),
                end=_skew(name, 0.0),
                seconds=90.0,
            ),
            Fault(
                name=f"the clock of {name} 4 s behind",
                begin=_skew(name, -4.0),
                end=_skew(name, 0.0),
                seconds=90.0,
            ),
        ]
    return found


EDGES: Final = {each.name: each for each in (*_sicknesses(), *_wishes(), *_surroundings())}
ALL: Final = {**{name: each for name, each in FAULTS.items() if name not in LEFT_OUT}, **EDGES}
LASTS_FOR_EVER: Final = {"the receipt refused"}
"""Events that never end, because they never cost a cluster."""
