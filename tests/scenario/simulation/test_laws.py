"""Each law of the simulator can be broken: by a state that should not be, and by services that were made to do wrong."""

from datetime import datetime
from typing import Any, Final

import pytest
from msgspec.structs import replace

from common import labels
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.api.ray_cluster import RayCluster
from common.api.ray_service import ClusterServiceStatus, RayService, RayServiceStatus
from common.kube.resources import RAY_CLUSTER
from common.ray import autoscaled_capacity, submit
from common.ray.view import ServeView
from common.runtime.actions import Action, Delete, Patch, Plan
from common.upgrade import gates, prometheus, webhook
from common.upgrade import policy as upgrade_policy
from common.upgrade.controls import Policy
from common.upgrade.events import Direction
from common.upgrade.gates import GateOutcome, GateResult
from common.upgrade.policy import UpgradePolicy
from scenario.simulation import draws, sabotage, simulate
from scenario.simulation.draws import STEPS, Draw, Edit, Happening
from scenario.simulation.found_faults import CASES
from scenario.simulation.gate_sources import GATES, Turns
from scenario.simulation.setting import Setting
from service_reconciler import draining
from service_reconciler.promotion import control
from support.fakes.kube import Request
from support.laws import upgrade_requests, upgrade_states
from support.laws.upgrade_moments import Moment
from support.laws.upgrade_states import State, Timers
from support.plans import contradictions
from support.sampling import one_of
from support.simulator.simulator import BLUE
from support.tables import cases
from traffic_manager.migration import capacity, progression, weights
from traffic_manager.migration.state import ClusterState, Migration, Split

WELL = State(
    at=0.0,
    route={"blue": 50, "green": 50},
    effective=[{"blue": 50, "green": 50}],
    carries={"blue": 100, "green": 50},
    targets={"blue": 100, "green": 50},
    active="blue",
    plain=frozenset({"blue"}),
)
MOMENT = Moment(
    at=0.0,
    active="blue",
    pending="green",
    clusters=frozenset({"blue", "green"}),
    weights={"blue": 50, "green": 50},
    effective={"blue": 50, "green": 50},
    capacities={"blue": 100, "green": 50},
    seen_ready={"blue": 100, "green": 50},
)


def lasting(seconds: float, **values: Any) -> set[str]:
    """Return the laws that a state breaks when it lasts."""
    timers, found = Timers(), set[str]()
    state = replace(WELL, **values)
    for _ in range(round(seconds)):
        found |= {law for law, _, _ in upgrade_states.of_time(timers, state, 1.0, is_excused=False)}
        found |= {
            law for law, _, _ in upgrade_states.of_serving(timers, state, 1.0, is_excused=False)
        }
        found |= {
            law for law, _, _ in upgrade_states.of_side_routes(timers, state, 1.0, is_excused=False)
        }
    return found


def changing(before: dict[str, Any], after: dict[str, Any], **moment: Any) -> set[str]:
    """Return the laws that a change breaks."""
    old = replace(WELL, **before)
    new = replace(old, **after)
    later = replace(MOMENT, **moment)
    return {law for law, _ in upgrade_states.of_a_change(MOMENT, later, old, new)}


def test_a_state_that_is_well_breaks_nothing_however_long_it_lasts() -> None:
    assert (lasting(900), changing({}, {})) == (set(), set())


