"""UpgradePolicies: the fields that a manifest may state, the record on a cluster, and the facts by
which both services decide.
"""

import json
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common import labels, untrusted
from common.api.meta import ObjectMeta
from common.api.opaque import Json
from common.upgrade import policy as upgrade_policy
from common.upgrade.gate_types import Gate, Metric, PrometheusGate, WebhookGate
from common.upgrade.policy import (
    Mirror,
    OnFailure,
    PolicyError,
    Preview,
    RecordedPolicy,
    Step,
    Stored,
    UpgradePolicy,
    WarmUp,
)
from support.builders.ray_cluster import a_ray_cluster
from support.builders.upgrade_policy import CAREFUL, GATE, ILLEGAL, LEGAL

MINUTE = timedelta(minutes=1)
READ = UpgradePolicy(
    name="careful",
    steps=(
        Step(weight=1, hold=2 * MINUTE),
        Step(weight=10, hold=5 * MINUTE),
        Step(weight=25, pauses=True),
        Step(weight=100),
    ),
    gates=(
        Gate(metric=Metric.ERROR_RATE, max=0.01),
        Gate(metric=Metric.LATENCY, quantile=0.95, max_increase=0.3),
        Gate(metric=Metric.TIME_TO_FIRST_TOKEN, quantile=0.95, max_increase=0.3),
        PrometheusGate(
            title="prometheus",
            url="http://prometheus.monitoring:9090",
            query='avg(accuracy{cluster="$pendingCluster"})',
            min=0.9,
        ),
        WebhookGate(title="webhook", url="https://checks.example.com/upgrade"),
    ),
    bake=15 * MINUTE,
    warm_up=WarmUp(requests=50, path="/warmup", concurrency=4),
    mirror=Mirror(percent=10, duration=2 * MINUTE),
    preview=Preview(service=True, header_name="x-raybus-version", header_value="next"),
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(sorted(CAREFUL)) | st.text(), inner, max_size=4)
    ),
    max_leaves=12,
)


def read(spec: Json) -> UpgradePolicy:
    return upgrade_policy.read("careful", spec)


def problems(spec: Any) -> tuple[str, ...]:
    with pytest.raises(PolicyError) as refused:
        read(spec)
    assert str(refused.value) == "; ".join(refused.value.problems)
    return refused.value.problems


def recorded_on(text: str | None) -> UpgradePolicy | None:
    return upgrade_policy.of_cluster(
        a_ray_cluster(annotations={} if text is None else {labels.UPGRADE_POLICY_RECORD: text})
    )


def test_a_full_policy_is_read() -> None:
    assert read(CAREFUL) == READ


def test_an_empty_policy_has_the_defaults() -> None:
    assert read({}) == UpgradePolicy(name="careful")


@pytest.mark.parametrize("spec", [pytest.param(spec, id=case) for case, spec in LEGAL.items()])
def test_what_is_legal_is_read(spec: Json) -> None:
    assert read(spec).name == "careful"


@pytest.mark.parametrize(
    ("spec", "field"), [pytest.param(*row, id=case) for case, row in ILLEGAL.items()]
)
def test_what_is_not_legal_is_refused_with_the_field(spec: Json, field: str) -> None:
    found = problems(spec)
    assert len(found) == 1
    assert found[0].startswith(field)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"gates": [GATE, {**GATE, "max": "1 %"}]}, 'spec.gates[1].max: "1 %" is not a percentage such as 1% or 0.5%, at most 100%'),
        ({"steps": [{"weight": 10}, {"weight": 10}, {"weight": 100}]}, "spec.steps[1].weight: 10 is not above the weight 10 of the step before"),
        ({"steps": [{"weight": 50}]}, "spec.steps[0].weight: 50 is not 100; the last step takes all traffic"),
        ({"gates": [{"metric": "errorRate"}]}, "spec.gates[0].max: neither max nor maxIncrease is there; state one of them"),
        ({"gates": [{**GATE, "maxIncrease": "1%"}]}, "spec.gates[0].max: max and maxIncrease are both there; state one of them"),
        ({"gates": [{**GATE, "quantile": 0.5}]}, "spec.gates[0].quantile: errorRate takes none; remove it"),
        (
            {"gates": [{"metric": "latencyP95", "quantile": 0.5, "max": "1s"}]},
            "spec.gates[0].quantile: latencyP95 takes none; remove it, or write latency",
        ),
        ({"warmUp": {}}, "spec.warmUp.requests: is missing; state a whole number from 1 to 10000"),
        ({"bake": "soon"}, 'spec.bake: "soon" is not a duration such as 90s or 1h30m, at most 168h0m0s'),
        ({"steps": []}, "spec.steps: has 0 items; state 1 to 20, or leave it out"),
        ({"gates": "none"}, 'spec.gates: "none" is not a list; state 1 to 10, or leave it out'),
        ({"preview": [1]}, "spec.preview: a list is not an object"),
        ({"onFailure": "\x1b[31m" + "x" * 99}, f'spec.onFailure: "{"x" * 56}" is not one of Rollback, Pause'),
        ({"bake": 10**99}, "spec.bake: 1" + 60 * "0" + "… is not a duration such as 90s or 1h30m, at most 168h0m0s"),
    ],
)  # fmt: skip
def test_a_problem_names_the_field_the_value_and_the_remedy(spec: Json, problem: str) -> None:
    assert problems(spec) == (problem,)