@cases(
    ("seconds", "values", "law"),
    {
        "a dead cluster": (
            6,
            {"carries": {"blue": 100}, "missing": frozenset({"green"})},
            "overload",
        ),
        "no replica runs": (12, {"carries": {"blue": 100}}, "overload"),
        "the other one could grow": (
            22,
            {"carries": {"blue": 50}, "targets": {"blue": 50, "green": 50}},
            "overload",
        ),
        "for long, and no stall is reported": (200, {"carries": {"blue": 100}}, "endless"),
        "less capacity than its share": (12, {"targets": {"blue": 40, "green": 50}}, "starved"),
        "alone with less than all": (21, {"is_alone": True, "targets": {"blue": 80}}, "alone"),
        "clients of the plain Service": (9, {"targets": {"blue": 50, "green": 50}}, "plain"),
        "a head without applications": (21, {"unserved": frozenset({"blue"})}, "unserved"),
        "another service's backend": (1, {"is_awaited": ("demo-small", 1)}, "foreign"),
        "a backend with the name of ours": (1, {"twins_left": 1}, "foreign"),
        "a side route to a cluster without replicas": (
            22,
            {"beside": (("mirror", "green"),), "carries": {"blue": 100}},
            "beside",
        ),
    },
)
def test_what_must_not_last_is_named_once_it_does(
    seconds: int, values: dict[str, Any], law: str
) -> None:
    assert law in lasting(seconds, **values)
    assert seconds == 1 or law not in lasting(seconds * 0.6, **values)


@cases(
    "values",
    {
        "nobody can carry": {"carries": {"blue": 0, "green": 0}},
        "nobody can see it": {"carries": {"blue": 100}, "silent": frozenset({"green"})},
        "one replica less": {"carries": {"blue": 100, "green": 46}},
        "an upgrade": {"targets": {"blue": 80, "green": 50}, "is_alone": False},
        "the RayService goes": {"carries": {"blue": 100}, "is_going": True},
    },
)
def test_what_may_last_breaks_nothing(values: dict[str, Any]) -> None:
    assert lasting(10 if "targets" not in values else 7, **values) == set()


def test_a_moment_that_is_excused_is_not_counted_and_what_ends_begins_anew() -> None:
    timers = Timers()
    assert timers.lasts(("law", "x"), 3.0, holds=True) == 3.0
    assert timers.lasts(("law", "x"), 3.0, holds=True, is_excused=True) == 3.0
    assert timers.lasts(("law", "x"), 3.0, holds=False) == 0.0
    assert timers.lasts(("law", "x"), 3.0, holds=True) == 3.0


@cases(
    ("after", "moment", "law"),
    {
        "shrinks": (
            {"targets": {"blue": 40, "green": 50}},
            {"capacities": {"blue": 40, "green": 50}},
            "starved",
        ),
        "weight beyond capacity": (
            {"route": {"blue": 40, "green": 60}},
            {"weights": {"blue": 40, "green": 60}},
            "starved",
        ),
        "weight beyond ready capacity": (
            {"route": {"blue": 40, "green": 60}},
            {"weights": {"blue": 40, "green": 60}},
            "growth",
        ),
        "weight beyond what its replicas can follow to": (
            {"follows": {"green": 50}},
            {"weights": {"blue": 40, "green": 60}},
            "parity",
        ),
        "a share is lost": ({}, {"weights": {"blue": 40, "green": 50}}, "sum"),
        "deleted with traffic": ({}, {"clusters": frozenset({"blue"})}, "deleted"),
        "a cluster that nobody named": ({}, {"clusters": MOMENT.clusters | {"red"}}, "created"),
    },
)
def test_a_bad_write_is_named(after: dict[str, Any], moment: dict[str, Any], law: str) -> None:
    assert law in changing({}, after, **moment)


WHOLE: Final = {"unharmed": frozenset({"blue", "green"}), "in_steps": True, "step": 10}


@pytest.mark.parametrize(
    ("before", "weights"),
    [
        pytest.param({}, {"blue": 0, "green": 100}, id="all of the active cluster's traffic"),
        pytest.param({}, {"blue": 39, "green": 61}, id="more than a step"),
        pytest.param({}, {"blue": 51, "green": 49}, id="back, and nobody asked for it"),
    ],
)
def test_traffic_that_leaves_a_cluster_which_carries_it_is_named(
    before: dict[str, Any], weights: dict[str, int]
) -> None:
    assert "leap" in changing({**WHOLE, **before}, {}, weights=weights)


@cases(
    ("before", "moment"),
    {
        "a step": ({}, {"weights": {"blue": 40, "green": 60}}),
        "promoted": ({"promotes": True}, {"weights": {"blue": 0, "green": 100}}),
        "lost": ({"unharmed": frozenset[str]()}, {"weights": {"blue": 0, "green": 100}}),
        "reverted": ({}, {"weights": {"blue": 100, "green": 0}, "is_back": True}),
        "a policy": ({}, {"weights": {"blue": 0, "green": 100}, "steps": (50, 100)}),
    },
)
def test_traffic_may_leave_a_cluster_for_a_reason(
    before: dict[str, Any], moment: dict[str, Any]
) -> None:
    assert "leap" not in changing({**WHOLE, **before}, {}, **moment)


def _a_cluster(name: str, *, groups: int = 1, **meta: Any) -> Json:
    owner = [{"uid": "ours"}]
    return {
        "metadata": {"name": name, "ownerReferences": owner, **meta},
        "spec": {**BLUE, "workerGroupSpecs": [{}] * groups},
    }


OBJECTS: Final[dict[tuple[str, str, str], Json]] = {
    ("RayService", "default", "demo"): {"metadata": {"uid": "ours"}},
    ("RayCluster", "default", "blue"): _a_cluster("blue"),
    ("HTTPRoute", "default", "theirs"): {"metadata": {"ownerReferences": [{"uid": "theirs"}]}},
    ("HTTPRoute", "default", "agreed"): {
        "metadata": {"annotations": {"raybus.io/rayservice": "demo"}}
    },
}


@pytest.mark.parametrize(
    ("verb", "kind", "name", "expected"),
    [
        ("patch", "RayCluster", "blue", True),
        ("patch", "HTTPRoute", "theirs", False),
        ("delete", "HTTPRoute", "theirs", False),
        ("patch", "HTTPRoute", "agreed", True),
        ("delete", "HTTPRoute", "agreed", False),
        ("create", "HTTPRoute", "new", True),
    ],
)
def test_a_write_touches_only_what_is_ours(
    verb: str, kind: str, name: str, *, expected: bool
) -> None:
    request = Request(verb=verb, kind=kind, namespace="default", name=name)
    assert upgrade_requests.is_allowed(request, OBJECTS, "demo") is expected


@pytest.mark.parametrize(
    ("groups", "is_whole", "expected"), [(1, True, "blue"), (2, True, None), (1, False, None)]
)
def test_a_cluster_is_made_only_where_no_whole_one_is_left(
    groups: int, *, is_whole: bool, expected: str | None
) -> None:
    body = _a_cluster("green", groups=groups)
    request = Request(
        verb="create", kind="RayCluster", namespace="default", name="green", body=body
    )
    assert upgrade_requests.twin(request, OBJECTS, lambda _: is_whole) == expected


def test_a_plan_does_nothing_twice_and_needs_nothing_that_it_ends() -> None:
    status = ClusterServiceStatus(ray_cluster_name="blue")
    service = RayService(
        metadata=ObjectMeta(name="demo"), status=RayServiceStatus(active_service_status=status)
    )
    mark = {"metadata": {"annotations": {labels.DELETE_AFTER: "2026-01-01T00:00:00Z"}}}
    marked = Patch(resource=RAY_CLUSTER, name="blue", patch=mark)
    gone = Delete(resource=RAY_CLUSTER, name="green", uid="g")
    other = Patch(resource=RAY_CLUSTER, name="green", patch={"metadata": {"labels": {"a": "b"}}})

    def count(*actions: Action) -> int:
        return len(list(contradictions(Plan[Action](actions=actions), service)))

    assert [count(marked), count(gone), count(other)] == [1, 0, 0]
    assert [count(gone, other), count(gone, gone), count(other, other)] == [1, 1, 1]
    assert count(other, replace(marked, name="green")) == 0