def test_an_unknown_field_is_refused_with_the_known_ones() -> None:
    assert problems({"bakes": "15m"}) == (
        "spec.bakes: is not a field; these are: applyEdits, autoPromote, bake, gates, mirror, onFailure, preview, steps, warmUp",
    )
    assert problems({"steps": [{"weight": 100, "pause": {"duration": "1m"}}]}) == (
        "spec.steps[0].pause.duration: is not a field; these are: ",
    )


def test_every_problem_is_named() -> None:
    spec = {
        "bake": "x",
        "steps": [{"weight": 5, "hold": "x"}],
        "gates": [{"metric": "x", "max": "x"}],
    }
    assert [each.partition(":")[0] for each in problems(spec)] == [
        "spec.steps[0].hold",
        "spec.gates[0].metric",
        "spec.bake",
    ]


def test_null_counts_as_absent() -> None:
    assert read({"bake": None, "steps": None, "warmUp": None}) == UpgradePolicy(name="careful")


@given(ANYTHING)
def test_whatever_is_in_a_spec_is_read_or_refused(spec: Any) -> None:
    try:
        noted = read(spec) and ()
    except PolicyError as refused:
        noted = refused.problems
    assert all(each.startswith("spec") and each == untrusted.plain(each) for each in noted)


@pytest.mark.parametrize(
    ("spec", "title"),
    [
        (GATE, "errorRate"),
        ({"metric": "latencyP95", "max": "1s"}, "latencyP95"),
        ({"metric": "latency", "quantile": 0.999, "max": "1s"}, "latencyP99.9"),
        ({"metric": "timeToFirstToken", "quantile": 0.5, "max": "1s"}, "timeToFirstTokenP50"),
    ],
)
def test_a_gate_has_a_title(spec: Json, title: str) -> None:
    assert read({"gates": [spec]}).gates[0].title == title


def test_a_preview_is_only_what_is_asked_for() -> None:
    assert Preview() == read({"preview": {}}).preview
    assert read({"preview": {}}).preview == Preview(
        service=False, header_name=None, header_value=None
    )


def test_a_limit_is_a_fraction_or_seconds() -> None:
    spec = {
        "gates": [{"metric": "errorRate", "max": "0.25%"}, {"metric": "latencyP50", "max": "250ms"}]
    }
    assert [gate.max for gate in read(spec).gates if isinstance(gate, Gate)] == [0.0025, 0.25]


def test_a_pause_on_failure_and_edits_at_once_are_read() -> None:
    found = read({"onFailure": "Pause", "applyEdits": "AtOnce", "autoPromote": False})
    assert found == UpgradePolicy(
        name="careful", on_failure=OnFailure.PAUSE, applies_edits_at_once=True, auto_promote=False
    )


def test_gates_are_judged_anew_at_each_step_and_on_mirrored_requests() -> None:
    mirror = Mirror(percent=10, duration=MINUTE)
    steps = (Step(weight=10), Step(weight=100))
    assert UpgradePolicy(name="careful").stages == 1
    assert UpgradePolicy(name="careful", steps=steps).stages == 2
    assert UpgradePolicy(name="careful", steps=steps, mirror=mirror).stages == 3


# --- the record --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [pytest.param(spec, id=case) for case, spec in LEGAL.items()])
def test_a_record_is_read_back(spec: Json) -> None:
    assert recorded_on(upgrade_policy.recorded("careful", "u", 3, spec)) == read(spec)


def test_a_record_has_the_identity_of_the_policy() -> None:
    text = upgrade_policy.recorded("careful", "u", 3, CAREFUL)
    found = upgrade_policy.record_of(
        a_ray_cluster(annotations={"raybus.io/upgrade-policy-record": text})
    )
    assert found is not None
    assert (found.name, found.uid, found.generation, found.spec) == ("careful", "u", 3, CAREFUL)


def test_the_record_of_another_upgrade_is_not_followed() -> None:
    record = {labels.UPGRADE_POLICY_RECORD: upgrade_policy.recorded("careful", "u", 3, CAREFUL)}
    pending = a_ray_cluster(annotations={**record, labels.UPGRADE_FROM: "blue"})
    assert upgrade_policy.of_upgrade("blue", pending) == READ
    assert upgrade_policy.of_upgrade("green", pending) is None
    assert upgrade_policy.of_upgrade("blue", None) is None