def test_an_allowance_is_shared_in_proportion_to_traffic() -> None:
    targets = {"targets": {"blue": 40, "green": 50}}
    assert "starved" not in changing(
        {"allowance": 20}, targets, capacities={"blue": 40, "green": 50}
    )
    assert "starved" in changing({"allowance": 10}, targets, capacities={"blue": 40, "green": 50})


@pytest.mark.parametrize(
    "values",
    [
        pytest.param({"follows": {"green": 60}}, id="the replicas can follow"),
        pytest.param({"carries": {"blue": 40, "green": 50}}, id="the other one is sick"),
        pytest.param({"unheard": frozenset({"blue"})}, id="nobody can see the other one"),
        pytest.param({"allowance": 20}, id="the user allows it"),
    ],
)
def test_traffic_may_move_beyond_parity(values: dict[str, Any]) -> None:
    before = {"follows": {"green": 50}, **values}
    assert "parity" not in changing(before, {}, weights={"blue": 40, "green": 60})


def test_a_cluster_may_grow_to_its_share_whatever_the_surge() -> None:
    before = {"in_steps": True}
    grown = {"surge": 0, "capacities": {"blue": 100, "green": 60}}
    assert "surge" in changing(before, {}, **grown)
    assert "surge" not in changing(before, {}, **grown, weights={"blue": 40, "green": 60})


def test_a_surge_is_one_of_upgrades_in_steps() -> None:
    grown = {"surge": 20, "capacities": {"blue": 100, "green": 100}}
    assert "surge" in changing({"in_steps": True}, {}, **grown)
    assert "surge" not in changing({"in_steps": False}, {}, **grown)


def test_a_surge_counts_no_capacity_that_nobody_can_have_observed() -> None:
    grown = {"surge": 20, "capacities": {"blue": 100, "green": 100}}
    assert "surge" not in changing({"in_steps": True}, {"surprised": frozenset({"blue"})}, **grown)


def test_a_cluster_relieves_another_one_as_far_as_its_replicas_run() -> None:
    more, seen = {"blue": 40, "green": 60}, {"blue": 100, "green": 0}
    after: dict[str, Any] = {"route": more, "carries": {"blue": 20, "green": 60}}
    assert "growth" not in changing({}, after, weights=more, seen_ready=seen)
    after["carries"] = {"blue": 20, "green": 50}
    assert "growth" in changing({}, after, weights=more, seen_ready=seen)
    after["carries"] = {"blue": 100, "green": 60}
    assert "growth" in changing({}, after, weights=more, seen_ready=seen)


def test_traffic_may_grow_on_capacity_that_ray_took_away_a_moment_ago() -> None:
    more = {"blue": 40, "green": 60}
    after = {"route": more, "targets": {"blue": 60, "green": 50}}
    assert "starved" in changing({}, after, weights=more)
    late = {"surprised": frozenset({"green"})}
    assert "starved" not in changing({}, after | late, weights=more)
    assert "starved" in changing({}, after | {"surprised": frozenset({"blue"})}, weights=more)
    shrunk = late | {"targets": {"blue": 60, "green": 30}}
    assert "starved" in changing({}, shrunk, capacities={"blue": 60, "green": 30})


def test_what_ray_applied_late_may_be_undone_but_no_more_taken_away() -> None:
    full, given = {"blue": 0, "green": 100}, {"blue": 80, "green": 100}
    before = replace(MOMENT, weights=full, capacities=given)

    def shrinking(to: int, **targets_before: int) -> set[str]:
        old = replace(
            WELL,
            in_steps=True,
            unmet=("an approval at 100 percent",),
            targets_before=targets_before,
        )
        after = replace(before, capacities={**given, "blue": to})
        return {law for law, _ in upgrade_states.of_a_change(before, after, old, old)}

    assert "gated" not in shrinking(20, blue=20)
    assert "gated" in shrinking(10, blue=20)
    assert "gated" in shrinking(20)


def test_a_drain_that_is_cut_short_is_named() -> None:
    served = {"effective": [{"green": 100}], "in_flight": frozenset({"blue"})}
    gone = {
        "clusters": frozenset({"green"}),
        "weights": {"green": 100},
        "effective": {"green": 100},
    }
    assert "deleted" in changing(served, {}, **gone)
    assert "deleted" not in changing({**served, "in_flight": frozenset()}, {}, **gone)


# --- services that do wrong ----------------------------------------------------------------------------------------------


def _restless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Send a Serve config at every reconcile."""

    def decide(view: ServeView, goal: str, *, frozen: bool, now: datetime) -> str | None:
        return view.given or goal

    monkeypatch.setattr(submit, "decide", decide)


def _without_comparison(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nobody compare what Serve reports with what it was sent."""

    def has_no_other(view: ServeView, capacity: float, *, now: datetime) -> bool:
        return False

    def no_drift(view: ServeView) -> None:
        return None

    monkeypatch.setattr(submit, "has_other_capacity", has_no_other)
    monkeypatch.setattr(submit, "drift", no_drift)


def _without_parity(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a weight move by target capacity alone."""

    def limit(*_: Any) -> tuple[int, str]:
        return 100, ""

    monkeypatch.setattr(autoscaled_capacity, "limit_weight", limit)


def _careless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move all traffic at once, without ready capacity."""

    def decide(m: Migration, policy: Policy, *, now: datetime) -> Split:
        return Split(active=0, pending=100, note="all of it")

    monkeypatch.setattr(weights, "decide", decide)


def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Delete old clusters without a check of their requests."""

    def never(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(draining, "_get_requeue_time", never)


@pytest.mark.parametrize(
    ("sabotaged", "law"),
    [
        (sabotage.gullible, "growth"),
        (sabotage.greedy, "surge"),
        (sabotage.hasty, "frozen"),
        (_restless, "hot"),
        (_careless, "growth"),
        (_impatient, "deleted"),
    ],
)
async def test_services_that_do_wrong_are_caught(
    sabotaged: Any, law: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotaged(monkeypatch)
    dies = Happening(fault="no room for pending replicas", point="first capacity", seconds=5.0)
    result = await simulate.run(Draw(seed=3, setting=Setting(slow=1.0, seed=1), happenings=(dies,)))
    assert law in {each.partition(" ")[0] for each in result.found}, result.found


@pytest.mark.parametrize(
    ("sabotaged", "name"),
    [
        (_without_comparison, "a capacity carried out late"),
        (_without_comparison, "F.15, carried out late"),
        (_without_parity, "capacity parity"),
    ],
)
async def test_services_without_a_guard_break_the_law_of_its_case(
    sabotaged: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotaged(monkeypatch)
    case = next(each for each in CASES if each.name == name)
    result = await simulate.run(case.draw)
    assert case.law in {each.partition(" ")[0] for each in result.found}, result.found


LONG: Json = {"steps": [{"weight": 50, "hold": "60s"}, {"weight": 100}], "applyEdits": "AtOnce"}
EDITED: Final = Edit(
    after=20.0, spec={"steps": [{"weight": 20}, {"weight": 60, "hold": "20s"}, {"weight": 100}]}
)


def _without_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each edit of a policy hold at once."""
    honest = upgrade_policy.of_cluster

    def always(cluster: RayCluster) -> UpgradePolicy | None:
        found = honest(cluster)
        return None if found is None else replace(found, applies_edits_at_once=True)

    monkeypatch.setattr(upgrade_policy, "of_cluster", always)


def _back_to_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take all traffic from a weight that an edit left without a step."""
    honest = progression.decide_progression

    def of(
        observed: Any,
        found: UpgradePolicy,
        policy: Policy,
        pending: ClusterState,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        is_removed = pending.weight > 0 and all(
            each.weight != pending.weight for each in found.steps
        )
        progress = honest(observed, found, policy, pending, *args, **kwargs)
        return replace(progress, leaves=True) if is_removed else progress

    monkeypatch.setattr(progression, "decide_progression", of)


def _without_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Move all traffic at once, whatever the steps are."""

    def whole(*_: Any) -> int:
        return 100

    monkeypatch.setattr(upgrade_policy, "next_weight", whole)


def _an_edited_upgrade(**fields: Any) -> Draw:
    annotations = {labels.UPGRADE_POLICY: draws.POLICY}
    return Draw(
        seed=3,
        setting=Setting(surge=100, step=100),
        annotations=annotations,
        policy={**LONG, **fields},
        edits=(EDITED,),
        last="green",
    )


@pytest.mark.parametrize(
    ("sabotaged", "law", "applied"),
    [
        (_without_a_copy, "edited", "NextUpgrade"),
        (_back_to_a_step, "kept", "AtOnce"),
        (_without_steps, "steps", "AtOnce"),
        (None, "", "AtOnce"),
        (None, "", "NextUpgrade"),
    ],
)
async def test_the_laws_of_policies_name_what_breaks_them(
    sabotaged: Any, law: str, applied: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sabotaged is not None:
        sabotaged(monkeypatch)
    result = await simulate.run(_an_edited_upgrade(applyEdits=applied))
    assert law in {
        *(each.partition(" ")[0] for each in result.found),
        *([""] if not result.found else []),
    }, result.found


# --- gates --------------------------------------------------------------------------------------------------------------

TWO: Final[Json] = {"steps": [{"weight": 10, "hold": "5s"}, {"weight": 100}], "bake": "10s"}


PAUSED: Final[list[Json]] = [{"weight": 10, "pause": {}}, {"weight": 100}]


def _a_gated_upgrade(
    *gates: str, kind: str = STEPS, resumes: float | None = None, **sources: Turns
) -> Draw:
    policy = {**TWO, "preview": {"service": True}, "gates": [GATES[each] for each in gates]}
    return Draw(
        seed=3,
        setting=Setting(surge=100, step=100, kind=kind),
        annotations={labels.UPGRADE_POLICY: draws.POLICY},
        policy=policy,
        sources=sources,
        resumes=resumes,
    )


def _turns(*answers: str) -> Turns:
    """Return a source that answers each for a while, and then well for long."""
    return Turns(answers=(*answers, *["good"] * 30), seconds=25.0)


def _with_outcome(monkeypatch: pytest.MonkeyPatch, was: GateOutcome, becomes: GateOutcome) -> None:
    """Let each gate with one outcome have another one."""

    def changed(honest: Any) -> Any:
        def result(*args: Any, **kwargs: Any) -> GateResult:
            found: GateResult = honest(*args, **kwargs)
            return replace(found, outcome=becomes) if found.outcome is was else found

        return result

    for module, name in (
        (gates, "evaluate"),
        (gates, "unanswered"),
        (webhook, "result"),
        (prometheus, "result"),
    ):
        monkeypatch.setattr(module, name, changed(getattr(module, name)))


def _nothing(*_: Any) -> None:
    return None


def _silence_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_outcome(monkeypatch, GateOutcome.INCONCLUSIVE, GateOutcome.PASS)


def _silence_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_outcome(monkeypatch, GateOutcome.INCONCLUSIVE, GateOutcome.FAIL)


def _without_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    _with_outcome(monkeypatch, GateOutcome.FAIL, GateOutcome.PASS)


def _keeps_traffic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the traffic at a cluster that failed a gate, and let nobody roll back."""
    honest = progression.decide_progression

    def of(*args: Any, **kwargs: Any) -> Any:
        return replace(honest(*args, **kwargs), leaves=False)

    monkeypatch.setattr(progression, "decide_progression", of)
    monkeypatch.setattr(control, "_build_gate_abort", _nothing)


def _forgives(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forget the failure of a gate as soon as it is on record."""
    honest = progression.decide_progression

    def of(observed: Any, *args: Any, **kwargs: Any) -> Any:
        upgrade = observed.upgrade
        found = honest(observed, *args, **kwargs)
        is_known = upgrade is not None and bool(upgrade.failed)
        free = replace(found, leaves=False, hold=None)
        return free if is_known else found

    monkeypatch.setattr(progression, "decide_progression", of)
    monkeypatch.setattr(control, "_build_gate_abort", _nothing)


def _shrinks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the capacity of the way back."""
    honest = capacity.decide

    def decide(m: Migration, policy: Policy, *, now: datetime) -> Split:
        found = honest(m, policy, now=now)
        is_back = m.direction is Direction.BACK
        return replace(found, active=min(found.active, 90)) if is_back else found

    monkeypatch.setattr(capacity, "decide", decide)


def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade_policy, "pause", _nothing)


GATED: Final = (
    (
        _silence_passes,
        "gated",
        _a_gated_upgrade("webhook", kind="NewCluster", webhook=_turns("wait")),
    ),
    (
        _silence_passes,
        "gated",
        _a_gated_upgrade("prometheus", kind="NewCluster", prometheus=_turns("nan")),
    ),
    (_silence_passes, "gated", _a_gated_upgrade("webhook", webhook=_turns("silent"))),
    (_silence_passes, "gated", _a_gated_upgrade("webhook", webhook=_turns("garbage"))),
    (_silence_passes, "gated", _a_gated_upgrade("prometheus", prometheus=_turns("none"))),
    (_silence_passes, "gated", _a_gated_upgrade("errors", metrics=_turns("none"))),
    (
        _silence_fails,
        "silence",
        _a_gated_upgrade("webhook", kind="NewCluster", webhook=_turns("error")),
    ),
    (
        _silence_passes,
        "gated",
        _a_gated_upgrade("errors", kind="NewCluster", metrics=_turns("none")),
    ),
    (
        _without_failures,
        "gated",
        _a_gated_upgrade("errors", kind="NewCluster", metrics=_turns("bad")),
    ),
    (_silence_fails, "silence", _a_gated_upgrade("webhook", webhook=_turns("wait"))),
    (_silence_fails, "silence", _a_gated_upgrade("prometheus", prometheus=_turns("none"))),
    (_silence_fails, "silence", _a_gated_upgrade("more errors")),
    (_without_failures, "gated", _a_gated_upgrade("webhook", webhook=_turns("bad"))),
    (_without_failures, "gated", _a_gated_upgrade("errors", metrics=_turns("bad"))),
    (_shrinks, "failed", _a_gated_upgrade("errors", metrics=_turns("bad"))),
    (_forgives, "failed", _a_gated_upgrade("prometheus", prometheus=_turns("bad", "bad"))),
    (_keeps_traffic, "returned", _a_gated_upgrade("errors", metrics=_turns("bad"))),
)


@pytest.mark.parametrize("case", one_of(6, GATED))
async def test_the_laws_of_gates_name_what_breaks_them(
    case: tuple[Any, str, Draw], monkeypatch: pytest.MonkeyPatch
) -> None:
    sabotaged, law, draw = case
    sabotaged(monkeypatch)
    result = await simulate.run(draw)
    assert law in {each.partition(" ")[0] for each in result.found}, result.found


@pytest.mark.parametrize("kind", ["NewCluster", pytest.param(STEPS, marks=pytest.mark.long)])
async def test_the_law_of_pauses_names_what_moves_without_an_approval(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = _a_gated_upgrade(kind=kind, resumes=30.0)
    _without_pauses(monkeypatch)
    result = await simulate.run(replace(paused, policy={"steps": PAUSED, "autoPromote": False}))
    assert {each.partition(" ")[0] for each in result.found} == {"gated"}, result.found


async def test_the_law_of_silence_names_a_write_at_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The label of a head without a proxy is removed when the upgrade has ended already."""
    monkeypatch.setattr(simulate, "RESTS", 0.0)
    case = next(each for each in CASES if each.name == "no proxy at all, NewCluster")
    result = await simulate.run(case.draw)
    assert {each.partition(" ")[0] for each in result.found} == {"silent"}, result.found