def test_the_largest_policy_fits_into_a_record() -> None:
    text = upgrade_policy.recorded(
        "n" * 253,
        "u" * 36,
        2**31 - 1,
        {
            **CAREFUL,
            "warmUp": {"requests": 1, "path": "/" + "a" * 999},
            "steps": [{"weight": each + 1, "hold": "1h" * 4, "pause": {}} for each in range(19)]
            + [{"weight": 100}],
            "gates": [{"metric": "timeToFirstToken", "quantile": 0.95, "maxIncrease": "999.99%"}]
            * 10,
            "preview": {"service": True, "header": {"name": "x" * 256, "value": "a" * 256}},
        },
    )
    assert len(text) < upgrade_policy.MAX_RECORD_SIZE / 3
    assert recorded_on(text) is not None


def test_what_cannot_be_meant_is_not_recorded() -> None:
    with pytest.raises(PolicyError, match="bake"):
        upgrade_policy.recorded("careful", "u", 1, {"bake": "soon"})


def test_a_record_of_more_than_its_limit_counts_as_none() -> None:
    text = upgrade_policy.recorded("careful", "u", 1, CAREFUL)
    assert recorded_on(text.ljust(upgrade_policy.MAX_RECORD_SIZE)) == READ
    assert recorded_on(text.ljust(upgrade_policy.MAX_RECORD_SIZE + 1)) is None


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "null",
        "[]",
        "{}",
        "[" * 10_000,
        '{"name": "careful", "spec": []}',
        '{"name": "careful", "spec": {"bake": "soon"}}',
        '{"name": "Care ful", "spec": {}}',
        '{"name": "careful\\u001b[2J", "spec": {}}',
        '{"name": "careful", "generation": -1, "spec": {}}',
        json.dumps({"name": "careful", "spec": {"warmUp": {"requests": 1, "path": "/../x"}}}),
        json.dumps({"name": "careful", "spec": {"gates": [{"metric": "prometheus", "max": "1%"}]}}),
        json.dumps({"name": "careful", "spec": {"x": "a" * 65_536}}),
    ],
)
def test_a_forged_record_counts_as_none(text: str | None) -> None:
    assert recorded_on(text) is None


@given(ANYTHING)
def test_no_record_stops_a_reader(spec: Any) -> None:
    recorded_on(json.dumps({"name": "careful", "spec": spec}))


def test_a_field_of_a_later_build_does_not_end_the_policy_of_an_upgrade() -> None:
    later = {**CAREFUL, "later": 1, "steps": [{"weight": 100, "later": 1}]}
    assert recorded_on(json.dumps({"name": "careful", "spec": later, "later": 1})) == read(
        {**CAREFUL, "steps": [{"weight": 100}]}
    )


# --- the facts ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("weight", "step", "following"),
    [
        (0, None, 1),
        (1, 1, 10),
        (9, 1, 10),
        (10, 10, 25),
        (24, 10, 25),
        (25, 25, 100),
        (99, 25, 100),
        (100, 100, 100),
    ],
)
def test_the_step_at_a_weight_and_the_next_one(
    weight: int, step: int | None, following: int
) -> None:
    found = upgrade_policy.step_at(READ, weight)
    assert (None if found is None else found.weight, upgrade_policy.next_weight(READ, weight)) == (
        step,
        following,
    )


def test_without_steps_there_is_one_of_all_traffic() -> None:
    assert upgrade_policy.step_at(UpgradePolicy(name="p"), 50) is None
    assert upgrade_policy.next_weight(UpgradePolicy(name="p"), 0) == 100


@pytest.mark.parametrize(
    ("weight", "aim", "stops", "following"),
    [
        (0, None, True, 1),
        (10, 10, True, 25),
        (17, 25, False, 25),
        (17, None, False, 25),
        (17, 17, True, 25),
        (17, 20, False, 20),
        (50, 50, True, 100),
        (60, 50, True, 100),
    ],
)
def test_an_upgrade_stops_at_the_step_that_a_move_was_for_also_when_an_edit_removed_it(
    weight: int, aim: int | None, *, stops: bool, following: int
) -> None:
    assert upgrade_policy.is_stop(READ, weight, aim) is stops
    assert upgrade_policy.next_weight(READ, weight, aim) == following


def test_without_steps_an_upgrade_stops_at_each_weight() -> None:
    assert upgrade_policy.is_stop(UpgradePolicy(name="p"), 17, 25)


@pytest.mark.parametrize(
    ("uid", "generation", "expected"),
    [("u", 4, True), ("u", 3, False), ("u", 2, False), ("v", 4, False)],
)
def test_an_edit_is_a_later_generation_of_the_same_object(
    uid: str, generation: int, *, expected: bool
) -> None:
    held = RecordedPolicy(name="careful", uid="u", generation=3)
    stored = Stored(metadata=ObjectMeta(name="careful", uid=uid, generation=generation))
    assert upgrade_policy.is_edited(held, stored) is expected
